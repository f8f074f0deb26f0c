//! The timers of a silo by the activation that they belong to.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use emmer_core::Instant;
use parking_lot::Mutex;

use super::stays::Stays;
use crate::cluster::moves::TimerMemory;

/// The numbers of an activation and of a timer.
type Owned = (u64, u64);

/// Timer that ends with its activation.
pub(crate) trait Timed: Send + Sync {
    /// Ends the timer.
    fn stop(&self);

    /// Returns true if its activation stays in memory while it runs.
    fn keeps(&self) -> bool;

    /// The timer as it moves with its grain; none if it is over.
    ///
    /// # Errors
    /// The grain cannot move with it now.
    fn pack(&self, now: Instant) -> Result<Option<TimerMemory>, Stays>;
}

#[derive(Default)]
struct All {
    by_owner: BTreeMap<Owned, Weak<dyn Timed>>,
    last: u64,
}

/// Every live timer of a silo. The wheel holds those that wait, their turns the others.
#[derive(Default)]
pub(crate) struct Timers {
    all: Mutex<All>,
    /// Timers of grains whose arrival runs, by activation, until they are started again.
    arriving: Mutex<BTreeMap<u64, Vec<TimerMemory>>>,
}

impl Timers {
    /// Makes a timer of the activation `owner`, which keeps its entry.
    pub(crate) fn add<T: Timed + 'static>(
        self: &Arc<Self>,
        owner: u64,
        make: impl FnOnce(Entry) -> T,
    ) -> Arc<T> {
        let mut all = self.all.lock();
        all.last += 1;
        let owned = (owner, all.last);
        let made = Arc::new(make(Entry { timers: self.clone(), owned }));
        let timer: Weak<dyn Timed> = Arc::<T>::downgrade(&made);
        all.by_owner.insert(owned, timer);
        made
    }

    /// Ends every timer of this activation.
    pub(crate) fn end(&self, owner: u64) {
        self.of(owner).iter().for_each(|timer| timer.stop());
    }

    /// Returns true if a timer keeps this activation in memory.
    pub(crate) fn keep(&self, owner: u64) -> bool {
        self.of(owner).iter().any(|timer| timer.keeps())
    }

    /// The timers of this activation, as they move with its grain.
    ///
    /// # Errors
    /// The grain cannot move with one of them now.
    pub(super) fn pack(&self, owner: u64, now: Instant) -> Result<Vec<TimerMemory>, Stays> {
        let packed = self.of(owner).into_iter().map(|timer| timer.pack(now).transpose());
        packed.flatten().collect()
    }

    /// The hook of an arrival is about to start these timers again.
    pub(super) fn expect(&self, owner: u64, timers: Vec<TimerMemory>) {
        self.arriving.lock().insert(owner, timers);
    }

    /// The hook of an arrival starts a timer of this method: the first one that is expected, and
    /// none if it was over on the other silo. Outside of an arrival every timer starts.
    pub(crate) fn take_expected(&self, owner: u64, method: &str) -> Expected {
        let mut arriving = self.arriving.lock();
        let Some(timers) = arriving.get_mut(&owner) else { return Expected::Anything };
        match timers.iter().position(|timer| timer.method == method) {
            Some(at) => Expected::Timer(timers.remove(at)),
            None => Expected::Nothing,
        }
    }

    /// The hook of an arrival is over. Returns the methods of the timers that it did not start.
    pub(super) fn arrived(&self, owner: u64) -> Vec<String> {
        let left = self.arriving.lock().remove(&owner).unwrap_or_default();
        left.into_iter().map(|timer| timer.method).collect()
    }

    /// The number of timers of this activation.
    pub(super) fn count(&self, owner: u64) -> usize {
        self.of(owner).len()
    }

    /// The number of timers.
    pub(crate) fn len(&self) -> usize {
        self.all.lock().by_owner.len()
    }

    fn of(&self, owner: u64) -> Vec<Arc<dyn Timed>> {
        // Dropped by the caller: an entry that goes takes the lock.
        let all = self.all.lock();
        let range = all.by_owner.range((owner, 0)..=(owner, u64::MAX));
        range.filter_map(|(_, timer)| timer.upgrade()).collect()
    }
}

/// A timer that the hook of an activation starts.
pub(crate) enum Expected {
    /// The activation is no arrival.
    Anything,
    /// The timer ran on the other silo.
    Timer(TimerMemory),
    /// The timer was over on the other silo.
    Nothing,
}

/// The entry of a timer, taken out when it is dropped.
pub(crate) struct Entry {
    timers: Arc<Timers>,
    owned: Owned,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.timers.all.lock().by_owner.remove(&self.owned);
    }
}
