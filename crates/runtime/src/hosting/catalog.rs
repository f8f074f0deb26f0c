//! Every activation on this silo, by grain id.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use emmer_core::GrainId;
use emmer_core::ring::RingRange;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use parking_lot::Mutex;

use super::RunActivation;
use crate::cluster::directory::Activations;
use crate::grain::DeactivationReason;

/// Locks the map is divided over, so that calls on different cores seldom meet.
const SHARDS: usize = 1 << SHARD_BITS;
const SHARD_BITS: u32 = 6;

/// How long an activation counts as busy after a call (placement by the number of activations).
pub(super) const BUSY_FOR: Duration = Duration::from_secs(600);

/// Activations by the stable hash of their grain. They know their grain themselves: a map with keys
/// of its own would take 80 bytes more for each.
type Shard = Mutex<HashTable<Arc<dyn RunActivation>>>;

/// Which shard has the grains of this place on the ring: those of one range of the ring lie in few
/// shards.
fn shard_of(place: u64) -> usize {
    usize::try_from(place >> (u64::BITS - SHARD_BITS)).unwrap_or(0)
}

/// Whether a shard may have grains of `range`.
fn touches(range: &RingRange, shard: usize) -> bool {
    let first = (shard as u64) << (u64::BITS - SHARD_BITS);
    let last = first | (u64::MAX >> SHARD_BITS);
    range.contains(first) || range.contains(last) || (first..=last).contains(&range.through)
}

/// The hash within a shard. The map uses the low and the top bits; the topmost are the same for the
/// whole shard.
const fn hash_of_grain(id: &GrainId) -> u64 {
    id.stable_hash().rotate_left(SHARD_BITS)
}

fn hash_of(activation: &Arc<dyn RunActivation>) -> u64 {
    hash_of_grain(activation.id())
}

/// The activations of one silo.
pub(crate) struct Catalog {
    shards: Box<[Shard]>,
    next_number: AtomicU64,
    count: AtomicUsize,
    /// How many of them were not called for [`BUSY_FOR`], when they were last looked at.
    rested: AtomicUsize,
    /// Nothing is made any more. Read under the lock of a shard: whoever walks the shards after the
    /// change sees all that was made before it, and nothing is made behind them.
    closed: AtomicBool,
}

/// Why no activation is made.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotMade {
    /// The silo holds as many activations as it may.
    Full,
    /// The silo leaves.
    Closed,
}

impl Catalog {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            next_number: AtomicU64::new(1),
            count: AtomicUsize::new(0),
            rested: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        }
    }

    fn shard(&self, id: &GrainId) -> &Shard {
        &self.shards[shard_of(id.stable_hash())]
    }

    /// The activation of `id` on this silo, if there is one.
    pub(crate) fn get(&self, id: &GrainId) -> Option<Arc<dyn RunActivation>> {
        self.shard(id).lock().find(hash_of_grain(id), |found| found.id() == id).cloned()
    }

    /// The activation of `id`; when there is none, and fewer than `max` in all, the one that `make`
    /// makes of a number.
    pub(super) fn get_or_create(
        &self,
        id: &GrainId,
        max: usize,
        make: impl FnOnce(u64) -> Arc<dyn RunActivation>,
    ) -> Result<Arc<dyn RunActivation>, NotMade> {
        match self.shard(id).lock().entry(hash_of_grain(id), |found| found.id() == id, hash_of) {
            Entry::Occupied(found) => Ok(found.get().clone()),
            Entry::Vacant(slot) => {
                if self.is_closed() {
                    return Err(NotMade::Closed);
                }
                if self.count.load(Ordering::Relaxed) >= max {
                    return Err(NotMade::Full);
                }
                self.count.fetch_add(1, Ordering::Relaxed);
                let number = self.next_number.fetch_add(1, Ordering::Relaxed);
                let created = make(number);
                slot.insert(created.clone());
                Ok(created)
            }
        }
    }

    /// From now on no activation is made.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Whether the catalog was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Takes out exactly the activation `number` of `id`; a later one stays.
    pub(crate) fn remove(&self, id: &GrainId, number: u64) {
        let mut shard = self.shard(id).lock();
        let this = |found: &Arc<dyn RunActivation>| found.number() == number && found.id() == id;
        if let Ok(entry) = shard.find_entry(hash_of_grain(id), this) {
            let gone = entry.remove().0;
            self.count.fetch_sub(1, Ordering::Relaxed);
            // The last reference may run the grain's own drop code: after the lock, not under it.
            drop(shard);
            drop(gone);
        }
    }

    /// Lets every activation go, without its hook.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let gone = std::mem::take(&mut *shard.lock());
            self.count.fetch_sub(gone.len(), Ordering::Relaxed);
        }
    }

    /// How many activations there are.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// How many of them are busy: called within [`BUSY_FOR`], or not looked at since.
    pub(crate) fn busy(&self) -> usize {
        self.len().saturating_sub(self.rested.load(Ordering::Relaxed))
    }

    /// How many activations were not called for [`BUSY_FOR`].
    pub(super) fn note_rested(&self, rested: usize) {
        self.rested.store(rested, Ordering::Relaxed);
    }

    /// Every activation of one shard; walk `0..shard_count()` to see all without stopping all calls
    /// at once.
    pub(crate) fn shard_activations(&self, at: usize) -> Vec<Arc<dyn RunActivation>> {
        self.shards[at].lock().iter().cloned().collect()
    }

    /// How many shards there are.
    pub(crate) const fn shard_count() -> usize {
        SHARDS
    }

    /// The activation `number` of `id`, if it is still there.
    fn get_number(&self, id: &GrainId, number: u64) -> Option<Arc<dyn RunActivation>> {
        self.get(id).filter(|found| found.number() == number)
    }
}

impl Activations for Catalog {
    /// Looks only at the shards that a range touches: in a large cluster that is a small part of
    /// them.
    fn registered_in(&self, ranges: &[RingRange]) -> Vec<(GrainId, u64)> {
        let touched = (0..SHARDS).filter(|shard| ranges.iter().any(|range| touches(range, *shard)));
        let mut found: Vec<_> = touched
            .filter_map(|shard| self.shards.get(shard))
            .flat_map(|shard| {
                let shard = shard.lock();
                shard
                    .iter()
                    .filter(|a| a.is_registered())
                    .filter(|a| ranges.iter().any(|r| r.contains(a.id().stable_hash())))
                    .map(|a| (a.id().clone(), a.number()))
                    .collect::<Vec<_>>()
            })
            .collect();
        found.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        found
    }

    fn note_registered(&self, grain: &GrainId, number: u64) {
        if let Some(found) = self.get_number(grain, number) {
            found.set_registered(true);
        }
    }

    fn evict(&self, grain: &GrainId, number: u64) {
        if let Some(found) = self.get_number(grain, number) {
            tracing::warn!(%grain, "another activation of the grain exists: this one goes");
            found.set_registered(false);
            found.as_any().deactivate(DeactivationReason::Duplicate);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_looked_for_in_the_shards_that_may_have_it() {
        let shard = |n: u64| n << (u64::BITS - SHARD_BITS);
        let touched = |after, through| {
            let range = RingRange { after, through };
            (0..SHARDS).filter(|s| touches(&range, *s)).collect::<Vec<_>>()
        };
        assert_eq!(touched(shard(3) + 5, shard(3) + 9), [3]);
        assert_eq!(touched(shard(3) + 5, shard(5)), [3, 4, 5]);
        assert_eq!(touched(shard(63) + 5, 7), [0, 63]);
        assert_eq!(touched(0, 0).len(), SHARDS);
        for (after, through) in [(shard(9) - 1, shard(9)), (u64::MAX, 0), (shard(62), shard(1) + 1)]
        {
            let range = RingRange { after, through };
            let around = [after, after.wrapping_add(1), through.wrapping_sub(1), through];
            for place in around.into_iter().filter(|place| range.contains(*place)) {
                assert!(touches(&range, shard_of(place)), "{range:?} {place:x}");
            }
        }
    }
}
