//! Leaving: ShuttingDown or Stopping, then Dead (membership description, step 12, and the
//! original's statuses).

use emmer_core::{Now, SiloStatus};

use crate::api::TerminateReason;
use crate::dials::Purpose;
use crate::intent::{Intent, Key};
use crate::membership::Membership;
use crate::timers::Timer;

impl Membership {
    /// `leave` and `stop`.
    pub(crate) fn start_leaving(&mut self, now: Now, status: SiloStatus) {
        if self.is_done()
            || self.facts.standing().is_finishing()
            || self.facts.standing().status() >= status
        {
            return;
        }
        if self.facts.standing().status() < SiloStatus::Active {
            // It never was a full member, and will host nothing.
            self.fence.shut(&self.facts, &mut self.out);
        }
        self.facts.standing_mut().leave(status);
        self.join.abandon(&mut self.out);
        self.detect.stop(&self.facts, &mut self.out);
        self.out.dials().forget_all(Purpose::Hint);
        self.wishes.keep_only_status();
        if self.facts.standing().is_in_table() {
            let silo = self.facts.me();
            self.wishes.forget(&Key::Status(silo));
            self.wish(now, Intent::Status { silo, status });
        }
    }

    pub(crate) fn start_finishing(&mut self, now: Now) {
        if self.is_done() || self.facts.standing().is_finishing() {
            return;
        }
        self.start_leaving(now, SiloStatus::Stopping);
        if !self.facts.standing().is_in_table() && !self.is_asking() {
            self.terminate(TerminateReason::Left);
            return;
        }
        self.facts.standing_mut().finish_leave();
        // Whoever sees it Dead by its own word takes its grains over at once (I8).
        self.fence.shut(&self.facts, &mut self.out);
        self.out.timers().set(Timer::Leave, now.mono + self.facts.config().shutdown_grace_period);
        let silo = self.facts.me();
        self.wishes.forget(&Key::Status(silo));
        self.writer.forget(&Key::Status(silo));
        self.wish(now, Intent::Status { silo, status: SiloStatus::Dead });
    }

    pub(crate) const fn is_finishing(&self) -> bool {
        self.facts.standing().is_finishing()
    }

    pub(crate) fn on_leave_timeout(&mut self) {
        self.terminate(TerminateReason::Left);
    }
}
