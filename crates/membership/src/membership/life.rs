//! The life of this silo: leaving, its end, its periodic duties.

use std::time::Duration;

use emmer_core::{SiloAddress, SiloStatus};

use super::Membership;
use crate::api::{Effect, TerminateReason};
use crate::dials::Purpose;
use crate::message::Message;
use crate::timers::Timer;
use crate::wishes::{Wishes, leave};
use crate::write::Write;

/// Longest time between two looks.
const HOUSEKEEPING_MAX: Duration = Duration::from_secs(10);

impl Membership {
    /// The own row, in a new view, has this status.
    pub(super) fn own_status_is(&mut self, status: SiloStatus) {
        let now = self.facts.now().mono;
        let before = self.facts.status();
        self.facts.standing_mut().rise_to(status);
        if before < SiloStatus::Active && self.facts.status() == SiloStatus::Active {
            self.detect.became_active(&self.facts);
            self.table.start_touching(self.fence.wished().unwrap_or(now));
            let touch = self.out.dice().duration_below(self.facts.publish_period());
            self.out.timers().set(Timer::Touch, now + touch);
            let refresh = self.out.dice().duration_below(self.facts.config().table_refresh_timeout);
            self.out.timers().set(Timer::Refresh, now + refresh);
            self.schedule_housekeeping();
        }
        if self.facts.status() >= SiloStatus::Active && self.out.timers().is_set(Timer::Touch) {
            // In a cluster that has become smaller rows are touched more often.
            self.out.timers().set_no_later(Timer::Touch, now + self.facts.publish_period());
        }
    }

    fn schedule_housekeeping(&mut self) {
        let pause = HOUSEKEEPING_MAX / 2 + self.out.dice().duration_below(HOUSEKEEPING_MAX / 2);
        self.out.timers().set(Timer::Housekeeping, self.facts.now().mono + pause);
    }

    /// Periodic duties.
    pub(super) fn housekeep(&mut self) {
        self.schedule_housekeeping();
        self.choose_peers();
        self.detect.suspect_stuck_joiners(&self.facts, &mut self.out);
        self.drain();
        self.write.clean_up(&self.facts);
        self.look_for_staleness();
    }

    /// `leave` and `stop`.
    pub(super) fn start_leaving(&mut self, status: SiloStatus) {
        let standing = self.facts.standing();
        if standing.is_over() || standing.is_finishing() || standing.status() >= status {
            return;
        }
        if standing.status() < SiloStatus::Active {
            // It never was a full member, and will host nothing.
            self.fence.shut(&self.facts, &mut self.out);
        }
        self.facts.standing_mut().leave(status);
        self.join.abandon(&mut self.out);
        self.detect.stop(&self.facts, &mut self.out);
        self.out.dials().forget_all(Purpose::Hint);
        leave::leave(&mut self.wishes, &self.facts, &mut self.out, status);
        self.drain();
    }

    /// `finish_leave`.
    pub(super) fn start_finishing(&mut self) {
        if self.facts.is_over() || self.facts.standing().is_finishing() {
            return;
        }
        self.start_leaving(SiloStatus::Stopping);
        if !self.facts.standing().is_in_table() && !self.table.is_asking() {
            self.terminate(TerminateReason::Left);
            return;
        }
        self.facts.standing_mut().finish_leave();
        // A silo that sees this one Dead by its own word takes its grains over at once (I8).
        self.fence.shut(&self.facts, &mut self.out);
        let until = self.facts.now().mono + self.facts.config().shutdown_grace_period;
        self.out.timers().set(Timer::Leave, until);
        leave::finish(&mut self.wishes, &self.facts, &mut self.out);
        self.drain();
    }

    /// A writer is about to insert a successor of this silo. This silo serves nothing from now on,
    /// and tells the writer so.
    pub(super) fn on_superseded(&mut self, from: SiloAddress, by: SiloAddress) {
        if self.facts.me().is_succeeded_by(&by) {
            self.fence.shut(&self.facts, &mut self.out);
            self.out.send(from, Message::Yielded);
            self.terminate(TerminateReason::Superseded(by));
        }
    }

    /// Ends the machine. Its last messages stay in the queue before the end.
    pub(super) fn terminate(&mut self, reason: TerminateReason) {
        if self.facts.is_over() {
            return;
        }
        self.facts.standing_mut().end(reason != TerminateReason::JoinTimedOut);
        self.out.timers().clear_all();
        self.detect.end();
        self.wishes = Wishes::default();
        self.write = Write::default();
        self.out.effect(Effect::Terminate(reason));
    }
}
