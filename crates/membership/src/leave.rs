//! Leaving: ShuttingDown or Stopping, then Dead (seed 000 and the original's status machine).

use emmer_core::{Now, SiloStatus};

use crate::api::TerminateReason;
use crate::intent::{Intent, Key};
use crate::membership::Membership;
use crate::timers::Timer;

/// How far a leave has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Leave {
    /// Not leaving.
    #[default]
    No,
    /// ShuttingDown or Stopping is (being) written; the application drains.
    Draining,
    /// Dead is being written.
    Finishing,
}

impl Membership {
    /// `leave` and `stop`.
    pub(crate) fn start_leaving(&mut self, now: Now, status: SiloStatus) {
        if self.is_done() || self.leaving == Leave::Finishing || self.status >= status {
            return;
        }
        self.leaving = Leave::Draining;
        if self.status < SiloStatus::Active {
            // It never was a full member, and will host nothing.
            self.close_fence();
        }
        self.status = status;
        self.abandon_join();
        self.peers.clear();
        self.dials.clear();
        self.own.retain(|key, _| matches!(key, Key::Status(_)));
        if self.inserted {
            let silo = self.me.address;
            self.own.remove(&Key::Status(silo));
            self.wish(now, Intent::Status { silo, status });
        }
    }

    pub(crate) fn start_finishing(&mut self, now: Now) {
        if self.is_done() || self.leaving == Leave::Finishing {
            return;
        }
        self.start_leaving(now, SiloStatus::Stopping);
        if !self.inserted && !self.is_asking() {
            self.terminate(TerminateReason::Left);
            return;
        }
        self.leaving = Leave::Finishing;
        // Whoever sees it Dead by its own word takes its grains over at once (I8).
        self.close_fence();
        self.timers.set(Timer::Leave, now.mono + self.config.shutdown_grace_period);
        let silo = self.me.address;
        self.own.remove(&Key::Status(silo));
        self.writer.queue.remove(&Key::Status(silo));
        self.wish(now, Intent::Status { silo, status: SiloStatus::Dead });
    }

    pub(crate) const fn is_finishing(&self) -> bool {
        matches!(self.leaving, Leave::Finishing)
    }

    pub(crate) fn on_leave_timeout(&mut self) {
        self.terminate(TerminateReason::Left);
    }
}
