//! Consistent hashing over silos: who owns a hash, who follows whom (seed 000, protocol step 2).

use serde::{Deserialize, Serialize};

use crate::SiloAddress;

/// A ring of silos. Each silo stands at one or more points; the owner of a hash is the silo at the first
/// point at or after it, wrapping around.
///
/// Built from a set of silos alone, so that every silo with the same view has the same ring.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ring {
    /// Sorted by hash, then address: ties resolve alike everywhere.
    points: Vec<(u64, SiloAddress)>,
}

impl Ring {
    /// The ring of `silos` with one point each, hashed under `seed`. Different seeds give rings in
    /// independent orders: the union of several is an expander graph.
    pub fn new(silos: impl IntoIterator<Item = SiloAddress>, seed: u64) -> Self {
        Self::with_points(silos, seed, 1)
    }

    /// The ring of `silos` with `points_per_silo` points each: more points, more even ranges.
    pub fn with_points(
        silos: impl IntoIterator<Item = SiloAddress>,
        seed: u64,
        points_per_silo: u32,
    ) -> Self {
        let mut points: Vec<_> = silos
            .into_iter()
            .flat_map(|silo| {
                (0..u64::from(points_per_silo.max(1))).map(move |i| {
                    (silo.stable_hash(seed.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15))), silo)
                })
            })
            .collect();
        points.sort_unstable();
        points.dedup();
        Self { points }
    }

    /// The silo that owns `hash`, or none on an empty ring.
    pub fn owner(&self, hash: u64) -> Option<SiloAddress> {
        let at = self.points.partition_point(|(point, _)| *point < hash);
        self.points.get(at).or_else(|| self.points.first()).map(|(_, silo)| *silo)
    }

    /// The ranges that `silo` owns, in ring order; empty when it is not on the ring.
    pub fn ranges_of(&self, silo: SiloAddress) -> Vec<RingRange> {
        let n = self.points.len();
        (0..n)
            .filter(|i| self.points[*i].1 == silo)
            .map(|i| RingRange { after: self.points[(i + n - 1) % n].0, through: self.points[i].0 })
            .collect()
    }

    /// The silos that follow `silo` on the ring, nearest first, `silo` itself left out, each once.
    pub fn successors(&self, silo: SiloAddress) -> impl Iterator<Item = SiloAddress> + '_ {
        let n = self.points.len();
        let start = self.points.iter().position(|(_, s)| *s == silo).unwrap_or(n);
        let steps = if start == n { 0 } else { n - 1 };
        let mut seen = Vec::new();
        (1..=steps).map(move |i| self.points[(start + i) % n].1).filter(move |s| {
            let fresh = *s != silo && !seen.contains(s);
            if fresh {
                seen.push(*s);
            }
            fresh
        })
    }

    /// Every point in ring order.
    pub fn points(&self) -> &[(u64, SiloAddress)] {
        &self.points
    }

    /// Whether no silo is on the ring.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }
}

/// A piece of the ring: hashes after `after` up to and including `through`, wrapping around.
/// Equal ends mean the whole ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RingRange {
    /// Exclusive beginning.
    #[serde(rename = "a")]
    pub after: u64,
    /// Inclusive end.
    #[serde(rename = "t")]
    pub through: u64,
}

impl RingRange {
    /// The whole ring.
    pub const FULL: Self = Self { after: 0, through: 0 };

    /// Whether `hash` lies in this piece.
    pub const fn contains(&self, hash: u64) -> bool {
        if self.after < self.through {
            self.after < hash && hash <= self.through
        } else {
            hash > self.after || hash <= self.through
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SeededRng;

    fn silos(n: u16) -> Vec<SiloAddress> {
        (0..n).map(|i| format!("10.0.0.1:{}:1", 1000 + i).parse().unwrap()).collect()
    }

    #[test]
    fn ranges_partition_the_ring() {
        let silos = silos(7);
        let ring = Ring::with_points(silos.iter().copied(), 5, 16);
        let mut rng = SeededRng::new(1);
        for _ in 0..2000 {
            let hash = rng.bits();
            let owners: Vec<_> =
                silos.iter().filter(|s| ring.ranges_of(**s).iter().any(|r| r.contains(hash))).collect();
            assert_eq!(owners, [&ring.owner(hash).unwrap()]);
        }
    }

    #[test]
    fn a_silo_alone_owns_everything_and_follows_nobody() {
        let alone = silos(1)[0];
        let ring = Ring::new([alone], 0);
        assert_eq!(ring.owner(0), Some(alone));
        assert!(ring.ranges_of(alone)[0].contains(u64::MAX));
        assert_eq!(ring.successors(alone).count(), 0);
        assert_eq!(Ring::default().owner(1), None);
    }

    #[test]
    fn successors_are_everybody_else_once_in_ring_order() {
        let silos = silos(5);
        let ring = Ring::with_points(silos.iter().copied(), 0, 3);
        let mut found: Vec<_> = ring.successors(silos[2]).collect();
        assert_eq!(found.len(), 4);
        found.sort();
        assert!(!found.contains(&silos[2]));
        assert_eq!(ring.successors("10.9.9.9:1:1".parse().unwrap()).count(), 0);
    }

    #[test]
    fn a_departure_moves_only_what_the_departed_owned() {
        let all = silos(10);
        let before = Ring::with_points(all.iter().copied(), 0, 8);
        let after = Ring::with_points(all[1..].iter().copied(), 0, 8);
        let mut rng = SeededRng::new(2);
        for _ in 0..1000 {
            let hash = rng.bits();
            if before.owner(hash) != Some(all[0]) {
                assert_eq!(before.owner(hash), after.owner(hash));
            }
        }
    }
}
