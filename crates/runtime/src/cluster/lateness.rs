//! The lateness of a silo's tasks: a reason why a healthy silo does not hear the others.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use emmer_net::clock::CoarseInstant;

/// From this lateness on a silo is too busy.
const BUSY: Duration = Duration::from_millis(200);

/// Time after which a silo whose tasks do not run is stuck. Its membership has a thread of its own,
/// and is silent until the tasks run again.
const STUCK: Duration = Duration::from_secs(15);

/// The lateness of a silo's tasks, as a task that measures it finds it now and then.
#[derive(Debug, Default)]
pub(crate) struct Lateness {
    /// The time of the last measurement, in milliseconds; 0 before the first one.
    at: AtomicU64,
    /// The lateness that the last measurement found, in milliseconds.
    found: AtomicU64,
}

impl Lateness {
    /// A task that was due ran so much later.
    pub(super) fn note(&self, now: CoarseInstant, late: Duration) {
        self.found.store(u64::try_from(late.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.at.store(now.as_millis(), Ordering::Relaxed);
    }

    /// Returns true if the next measurement, which is due `every` so often, is missing for too
    /// long.
    pub(super) fn is_stuck(&self, now: CoarseInstant, every: Duration) -> bool {
        let at = self.at.load(Ordering::Relaxed);
        at != 0 && now >= CoarseInstant::from_millis(at).after(every + STUCK)
    }

    /// The lateness now, if the silo is too busy: the last measured one, or the delay of the next
    /// measurement, which is due `every` so often.
    pub(crate) fn busy(&self, now: CoarseInstant, every: Duration) -> Option<Duration> {
        let at = self.at.load(Ordering::Relaxed);
        if at == 0 {
            return None;
        }
        let waits = Duration::from_millis(now.as_millis().saturating_sub(at)).saturating_sub(every);
        let found = Duration::from_millis(self.found.load(Ordering::Relaxed));
        Some(found.max(waits)).filter(|late| *late >= BUSY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_that_waits_is_late_already() {
        let (ms, at) = (Duration::from_millis, CoarseInstant::from_millis);
        let lateness = Lateness::default();
        let busy = |now| lateness.busy(at(now), ms(500));
        assert_eq!(busy(9_000), None, "nothing was measured");
        lateness.note(at(10_000), ms(3));
        assert_eq!((busy(10_100), busy(10_699)), (None, None));
        assert_eq!(busy(11_700), Some(ms(1_200)));
        lateness.note(at(12_000), ms(900));
        assert_eq!(busy(12_100), Some(ms(900)));
        lateness.note(at(12_500), ms(1));
        assert_eq!(busy(12_600), None);
        assert!(!lateness.is_stuck(at(27_999), ms(500)) && lateness.is_stuck(at(28_000), ms(500)));
    }
}
