//! Every activation on this silo, by grain id.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use emmer_core::GrainId;
use emmer_core::ring::RingRange;
use emmer_net::warn_seldom;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use parking_lot::Mutex;

use super::activation::{Activation, Held, Seat};
use super::workers::{self, Place, Places, Worker, Workers};
use crate::cluster::directory::Activations;
use crate::turn::DeactivationReason;

/// Locks the map is divided over, so that calls on different cores seldom meet.
const SHARDS: usize = 1 << SHARD_BITS;
const SHARD_BITS: u32 = 6;

/// Time for which an activation counts as busy after a call (placement by the number of
/// activations).
pub(super) const BUSY_FOR: Duration = Duration::from_secs(600);

/// Activations by the stable hash of their grain. They know their grain themselves: separate keys
/// would take 80 bytes more for each.
type Grains = HashTable<Arc<Activation>>;

/// The thing that is handed to the call which has waited longest for a worker.
pub(crate) type Given = workers::Given<Arc<Seat>>;

/// Answer to a call that may wait for a worker.
pub(crate) type Queued = workers::Queued<Arc<Seat>>;

impl Worker for Arc<Activation> {
    fn id(&self) -> &GrainId {
        &self.id
    }

    fn number(&self) -> u64 {
        self.number
    }

    fn is_free(&self) -> bool {
        self.gate.is_free()
    }
}

/// The activations of one part of the ring.
#[derive(Default)]
struct Shard {
    /// Of grains that have one activation in the cluster.
    grains: Grains,
    workers: Workers<Arc<Activation>, Arc<Seat>>,
}

/// Shard of the grains at this place on the ring. Grains of one range of the ring lie in few
/// shards.
fn shard_of(place: u64) -> usize {
    usize::try_from(place >> (u64::BITS - SHARD_BITS)).unwrap_or(0)
}

/// Returns true if a shard may have grains of `range`.
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

fn hash_of(activation: &Arc<Activation>) -> u64 {
    hash_of_grain(activation.id())
}

impl Shard {
    /// Every activation of the shard.
    fn iter(&self) -> impl Iterator<Item = &Arc<Activation>> {
        self.grains.iter().chain(self.workers.iter())
    }
}

/// The activations of one silo.
pub(crate) struct Catalog {
    shards: Box<[Mutex<Shard>]>,
    next_number: AtomicU64,
    count: AtomicUsize,
    /// Number of activations that were not called for [`BUSY_FOR`], at the last check.
    rested: AtomicUsize,
    /// True when no further activations are made. It is read under the lock of a shard: a task that
    /// walks the shards after the change sees all activations.
    closed: AtomicBool,
}

/// Why no activation is made.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotMade {
    /// The silo has reached its limit of activations.
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

    fn shard(&self, id: &GrainId) -> &Mutex<Shard> {
        &self.shards[shard_of(id.stable_hash())]
    }

    /// The activation of `id` on this silo that takes a call, if there is one. Of a stateless
    /// worker, one that is free.
    pub(crate) fn get(self: &Arc<Self>, id: &GrainId) -> Option<Held> {
        let mut shard = self.shard(id).lock();
        let found = shard.grains.find(hash_of_grain(id), |found| found.id() == id).cloned();
        found
            .map(Held::from)
            .or_else(|| shard.workers.take(id, |worker| Seat::new(worker, self)).map(Held::from))
    }

    /// The activation of `id`. When there is none, and fewer than `max` in all, `make` makes one of
    /// a number.
    pub(super) fn get_or_create(
        &self,
        id: &GrainId,
        max: usize,
        make: impl FnOnce(u64) -> Arc<Activation>,
    ) -> Result<Held, NotMade> {
        let grains = &mut self.shard(id).lock().grains;
        match grains.entry(hash_of_grain(id), |found| found.id() == id, hash_of) {
            Entry::Occupied(found) => Ok(found.get().clone().into()),
            Entry::Vacant(slot) => {
                let created = make(self.next(max)?);
                slot.insert(created.clone());
                Ok(created.into())
            }
        }
    }

    /// A new activation of `id`, which `make` makes of a number. None when there is one.
    ///
    /// # Errors
    /// Why none can be made.
    pub(super) fn insert(
        &self,
        id: &GrainId,
        max: usize,
        make: impl FnOnce(u64) -> Arc<Activation>,
    ) -> Result<Option<Arc<Activation>>, NotMade> {
        let grains = &mut self.shard(id).lock().grains;
        match grains.entry(hash_of_grain(id), |found| found.id() == id, hash_of) {
            Entry::Occupied(_) => Ok(None),
            Entry::Vacant(slot) => {
                let created = make(self.next(max)?);
                slot.insert(created.clone());
                Ok(Some(created))
            }
        }
    }

    /// A free worker of the stateless worker `id`, or a new one that `make` makes of a number. A
    /// new one is made up to `workers_max`, or in the `place` that the call was given, up to `max`
    /// activations in all. None when the call has to wait for a worker.
    pub(super) fn get_or_create_worker(
        self: &Arc<Self>,
        id: &GrainId,
        max: usize,
        workers_max: usize,
        place: Option<&mut Place>,
        make: impl FnOnce(u64) -> Arc<Activation>,
    ) -> Result<Option<Held>, NotMade> {
        let workers = &mut self.shard(id).lock().workers;
        if place.is_none() {
            if let Some(free) = workers.take(id, |worker| Seat::new(worker, self)) {
                return Ok(Some(free.into()));
            }
            if workers.is_full(id) {
                return Ok(None);
            }
        }
        match self.next(max) {
            Ok(number) => {
                let created = make(number);
                workers.add(created.clone(), workers_max, place);
                Ok(Some(Seat::new(created, self).into()))
            }
            Err(NotMade::Full) if workers.has_some(id) => {
                if let Some(place) = place {
                    // No other call could use it now.
                    place.end();
                    workers.leave_place(self, id, false);
                }
                Ok(None)
            }
            Err(why) => Err(why),
        }
    }

    /// A call waits for a worker of `id`, behind fewer than `waiting_max` others.
    pub(crate) fn queue_for_worker(self: &Arc<Self>, id: &GrainId, waiting_max: usize) -> Queued {
        let workers = &mut self.shard(id).lock().workers;
        workers.queue(id, waiting_max, |worker| Seat::new(worker, self))
    }

    /// A call has left its worker.
    pub(super) fn hand_over(self: &Arc<Self>, worker: &Arc<Activation>) {
        let workers = &mut self.shard(worker.id()).lock().workers;
        if let Some(unused) = workers.hand_over(worker, |worker| Seat::new(worker, self)) {
            unused.end();
        }
    }

    /// The number of one more activation, which counts from now on. Called under the lock of the
    /// shard that it comes to.
    fn next(&self, max: usize) -> Result<u64, NotMade> {
        if self.is_closed() {
            return Err(NotMade::Closed);
        }
        if self.count.load(Ordering::Relaxed) >= max {
            return Err(NotMade::Full);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(self.next_number.fetch_add(1, Ordering::Relaxed))
    }

    /// From now on no activation is made.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Returns true if the catalog was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Takes out exactly the activation `number` of `id`; a later one stays.
    pub(crate) fn remove(self: &Arc<Self>, id: &GrainId, number: u64) {
        let mut shard = self.shard(id).lock();
        let this = |found: &Arc<Activation>| found.number() == number && found.id() == id;
        let grain = shard.grains.find_entry(hash_of_grain(id), this).ok();
        let gone = grain.map(|entry| entry.remove().0);
        if let Some(gone) = gone.or_else(|| shard.workers.remove(self, id, number)) {
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
            self.count.fetch_sub(gone.iter().count(), Ordering::Relaxed);
        }
    }

    /// Number of activations.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// The number of the next activation.
    pub(crate) fn next_number(&self) -> u64 {
        self.next_number.load(Ordering::Relaxed)
    }

    /// Number of busy activations: called within [`BUSY_FOR`], or not checked since.
    pub(crate) fn busy(&self) -> usize {
        self.len().saturating_sub(self.rested.load(Ordering::Relaxed))
    }

    /// Notes the number of activations that were not called for [`BUSY_FOR`].
    pub(super) fn note_rested(&self, rested: usize) {
        self.rested.store(rested, Ordering::Relaxed);
    }

    /// Number of calls that wait for each grain of one shard, where some do.
    pub(super) fn shard_waiting(&self, at: usize) -> Vec<(u32, GrainId)> {
        let shard = self.shards[at].lock();
        let grains = shard.grains.iter().map(|found| (found.waiting(), found.id()));
        let all = grains.chain(shard.workers.waiting());
        all.filter(|(waiting, _)| *waiting > 0).map(|(n, id)| (n, id.clone())).collect()
    }

    /// Every activation of one shard; walk `0..shard_count()` to see all without stopping all calls
    /// at once.
    pub(crate) fn shard_activations(&self, at: usize) -> Vec<Arc<Activation>> {
        self.shards[at].lock().iter().cloned().collect()
    }

    /// Looks at every activation of one shard, under its lock.
    pub(crate) fn look_at_shard(&self, at: usize, look: impl FnMut(&Arc<Activation>)) {
        self.shards[at].lock().iter().for_each(look);
    }

    /// The activations of `id`: one, or those of a stateless worker.
    pub(crate) fn of_grain(&self, id: &GrainId) -> Vec<Arc<Activation>> {
        let shard = self.shard(id).lock();
        shard.iter().filter(|found| found.id() == id).cloned().collect()
    }

    /// The shard in which grains after this place on the ring begin.
    pub(crate) fn first_shard_after(place: u64) -> usize {
        shard_of(place)
    }

    /// Number of shards.
    pub(crate) const fn shard_count() -> usize {
        SHARDS
    }

    /// The activation of `id` with this number in the directory, if it is still there.
    fn registered_as(&self, id: &GrainId, number: u64) -> Option<Arc<Activation>> {
        let shard = self.shard(id).lock();
        let found = shard.grains.find(hash_of_grain(id), |found| found.id() == id);
        found.filter(|found| found.registration() == number).cloned()
    }
}

impl Places for Catalog {
    fn give_back(self: Arc<Self>, id: &GrainId) {
        self.shard(id).lock().workers.leave_place(&self, id, true);
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
                    .grains
                    .iter()
                    .filter(|a| a.is_registered())
                    .filter(|a| ranges.iter().any(|r| r.contains(a.id().stable_hash())))
                    .map(|a| (a.id().clone(), a.registration()))
                    .collect::<Vec<_>>()
            })
            .collect();
        found.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        found
    }

    fn note_registered(&self, grain: &GrainId, number: u64) {
        if let Some(found) = self.registered_as(grain, number) {
            found.set_registered(true);
        }
    }

    fn evict(&self, grain: &GrainId, number: u64) {
        if let Some(found) = self.registered_as(grain, number) {
            warn_seldom!(%grain, "another activation of the grain exists: this one goes");
            found.set_registered(false);
            found.deactivate(DeactivationReason::Duplicate);
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
