//! Every activation on this silo, by grain id.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use emmer_core::GrainId;
use emmer_core::ring::RingRange;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use parking_lot::Mutex;

use crate::activation::{AnyClass, RunActivation};
use crate::silo::SiloCore;

/// Locks the map is divided over, so that calls on different cores seldom meet.
const SHARDS: usize = 64;

/// Activations by the stable hash of their grain. They know their grain themselves: a map with keys of its own would take
/// 80 bytes more for each.
type Shard = Mutex<HashTable<Arc<dyn RunActivation>>>;

fn hash_of(activation: &Arc<dyn RunActivation>) -> u64 {
    activation.id().stable_hash()
}

/// The activations of one silo.
pub(crate) struct Catalog {
    shards: Box<[Shard]>,
    next_number: AtomicU64,
    count: AtomicUsize,
}

/// The silo holds as many activations as it may.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CatalogFull;

impl Catalog {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            next_number: AtomicU64::new(1),
            count: AtomicUsize::new(0),
        }
    }

    fn shard(&self, id: &GrainId) -> &Shard {
        // The map inside uses the low and the top bits of the hash; the shard takes others.
        let at = usize::try_from(id.stable_hash() >> 24).unwrap_or(0) % SHARDS;
        &self.shards[at]
    }

    /// The activation of `id` on this silo, if there is one.
    pub(crate) fn get(&self, id: &GrainId) -> Option<Arc<dyn RunActivation>> {
        self.shard(id).lock().find(id.stable_hash(), |found| found.id() == id).cloned()
    }

    /// The activation of `id`, made (not yet activated) when there is none.
    pub(crate) fn get_or_create(
        &self,
        silo: &Arc<SiloCore>,
        class: &Arc<dyn AnyClass>,
        id: &GrainId,
    ) -> Result<Arc<dyn RunActivation>, CatalogFull> {
        match self.shard(id).lock().entry(id.stable_hash(), |found| found.id() == id, hash_of) {
            Entry::Occupied(found) => Ok(found.get().clone()),
            Entry::Vacant(slot) => {
                if self.count.load(Ordering::Relaxed) >= silo.options.limits.activations_max {
                    return Err(CatalogFull);
                }
                self.count.fetch_add(1, Ordering::Relaxed);
                let number = self.next_number.fetch_add(1, Ordering::Relaxed);
                let created = class.clone().create(silo.clone(), id.clone(), number);
                slot.insert(created.clone());
                Ok(created)
            }
        }
    }

    /// Takes out exactly the activation `number` of `id`; a later one stays.
    pub(crate) fn remove(&self, id: &GrainId, number: u64) {
        let mut shard = self.shard(id).lock();
        let this = |found: &Arc<dyn RunActivation>| found.number() == number && found.id() == id;
        if let Ok(entry) = shard.find_entry(id.stable_hash(), this) {
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

    /// Every activation of one shard; walk `0..shard_count()` to see all without stopping all calls at once.
    pub(crate) fn shard_activations(&self, at: usize) -> Vec<Arc<dyn RunActivation>> {
        self.shards[at].lock().iter().cloned().collect()
    }

    /// How many shards there are.
    pub(crate) const fn shard_count() -> usize {
        SHARDS
    }

    /// The registered activations whose grains lie in `ranges`.
    pub(crate) fn registered_in(&self, ranges: &[RingRange]) -> Vec<(GrainId, u64)> {
        let mut found: Vec<_> = self
            .shards
            .iter()
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
}
