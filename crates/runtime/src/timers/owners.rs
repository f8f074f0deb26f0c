//! The timers of a silo by the activation that they belong to.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::timer::Ticking;

/// The numbers of an activation and of a timer.
type Owned = (u64, u64);

#[derive(Default)]
struct All {
    by_owner: BTreeMap<Owned, Weak<Ticking>>,
    last: u64,
}

/// Every timer of a silo that is not over. The wheel holds those that wait, their turns the others.
#[derive(Default)]
pub(crate) struct Timers {
    all: Mutex<All>,
}

impl Timers {
    /// Makes a timer of the activation `owner`, which keeps its entry.
    pub(super) fn add(
        self: &Arc<Self>,
        owner: u64,
        make: impl FnOnce(Entry) -> Ticking,
    ) -> Arc<Ticking> {
        let mut all = self.all.lock();
        all.last += 1;
        let owned = (owner, all.last);
        let made = Arc::new(make(Entry { timers: self.clone(), owned }));
        all.by_owner.insert(owned, Arc::downgrade(&made));
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

    fn of(&self, owner: u64) -> Vec<Arc<Ticking>> {
        // Dropped by the caller: an entry that goes takes the lock.
        let all = self.all.lock();
        let range = all.by_owner.range((owner, 0)..=(owner, u64::MAX));
        range.filter_map(|(_, timer)| timer.upgrade()).collect()
    }
}

/// The entry of a timer, taken out when it is dropped.
pub(super) struct Entry {
    timers: Arc<Timers>,
    owned: Owned,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.timers.all.lock().by_owner.remove(&self.owned);
    }
}
