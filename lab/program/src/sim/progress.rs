//! The line on stderr while virtual time passes: alive on a terminal, now and then a line
//! elsewhere.

use std::io::IsTerminal;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use emmer_cli::text;

/// Interval at which the line moves on a terminal.
const ALIVE_PERIOD: Duration = Duration::from_millis(200);
/// Interval at which there is another line elsewhere.
const PLAIN_PERIOD: Duration = Duration::from_secs(10);

/// Shows that something is under way until it is dropped.
pub(super) struct Progress {
    over: Option<mpsc::SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Asks `state` now and then for what to say.
    pub(super) fn start(state: impl Fn() -> String + Send + 'static) -> Self {
        let (over, ended) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name("emmer-progress".to_owned());
        // Without a thread there is no line, and everything else as well as ever.
        let thread = thread.spawn(move || show(&state, &ended)).ok();
        Self { over: Some(over), thread }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.over = None;
        if let Some(thread) = self.thread.take() {
            // It can only have ended.
            let _ = thread.join();
        }
    }
}

fn show(state: &impl Fn() -> String, ended: &mpsc::Receiver<()>) {
    let alive = std::io::stderr().is_terminal();
    let period = if alive { ALIVE_PERIOD } else { PLAIN_PERIOD };
    let started = Instant::now();
    while ended.recv_timeout(period) == Err(mpsc::RecvTimeoutError::Timeout) {
        let line = format!("{} ({})", state(), text::span(started.elapsed()));
        if alive {
            eprint!("\r\x1b[K{line}");
        } else {
            eprintln!("{line}");
        }
    }
    if alive {
        eprint!("\r\x1b[K");
    }
}
