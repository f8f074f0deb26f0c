//! The timers of a silo by the activation that they belong to.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// The numbers of an activation and of a timer.
type Owned = (u64, u64);

/// Timer that ends with its activation.
pub(crate) trait Timed: Send + Sync {
    /// Ends the timer.
    fn stop(&self);

    /// Returns true if its activation stays in memory while it runs.
    fn keeps(&self) -> bool;
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
