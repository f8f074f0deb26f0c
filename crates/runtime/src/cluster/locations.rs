//! Last known locations of grains. Only hints: a silo that is asked wrongly passes the call on and
//! says where the grain really is. Its answer repairs the hint.

use std::sync::atomic::{AtomicU64, Ordering};

use emmer_core::limits::LOCATION_SHARDS as SHARDS;
use emmer_core::{GrainId, SiloAddress};
use emmer_net::numbers::NumberMap;
use parking_lot::RwLock;

/// Number of times that the way of calls to some grain has changed. While it stays as it is, a call
/// takes the way of the calls before it.
pub(crate) struct Changes(AtomicU64);

impl Changes {
    /// Never 0.
    #[inline]
    pub(crate) fn number(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn note(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

/// A bounded memory of locations.
pub(crate) struct Locations {
    shards: Box<[RwLock<NumberMap<GrainId, SiloAddress>>]>,
    max_per_shard: usize,
    changes: Changes,
}

impl Locations {
    /// Remembers up to `max` locations, [`SHARDS`] at least.
    pub(crate) fn new(max: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            max_per_shard: (max / SHARDS).max(1),
            changes: Changes(AtomicU64::new(1)),
        }
    }

    pub(crate) const fn changes(&self) -> &Changes {
        &self.changes
    }

    fn shard(&self, grain: &GrainId) -> &RwLock<NumberMap<GrainId, SiloAddress>> {
        &self.shards[usize::try_from(grain.stable_hash() >> 32).unwrap_or(0) % SHARDS]
    }

    pub(crate) fn get(&self, grain: &GrainId) -> Option<SiloAddress> {
        self.shard(grain).read().get(grain).copied()
    }

    /// Remembers where `grain` is; when there is no room, some other location is forgotten.
    pub(crate) fn set(&self, grain: &GrainId, silo: SiloAddress) {
        // A client whose gateways pass every call on hears the same again with every answer.
        if self.get(grain) != Some(silo) && self.insert(grain, silo).is_some() {
            self.changes.note();
        }
    }

    fn insert(&self, grain: &GrainId, silo: SiloAddress) -> Option<SiloAddress> {
        let mut shard = self.shard(grain).write();
        if shard.len() >= self.max_per_shard && !shard.contains_key(grain) {
            let some = shard.keys().next().cloned();
            if let Some(some) = some {
                shard.remove(&some);
            }
        }
        shard.insert(grain.clone(), silo)
    }

    /// Forgets that `grain` is on `silo`.
    pub(crate) fn forget(&self, grain: &GrainId, silo: SiloAddress) {
        let mut shard = self.shard(grain).write();
        if shard.get(grain) == Some(&silo) {
            shard.remove(grain);
            self.changes.note();
        }
    }

    /// Forgets where `grain` is.
    pub(crate) fn forget_grain(&self, grain: &GrainId) {
        if self.shard(grain).write().remove(grain).is_some() {
            self.changes.note();
        }
    }

    /// Forgets everything on silos that `gone` names.
    pub(crate) fn forget_silos(&self, gone: impl Fn(SiloAddress) -> bool) {
        for shard in &self.shards {
            shard.write().retain(|_, silo| !gone(*silo));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use emmer_core::GrainTypeId;

    #[test]
    fn is_bounded_and_forgets_only_what_it_is_told() {
        let locations = Locations::new(SHARDS * 4);
        let silo: SiloAddress = "10.0.0.1:1:1".parse().unwrap();
        let other: SiloAddress = "10.0.0.2:1:1".parse().unwrap();
        let grain = |i: u64| GrainId::new(GrainTypeId::of("t"), i);
        for i in 0..1000 {
            locations.set(&grain(i), silo);
        }
        assert!((0..1000).filter(|i| locations.get(&grain(*i)).is_some()).count() <= SHARDS * 4);
        locations.set(&grain(5), silo);
        locations.forget(&grain(5), other);
        assert_eq!(locations.get(&grain(5)), Some(silo));
        locations.forget_silos(|s| s == silo);
        assert_eq!(locations.get(&grain(5)), None);
    }
}
