//! The registrations this silo holds as owner: compact, one hash computation fewer than a plain
//! map.

use std::collections::BTreeMap;
use std::hash::{BuildHasherDefault, Hasher};

use emmer_core::{GrainId, SiloAddress};
use indexmap::IndexMap;

use crate::registration::Registration;

/// Spreads the grain's stable hash, which is already uniform, over the table: owned hashes share
/// their high bits, and the table looks at the high bits first.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StableHasher(u64);

impl Hasher for StableHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write(&mut self, bytes: &[u8]) {
        // Only `GrainId` keys these maps, and it writes one u64. Correct for others all the same.
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }
}

/// 16 bytes instead of the 48 of a registration: the silo is a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    silo: u32,
    activation: u64,
}

/// Grain to registration, for the ranges this silo owns.
#[derive(Clone, Debug, Default)]
pub(super) struct Entries {
    map: IndexMap<GrainId, Slot, BuildHasherDefault<StableHasher>>,
    silos: Vec<Option<SiloAddress>>,
    numbers: BTreeMap<SiloAddress, u32>,
}

impl Entries {
    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    pub(super) fn get(&self, grain: &GrainId) -> Option<Registration> {
        self.map.get(grain).and_then(|slot| self.expand(*slot))
    }

    fn expand(&self, slot: Slot) -> Option<Registration> {
        let silo = *self.silos.get(slot.silo as usize)?;
        silo.map(|silo| Registration { silo, activation: slot.activation })
    }

    /// Puts the registration there, whatever was there before.
    pub(super) fn insert(&mut self, grain: &GrainId, registration: Registration) {
        let silo = self.number(registration.silo);
        self.map.insert(grain.clone(), Slot { silo, activation: registration.activation });
    }

    pub(super) fn remove(&mut self, grain: &GrainId) {
        self.map.swap_remove(grain);
    }

    fn number(&mut self, silo: SiloAddress) -> u32 {
        if let Some(number) = self.numbers.get(&silo) {
            return *number;
        }
        let free = self.silos.iter().position(Option::is_none).unwrap_or(self.silos.len());
        if free == self.silos.len() {
            self.silos.push(None);
        }
        self.silos[free] = Some(silo);
        let number = u32::try_from(free).unwrap_or(u32::MAX);
        self.numbers.insert(silo, number);
        number
    }

    /// Keeps what lies where `keep_hash` says and belongs to a silo that `keep_silo` says; forgets
    /// other silos.
    pub(super) fn retain(
        &mut self,
        keep_hash: impl Fn(u64) -> bool,
        keep_silo: impl Fn(&SiloAddress) -> bool,
    ) {
        for slot in &mut self.silos {
            if let Some(silo) = slot.filter(|silo| !keep_silo(silo)) {
                self.numbers.remove(&silo);
                *slot = None;
            }
        }
        let silos = &self.silos;
        self.map.retain(|grain, slot| {
            silos.get(slot.silo as usize).is_some_and(Option::is_some)
                && keep_hash(grain.stable_hash())
        });
        // A directory that shrank to a quarter gives memory back.
        if self.map.capacity() / 4 > self.map.len() + 1024 {
            self.map.shrink_to(self.map.len() * 2);
        }
    }

    /// Takes out what lies where `lost` says.
    pub(super) fn take(&mut self, lost: impl Fn(u64) -> bool) -> Vec<(GrainId, Registration)> {
        let mut taken = Vec::new();
        let silos = &self.silos;
        self.map.retain(|grain, slot| {
            let goes = lost(grain.stable_hash());
            if let Some(silo) = silos.get(slot.silo as usize).copied().flatten().filter(|_| goes) {
                taken.push((grain.clone(), Registration { silo, activation: slot.activation }));
            }
            !goes
        });
        taken
    }

    /// Returns true if any entry may belong to a silo that `keep_silo` refuses.
    pub(super) fn names_silo_not(&self, keep_silo: impl Fn(&SiloAddress) -> bool) -> bool {
        self.silos.iter().flatten().any(|silo| !keep_silo(silo))
    }

    /// Every entry, in no particular but a repeatable order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&GrainId, Registration)> + '_ {
        self.map.iter().filter_map(|(grain, slot)| Some((grain, self.expand(*slot)?)))
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use emmer_core::GrainTypeId;

    use super::*;

    fn grain(n: u64) -> GrainId {
        GrainId::new(GrainTypeId::of("t"), n)
    }

    fn silo(n: u16) -> SiloAddress {
        format!("10.0.0.1:{n}:1").parse().unwrap()
    }

    fn at(n: u16, activation: u64) -> Registration {
        Registration { silo: silo(n), activation }
    }

    #[test]
    fn numbers_of_forgotten_silos_are_used_again_without_reviving_entries() {
        let mut entries = Entries::default();
        entries.insert(&grain(1), at(1, 10));
        entries.insert(&grain(2), at(2, 20));
        assert!(entries.names_silo_not(|s| *s == silo(2)));
        entries.retain(|_| true, |s| *s == silo(2));
        assert_eq!((entries.get(&grain(1)), entries.len()), (None, 1));
        entries.insert(&grain(3), at(3, 30));
        assert_eq!(entries.silos.len(), 2);
        assert_eq!(
            (entries.get(&grain(2)), entries.get(&grain(3))),
            (Some(at(2, 20)), Some(at(3, 30)))
        );
        assert!(!entries.names_silo_not(|s| *s != silo(1)));
    }

    #[test]
    fn retains_by_place_on_the_ring() {
        let mut entries = Entries::default();
        for n in 0..100 {
            entries.insert(&grain(n), at(1, n));
        }
        let half = |hash: u64| hash < u64::MAX / 2;
        entries.retain(half, |_| true);
        for n in 0..100 {
            assert_eq!(entries.get(&grain(n)).is_some(), half(grain(n).stable_hash()));
        }
        assert_eq!(entries.iter().count(), entries.len());
    }

    #[test]
    fn an_entry_stays_small() {
        assert!(size_of::<Slot>() == 16 && size_of::<GrainId>() <= 40);
    }
}
