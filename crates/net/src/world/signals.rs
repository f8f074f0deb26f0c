//! Requests to stop: the operating system's signals.

/// The requests to stop that reach this process. A virtual world has none.
#[derive(Debug)]
pub struct StopRequests {
    #[cfg(unix)]
    signals: Option<[tokio::signal::unix::Signal; 2]>,
    #[cfg(not(unix))]
    is_real: bool,
    /// The time of the last request.
    last: Option<tokio::time::Instant>,
}

/// Signals that come closer together are one request: some programs send theirs to the process, and
/// once more to its group.
const ONE_REQUEST: std::time::Duration = std::time::Duration::from_secs(1);

impl StopRequests {
    /// Watches from now on. The signals no longer end the process by themselves.
    pub fn watch() -> Self {
        let is_real = !super::is_virtual();
        #[cfg(unix)]
        return Self { signals: if is_real { watched() } else { None }, last: None };
        #[cfg(not(unix))]
        Self { is_real, last: None }
    }

    /// Waits for the next request.
    pub async fn next(&mut self) {
        loop {
            self.signal().await;
            let now = tokio::time::Instant::now();
            if self.last.is_none_or(|last| now.saturating_duration_since(last) >= ONE_REQUEST) {
                self.last = Some(now);
                return;
            }
        }
    }

    async fn signal(&mut self) {
        #[cfg(unix)]
        if let Some([interrupt, terminate]) = &mut self.signals {
            tokio::select! {
                Some(()) = interrupt.recv() => return,
                Some(()) = terminate.recv() => return,
                else => {}
            }
        }
        #[cfg(not(unix))]
        if self.is_real && tokio::signal::ctrl_c().await.is_ok() {
            return;
        }
        std::future::pending::<()>().await;
    }
}

#[cfg(unix)]
fn watched() -> Option<[tokio::signal::unix::Signal; 2]> {
    use crate::warn_seldom;
    use tokio::signal::unix::{SignalKind, signal};
    let both = signal(SignalKind::interrupt())
        .and_then(|interrupt| Ok([interrupt, signal(SignalKind::terminate())?]));
    both.inspect_err(|error| warn_seldom!(%error, "signals cannot be watched")).ok()
}
