//! Tells systemd of a silo.

use crate::SiloBuilder;

/// Notifies systemd where it asks for that (`Type=notify`, `WatchdogSec=`): when the silo is
/// Active, when it stops, that it is alive, and with a line for `systemctl status`. Elsewhere it
/// does nothing. [`run`](crate::run()) calls it.
///
/// ```no_run
/// # use emmer::prelude::*;
/// # async fn serve() -> emmer::Result<()> {
/// let silo = emmer::notify_systemd(Silo::builder()).store("sqlite://cluster.db");
/// silo.run().await?;
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn notify_systemd(silo: SiloBuilder) -> SiloBuilder {
    #[cfg(target_os = "linux")]
    if std::env::var_os("NOTIFY_SOCKET").is_some() {
        // The end may come before the observer looks again.
        return silo.observer(linux::Teller).before_leave(|_| async { linux::stopping() });
    }
    silo
}

#[cfg(target_os = "linux")]
mod linux {
    use std::time::Duration;

    use sd_notify::NotifyState;

    use crate::observe::{Observer, Readiness, SiloWatch};

    /// The longest that a change waits to be told.
    const LOOK: Duration = Duration::from_millis(200);

    pub(super) struct Teller;

    impl Observer for Teller {
        fn begin(self: Box<Self>, silo: SiloWatch) {
            tokio::spawn(tell(silo));
        }
    }

    /// Reports every change, until the silo has ended.
    async fn tell(silo: SiloWatch) {
        // It is notified twice in the time after which systemd would kill the process. A silo whose
        // threads all stand still does not get here.
        let watchdog = sd_notify::watchdog_enabled().map(|time| time / 2);
        let period = watchdog.map_or(LOOK, |time| time.min(LOOK)).max(Duration::from_millis(1));
        let mut ticks = tokio::time::interval(period);
        let (mut told, mut was_ready) = (None, false);
        loop {
            ticks.tick().await;
            if watchdog.is_some() {
                send(&[NotifyState::Watchdog]);
            }
            let readiness = silo.readiness();
            if told == Some(readiness) {
                continue;
            }
            let status = readiness.to_string();
            let status = NotifyState::Status(&status);
            match readiness {
                // Once: a silo that is fenced for a while is not started twice.
                Readiness::Ready if !was_ready => {
                    was_ready = true;
                    send(&[NotifyState::Ready, status]);
                }
                Readiness::Ended(_) => return send(&[status]),
                _ => send(&[status]),
            }
            told = Some(readiness);
        }
    }

    pub(super) fn stopping() {
        send(&[NotifyState::Stopping]);
    }

    /// Errors are ignored: without a service manager the silo runs all the same.
    fn send(states: &[NotifyState<'_>]) {
        let _ = sd_notify::notify(states);
    }
}
