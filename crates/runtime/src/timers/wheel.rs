//! The due times of the whole silo, in one order.
//!
//! An ordered map: tokio's own wheel and `tokio-util`'s count on a clock that stands still while
//! the machine sleeps, as the silo's does not. With 100,000 entries the map takes about a tenth of
//! the processor time of a tick (`docs/benchmarks.md`).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use emmer_core::Instant;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::reminders::Seldom;

/// Due times are rounded up to whole steps of this length: what is due in one step fires together,
/// and the wheel's task wakes up at most a hundred times in a second.
const STEP: Duration = Duration::from_millis(10);

/// At most so many entries whose time has come are taken at once: meanwhile nothing can be put in.
const BATCH: usize = 256;

/// Something to be done when its time has come.
pub(crate) trait Due: Send + Sync {
    /// Its time has come. It must not wait.
    fn fire(self: Arc<Self>);

    /// Returns true if its owner stays in memory while it waits.
    fn keeps(&self) -> bool;
}

/// A place in the order of due times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    at: Instant,
    number: u64,
}

#[derive(Default)]
struct Entries {
    by_time: BTreeMap<Place, (u64, Arc<dyn Due>)>,
    /// The places of each owner's.
    owners: HashMap<u64, Vec<Place>>,
    last: u64,
}

impl Entries {
    fn take(&mut self, place: Place) -> Option<Arc<dyn Due>> {
        let (owner, due) = self.by_time.remove(&place)?;
        if let Some(places) = self.owners.get_mut(&owner) {
            places.retain(|other| *other != place);
            if places.is_empty() {
                self.owners.remove(&owner);
            }
        }
        Some(due)
    }
}

/// The order of due times of one silo.
#[derive(Default)]
pub(crate) struct Wheel {
    entries: Mutex<Entries>,
    /// Something is due sooner than before.
    sooner: Notify,
    /// Ticks that failed, in the log.
    pub(super) failures: Seldom,
}

impl Wheel {
    /// Fires `due` at `at`, for this owner.
    pub(super) fn put(&self, owner: u64, at: Instant, due: Arc<dyn Due>) -> Place {
        let mut entries = self.entries.lock();
        entries.last += 1;
        let step = nanos(STEP);
        let at = Instant::from_nanos(at.as_nanos().div_ceil(step).saturating_mul(step));
        let place = Place { at, number: entries.last };
        let is_first = entries.by_time.first_key_value().is_none_or(|(first, _)| place < *first);
        entries.by_time.insert(place, (owner, due));
        entries.owners.entry(owner).or_default().push(place);
        drop(entries);
        if is_first {
            self.sooner.notify_one();
        }
        place
    }

    /// Takes out what is at this place, if it was not fired yet.
    pub(super) fn take(&self, place: Place) {
        let taken = self.entries.lock().take(place);
        // It may hold much, which is dropped without the lock.
        drop(taken);
    }

    /// Takes out everything of this owner.
    pub(crate) fn forget(&self, owner: u64) {
        let mut gone = Vec::new();
        let mut entries = self.entries.lock();
        for place in entries.owners.remove(&owner).unwrap_or_default() {
            gone.extend(entries.by_time.remove(&place));
        }
        drop(entries);
    }

    /// Returns true if something that waits keeps its owner in memory.
    pub(crate) fn keeps(&self, owner: u64) -> bool {
        let entries = self.entries.lock();
        let places = entries.owners.get(&owner).into_iter().flatten();
        places.filter_map(|place| entries.by_time.get(place)).any(|(_, due)| due.keeps())
    }

    /// Returns how many wait.
    pub(crate) fn len(&self) -> usize {
        self.entries.lock().by_time.len()
    }

    /// Fires what is due, for ever.
    pub(crate) async fn drive(&self, clock: &Clock) {
        loop {
            let due = self.entries.lock().by_time.first_key_value().map(|(first, _)| first.at);
            tokio::select! {
                biased;
                () = self.sooner.notified() => {}
                () = clock.sleep_until(due) => {
                    for due in self.due(clock.mono()) {
                        due.fire();
                    }
                    // Others on this thread may run, however much is due.
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    fn due(&self, now: Instant) -> Vec<Arc<dyn Due>> {
        let mut entries = self.entries.lock();
        let mut due = Vec::new();
        while due.len() < BATCH
            && let Some((place, _)) = entries.by_time.first_key_value().filter(|(p, _)| p.at <= now)
        {
            let place = *place;
            due.extend(entries.take(place));
        }
        due
    }
}

fn nanos(step: Duration) -> u64 {
    u64::try_from(step.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Note(u64, Arc<Mutex<Vec<u64>>>);

    impl Due for Note {
        fn fire(self: Arc<Self>) {
            self.1.lock().push(self.0);
        }

        fn keeps(&self) -> bool {
            self.0 == 90
        }
    }

    #[test]
    fn what_is_due_comes_in_order_and_what_was_taken_out_does_not() {
        let (wheel, fired) = (Wheel::default(), Arc::default());
        let put = |owner, secs, name| {
            let at = Instant::ZERO + Duration::from_secs(secs);
            wheel.put(owner, at, Arc::new(Note(name, Arc::clone(&fired))))
        };
        let [_, stopped, ..] = [put(1, 3, 30), put(1, 2, 20), put(2, 1, 10), put(3, 2, 21)];
        put(2, 9, 90);
        wheel.take(stopped);
        let now = |secs| Instant::ZERO + Duration::from_secs(secs);
        assert!(wheel.keeps(2) && !wheel.keeps(1) && !wheel.keeps(4));
        wheel.due(now(2)).into_iter().for_each(Due::fire);
        wheel.forget(2);
        wheel.due(now(100)).into_iter().for_each(Due::fire);
        assert_eq!(*fired.lock(), [10, 21, 30]);
        assert!(wheel.len() == 0 && wheel.entries.lock().owners.is_empty());
    }
}
