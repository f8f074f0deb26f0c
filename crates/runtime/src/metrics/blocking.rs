//! Turns that hold their thread: a method that computes or waits for long without an `.await` keeps
//! every other task of its thread from running.
//!
//! The code that polls a turn leaves its method and the time where the [watcher](super::watcher)
//! looks: two stores of its own thread, no look at a clock when the turn ends.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use emmer_net::clock::CoarseInstant;

use super::threads::{self, OWNERS};

/// Time after which a turn that holds its thread is reported.
pub(crate) const BLOCKING_MIN: Duration = Duration::from_millis(100);

/// Turn that runs on one thread. In a line of memory of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Slot {
    /// Time at which the turn's poll began, in coarse milliseconds and one more; 0 when none is
    /// being polled.
    since: AtomicU64,
    method: AtomicU32,
    /// The `since` of the last turn that was told of.
    told: AtomicU64,
}

impl Slot {
    /// Only its owner writes a thread's slot.
    #[inline]
    fn exchange(&self, with: Outer) -> Outer {
        let before = Outer {
            since: self.since.load(Ordering::Relaxed),
            method: self.method.load(Ordering::Relaxed),
        };
        self.method.store(with.method, Ordering::Relaxed);
        self.since.store(with.since, Ordering::Relaxed);
        before
    }
}

/// Turns that run on all threads.
#[derive(Debug)]
pub(crate) struct Watch {
    slots: Box<[Slot]>,
    blocking: AtomicU64,
}

impl Default for Watch {
    fn default() -> Self {
        Self { slots: (0..OWNERS).map(|_| Slot::default()).collect(), blocking: AtomicU64::new(0) }
    }
}

/// A poll under way, from beginning to end on one thread.
pub(crate) struct Polling<'a> {
    /// None on a thread that is not watched.
    slot: Option<&'a Slot>,
    outer: Outer,
}

impl Polling<'_> {
    /// The poll is over.
    #[inline]
    pub(crate) fn end(self) {
        if let Some(slot) = self.slot {
            slot.exchange(self.outer);
        }
    }
}

/// Turn that was polled on this thread before: a turn may poll another one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outer {
    since: u64,
    method: u32,
}

impl Watch {
    /// A poll of a turn of `method` begins on this thread. The result goes to [`end`](Self::end).
    #[inline]
    pub(crate) fn begin(&self, method: u32, now: CoarseInstant) -> Outer {
        self.exchange(Outer { since: now.as_millis().saturating_add(1), method })
    }

    /// The poll is over.
    #[inline]
    pub(crate) fn end(&self, outer: Outer) {
        self.exchange(outer);
    }

    /// As [`begin`](Self::begin), for a poll that begins and ends in one place.
    #[inline]
    pub(crate) fn polling(&self, method: u32, now: CoarseInstant) -> Polling<'_> {
        let slot = self.slots.get(threads::current());
        let with = Outer { since: now.as_millis().saturating_add(1), method };
        Polling { slot, outer: slot.map_or_else(Outer::default, |slot| slot.exchange(with)) }
    }

    #[inline]
    fn exchange(&self, with: Outer) -> Outer {
        // A thread without a slot is not watched.
        self.slots.get(threads::current()).map_or_else(Outer::default, |slot| slot.exchange(with))
    }

    /// Reports every turn that has held its thread for [`BLOCKING_MIN`], once: its method and the
    /// time so far. Returns the longest time for which a thread is held.
    pub(crate) fn look(&self, now: CoarseInstant, mut tell: impl FnMut(u32, Duration)) -> Duration {
        let mut longest = Duration::ZERO;
        for slot in &self.slots {
            let since = slot.since.load(Ordering::Relaxed);
            if since == 0 {
                continue;
            }
            let held = now.left(CoarseInstant::from_millis(since - 1));
            longest = longest.max(held);
            if held >= BLOCKING_MIN && slot.told.load(Ordering::Relaxed) != since {
                slot.told.store(since, Ordering::Relaxed);
                self.blocking.fetch_add(1, Ordering::Relaxed);
                tell(slot.method.load(Ordering::Relaxed), held);
            }
        }
        longest
    }

    /// The threads that a turn has held for at least `min`: the number of the thread, the method
    /// and the time.
    pub(crate) fn held(&self, now: CoarseInstant, min: Duration) -> Vec<(usize, u32, Duration)> {
        let slots = self.slots.iter().enumerate();
        let held = slots.filter_map(|(thread, slot)| {
            let since = slot.since.load(Ordering::Relaxed).checked_sub(1)?;
            let held = now.left(CoarseInstant::from_millis(since));
            (held >= min).then(|| (thread, slot.method.load(Ordering::Relaxed), held))
        });
        held.collect()
    }

    /// Returns true if any thread that is watched polls a turn.
    pub(crate) fn is_polling(&self) -> bool {
        self.slots.iter().any(|slot| slot.since.load(Ordering::Relaxed) != 0)
    }

    /// Number of turns that were reported.
    pub(crate) fn blocking(&self) -> u64 {
        self.blocking.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_that_holds_its_thread_is_told_of_once() {
        let watch = Watch::default();
        let at = CoarseInstant::from_millis;
        let mut told = Vec::new();
        let outer = watch.begin(7, at(10));
        watch.look(at(109), |method, held| told.push((method, held)));
        assert!(told.is_empty());
        for now in [110, 150] {
            watch.look(at(now), |method, held| told.push((method, held)));
        }
        assert_eq!(told, [(7, BLOCKING_MIN)]);
        assert!(watch.is_polling());
        // One turn polls another, which is over at once.
        let inner = watch.begin(8, at(160));
        watch.end(inner);
        watch.end(outer);
        watch.look(at(9_999), |method, held| told.push((method, held)));
        assert_eq!((told.len(), watch.blocking()), (1, 1));
        assert!(!watch.is_polling());
    }
}
