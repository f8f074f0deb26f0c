//! The deadlines of the machine: a fixed table, one slot per purpose.
//!
//! Probes have their deadlines with their peers; everything else that waits has a slot here.

use emmer_core::Instant;

/// Purpose of a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Timer {
    /// The writer has collected intents long enough.
    Flush,
    /// The table may be tried again.
    TableRetry,
    /// The request to the table in flight is given up.
    TableTimeout,
    /// The touch in flight is given up.
    TouchTimeout,
    /// The table (or its version) is read again.
    Refresh,
    /// The own row is touched.
    Touch,
    /// The join has taken too long.
    JoinDeadline,
    /// The next step of the join: a retry or the next wave of connectivity probes.
    JoinStep,
    /// An own intent goes to the next writer.
    Route,
    /// An asked-for view has not come: another silo is asked.
    Pull,
    /// A version that only strangers speak of has had the time to arrive.
    Claim,
    /// The last writes of a leaving silo have taken too long.
    Leave,
    /// The fence may have to close, or a confirmation is due.
    Fence,
    /// The rows are read again, to see which stand still.
    Stale,
    /// Defunct rows are looked for, staleness is judged.
    Housekeeping,
}

const SLOTS: usize = Timer::Housekeeping as usize + 1;

const ALL: [Timer; SLOTS] = [
    Timer::Flush,
    Timer::TableRetry,
    Timer::TableTimeout,
    Timer::TouchTimeout,
    Timer::Refresh,
    Timer::Touch,
    Timer::JoinDeadline,
    Timer::JoinStep,
    Timer::Route,
    Timer::Pull,
    Timer::Claim,
    Timer::Leave,
    Timer::Fence,
    Timer::Stale,
    Timer::Housekeeping,
];

/// One deadline per [`Timer`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Timers([Option<Instant>; SLOTS]);

impl Timers {
    pub(crate) const fn set(&mut self, timer: Timer, at: Instant) {
        self.0[timer as usize] = Some(at);
    }

    /// Sets `timer` to `at` unless it is due earlier.
    pub(crate) fn set_no_later(&mut self, timer: Timer, at: Instant) {
        let slot = &mut self.0[timer as usize];
        *slot = Some(slot.map_or(at, |old| old.min(at)));
    }

    pub(crate) const fn clear(&mut self, timer: Timer) {
        self.0[timer as usize] = None;
    }

    pub(crate) const fn is_set(&self, timer: Timer) -> bool {
        self.0[timer as usize].is_some()
    }

    pub(crate) fn is_due(&self, timer: Timer, now: Instant) -> bool {
        self.0[timer as usize].is_some_and(|at| at <= now)
    }

    /// Takes one timer that is due, in the order of the table.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<Timer> {
        let due = ALL.into_iter().find(|t| self.0[*t as usize].is_some_and(|at| at <= now))?;
        self.clear(due);
        Some(due)
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.iter().flatten().min().copied()
    }

    pub(crate) const fn clear_all(&mut self) {
        self.0 = [None; SLOTS];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pops_what_is_due_once() {
        let mut timers = Timers::default();
        timers.set(Timer::Touch, Instant::from_millis(5));
        timers.set(Timer::Flush, Instant::from_millis(9));
        timers.set_no_later(Timer::Flush, Instant::from_millis(20));
        assert_eq!(timers.next(), Some(Instant::from_millis(5)));
        assert_eq!(timers.pop_due(Instant::from_millis(5)), Some(Timer::Touch));
        assert_eq!(timers.pop_due(Instant::from_millis(5)), None);
        assert_eq!(timers.pop_due(Instant::from_millis(9)), Some(Timer::Flush));
    }

    #[test]
    fn every_timer_has_its_slot() {
        for (slot, timer) in ALL.into_iter().enumerate() {
            assert_eq!(timer as usize, slot);
        }
    }
}
