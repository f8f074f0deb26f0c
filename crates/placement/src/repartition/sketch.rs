//! The calls between grains, as samples count them, within a bound.

use std::collections::BTreeMap;

use emmer_core::{GrainId, GrainKey, SiloAddress};

/// Pairs of grains that are counted at once.
pub(super) const PAIRS_MAX: usize = 8_192;

/// Bytes of a grain's key; grains with longer keys are not counted.
const KEY_BYTES_MAX: usize = 128;

/// Calls between two grains, one of them or both on this silo.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    /// A grain of this silo.
    pub(super) own: GrainId,
    pub(super) other: GrainId,
    /// The silo of the other one.
    pub(super) at: SiloAddress,
    /// The number of calls, about.
    pub(super) calls: u64,
}

/// The heaviest pairs. When there is no room for another, all counts are halved, and pairs that
/// are left with nothing are forgotten: so heavy pairs stay.
#[derive(Debug, Default)]
pub(super) struct Sketch {
    /// The pairs by the stable hashes of both grains.
    pairs: BTreeMap<(u64, u64), Pair>,
}

impl Sketch {
    /// Counts `calls` more between a grain of this silo and another grain.
    pub(super) fn add(&mut self, own: &GrainId, other: &GrainId, at: SiloAddress, calls: u64) {
        let fits = |grain: &GrainId| match grain.key() {
            GrainKey::Text(text) => text.len() <= KEY_BYTES_MAX,
            _ => true,
        };
        if own.stable_hash() == other.stable_hash() || !fits(own) || !fits(other) {
            return;
        }
        let key = (own.stable_hash(), other.stable_hash());
        if let Some(pair) = self.pairs.get_mut(&key) {
            (pair.at, pair.calls) = (at, pair.calls.saturating_add(calls));
            return;
        }
        while self.pairs.len() >= PAIRS_MAX {
            self.fade();
        }
        self.pairs.insert(key, Pair { own: own.clone(), other: other.clone(), at, calls });
    }

    /// Halves all counts.
    pub(super) fn fade(&mut self) {
        self.pairs.retain(|_, pair| {
            pair.calls /= 2;
            pair.calls > 0
        });
    }

    /// Grains of this silo, or ones that come to it, are on other silos now: `places` by stable
    /// hash.
    pub(super) fn moved(&mut self, me: SiloAddress, places: &BTreeMap<u64, SiloAddress>) {
        let mut turned = Vec::new();
        self.pairs.retain(|_, pair| {
            let was_here = pair.at == me;
            if let Some(at) = places.get(&pair.other.stable_hash()) {
                pair.at = *at;
            }
            let Some(at) = places.get(&pair.own.stable_hash()).filter(|at| **at != me) else {
                return true;
            };
            // The other one still knows with whom it talks.
            if was_here && pair.at == me {
                turned.push((pair.other.clone(), pair.own.clone(), *at, pair.calls));
            }
            false
        });
        for (own, other, at, calls) in turned {
            self.add(&own, &other, at, calls);
        }
    }

    pub(super) fn pairs(&self) -> impl Iterator<Item = &Pair> {
        self.pairs.values()
    }
}

#[cfg(test)]
mod tests {
    use emmer_core::GrainTypeId;

    use super::*;

    fn grain(n: u64) -> GrainId {
        GrainId::new(GrainTypeId::of("g"), n)
    }

    fn silo(n: u8) -> SiloAddress {
        format!("10.0.0.{n}:1:1").parse().unwrap()
    }

    #[test]
    fn heavy_pairs_stay_within_the_bound() {
        let mut sketch = Sketch::default();
        for n in 0..200_000u64 {
            sketch.add(&grain(0), &grain(1), silo(2), 1);
            sketch.add(&grain(2), &grain(10 + n), silo(2), 1);
            assert!(sketch.pairs.len() <= PAIRS_MAX);
        }
        let heaviest = sketch.pairs().max_by_key(|pair| pair.calls).unwrap();
        assert_eq!((&heaviest.own, &heaviest.other), (&grain(0), &grain(1)));
        assert!(heaviest.calls > 4_000, "{}", heaviest.calls);
        (0..64).for_each(|_| sketch.fade());
        assert_eq!(sketch.pairs().count(), 0);
    }

    #[test]
    fn a_grain_that_moved_is_known_at_its_new_place() {
        let mut sketch = Sketch::default();
        sketch.add(&grain(1), &grain(2), silo(1), 5);
        sketch.add(&grain(1), &grain(3), silo(2), 5);
        sketch.add(&grain(2), &grain(1), silo(1), 7);
        sketch.add(&grain(1), &grain(1), silo(1), 7);
        sketch.add(&grain(1), &GrainId::new(GrainTypeId::of("g"), "k".repeat(129)), silo(1), 7);
        assert_eq!(sketch.pairs().count(), 3, "a call to oneself and a long key count nothing");
        sketch.moved(silo(1), &[(grain(1).stable_hash(), silo(2))].into());
        let pairs: Vec<_> = sketch.pairs().map(|p| (p.own.clone(), p.at, p.calls)).collect();
        assert_eq!(pairs, [(grain(2), silo(2), 12)]);
        sketch.moved(silo(1), &[(grain(1).stable_hash(), silo(1))].into());
        assert_eq!(sketch.pairs().next().unwrap().at, silo(1), "it has come back");
    }
}
