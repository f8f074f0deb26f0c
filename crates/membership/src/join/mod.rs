//! From the start of a silo until it is Active (membership description, step 8).

mod connect;
mod entry;
mod reach;

use std::sync::Arc;

use emmer_core::{SiloAddress, SiloEntry, SiloStatus};

use self::connect::Check;
use self::entry::{Due, Entry};
pub(crate) use self::reach::{on_reach, reach_dialled};
use crate::api::{DialOutcome, Event, TerminateReason};
use crate::delta::Delta;
use crate::dials::Purpose;
use crate::facts::Facts;
use crate::inner::Inner;
use crate::out::Out;
use crate::timers::Timer;

/// The join of this silo.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Join {
    entry: Entry,
    check: Check,
}

impl Join {
    /// Returns true if the join has not begun.
    pub(crate) fn is_idle(&self) -> bool {
        self.entry.is_idle()
    }

    /// Returns true if an Active member has not answered, and nothing excuses it.
    pub(crate) fn is_blocked(&self, facts: &Facts) -> bool {
        self.check.is_blocked(facts)
    }

    /// Returns true if the join found no life in `silo`.
    pub(crate) fn doubts(&self, silo: &SiloAddress) -> bool {
        self.check.doubts(silo)
    }

    /// The silo that a silo without a row asks to write for it, if it has lost a race to one.
    pub(crate) fn winner(&self, facts: &Facts) -> Option<SiloAddress> {
        self.entry.winner().filter(|_| !facts.standing().is_in_table())
    }

    /// Starts.
    pub(crate) fn start(&mut self, facts: &Facts, out: &mut Out) {
        self.entry.start(facts, out);
    }

    /// A few members were read.
    pub(crate) fn on_sample(&mut self, facts: &Facts, out: &mut Out, sample: &[SiloEntry]) {
        self.entry.on_sample(facts, out, sample);
    }

    /// The table was read whole.
    pub(crate) fn on_read(&mut self, facts: &Facts, out: &mut Out) {
        self.entry.on_read(facts, out);
    }

    /// A commit of this silo lost the compare-and-set.
    pub(crate) fn on_conflict(&mut self, facts: &Facts, out: &mut Out) {
        self.entry.on_conflict(facts, out);
    }

    /// The next step is due.
    pub(crate) fn on_step(&mut self, facts: &Facts, out: &mut Out) {
        if self.entry.on_step(facts, out) == Due::Wave {
            self.check.next_wave(facts, out);
        }
    }

    /// A writer has taken a wish of this silo.
    pub(crate) fn on_noted(&self, facts: &Facts, out: &mut Out) {
        self.entry.on_noted(facts, out);
    }

    /// The join has taken too long.
    pub(crate) fn on_deadline(&self, out: &mut Out) {
        if !self.entry.is_done() {
            out.tell(Inner::End(TerminateReason::JoinTimedOut));
        }
    }

    /// The join is over, with or without success.
    pub(crate) fn abandon(&mut self, out: &mut Out) {
        *self = Self { entry: Entry::over(), check: Check::default() };
        out.timers().clear(Timer::JoinDeadline);
        out.timers().clear(Timer::JoinStep);
        out.dials().forget_all(Purpose::Join);
    }

    /// Returns true if the view in force is the first that shows this silo as Joining.
    pub(crate) fn is_first_view(&self, facts: &Facts) -> bool {
        self.is_under_way(facts)
            && facts.status() == SiloStatus::Joining
            && !self.entry.is_checking()
    }

    fn is_under_way(&self, facts: &Facts) -> bool {
        facts.standing().is_in_table() && !self.entry.is_done() && !self.entry.is_idle()
    }

    /// Silos that left the host of this silo without a goodbye, if the view in force is the first
    /// that lets this silo vote against them.
    pub(crate) fn vacant(&self, facts: &Facts) -> Vec<SiloAddress> {
        if self.is_under_way(facts) && facts.status() == SiloStatus::Active {
            self.check.vacant()
        } else {
            Vec::new()
        }
    }

    /// A view is in force.
    pub(crate) fn view_changed(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        delta: Option<&Arc<Delta>>,
    ) {
        if !self.is_under_way(facts) {
            return;
        }
        if facts.status() != SiloStatus::Joining {
            self.abandon(out);
        } else if self.entry.begin_checking() {
            self.check.begin(facts, out);
        } else {
            self.check.view_changed(facts, out, delta);
        }
    }

    /// A writer could not tell whether this silo has checked enough.
    pub(crate) fn on_recheck(&mut self, facts: &Facts, out: &mut Out, version: u64) {
        if self.entry.is_checking() {
            self.check.on_recheck(facts, out, version);
        }
    }

    /// A silo answered a probe: a round trip.
    pub(crate) fn answered(&mut self, facts: &Facts, out: &mut Out, from: &SiloAddress) {
        if self.entry.is_checking() {
            self.check.answered(facts, out, from);
        }
    }

    /// A member has dialled this silo, and got through or not.
    pub(crate) fn on_reached(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        from: SiloAddress,
        through: bool,
    ) {
        if !self.entry.is_checking() {
            return;
        }
        if through {
            self.check.on_reached(facts, out);
        } else {
            out.event(Event::NotReached { from });
        }
    }

    /// A dial of the join's ended.
    pub(crate) fn on_dialled(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        silo: SiloAddress,
        outcome: DialOutcome,
    ) {
        if self.entry.is_checking() {
            self.check.on_dialled(facts, out, silo, outcome);
        }
    }
}

/// Views of a join for tests.
#[cfg(test)]
impl Join {
    pub(crate) fn is_checking(&self) -> bool {
        self.entry.is_checking()
    }

    pub(crate) fn lags(&self, facts: &Facts) -> bool {
        self.check.lags(facts)
    }

    pub(crate) const fn claimed(&self) -> u64 {
        self.check.claimed()
    }

    pub(crate) fn forget_later_views(&mut self) {
        self.check.forget_later_views();
    }
}
