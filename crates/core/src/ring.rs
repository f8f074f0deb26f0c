//! Consistent hashing over silos: who owns a hash, who follows whom (membership description, step
//! 2).

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::SiloAddress;

/// A ring of silos. Each silo stands at one or more points; the owner of a hash is the silo at the
/// first point at or after it, wrapping around.
///
/// Made from a set of silos alone, so that every silo with the same view has the same ring: a ring
/// that [changed](Self::change) equals a new one.
#[derive(Clone, Debug, Default)]
pub struct Ring {
    seed: u64,
    points_per_silo: u32,
    /// Sorted by hash, then address: ties resolve alike everywhere. The silo is a number, so that a
    /// change of the ring moves little memory.
    points: Vec<(u64, u32)>,
    /// The silos by their numbers; none where a number is free.
    silos: Vec<Option<SiloAddress>>,
    numbers: BTreeMap<SiloAddress, u32>,
    free: Vec<u32>,
}

impl PartialEq for Ring {
    fn eq(&self, other: &Self) -> bool {
        self.points().eq(other.points())
    }
}

impl Eq for Ring {}

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
        let mut ring = Self { seed, points_per_silo: points_per_silo.max(1), ..Self::default() };
        let silos: Vec<_> = silos.into_iter().collect();
        ring.change(&[], &silos);
        ring
    }

    /// Takes silos off the ring and puts others on it. The cost is the number of their points, and
    /// the moves of the points in between.
    pub fn change(&mut self, leave: &[SiloAddress], join: &[SiloAddress]) {
        let mut gone: Vec<usize> = leave.iter().flat_map(|silo| self.places(*silo)).collect();
        gone.sort_unstable();
        gone.dedup();
        self.cut(&gone);
        for silo in leave {
            if let Some(number) = self.numbers.remove(silo) {
                self.silos[number as usize] = None;
                self.free.push(number);
            }
        }
        let mut new = Vec::with_capacity(join.len() * self.points_per_silo as usize);
        for silo in join {
            if let Some(number) = self.number(*silo) {
                new.extend(self.hashes(*silo).map(|hash| (hash, number)));
            }
        }
        self.sort(&mut new);
        self.merge(&new);
    }

    /// Gives the silo a number; None when it has one already.
    fn number(&mut self, silo: SiloAddress) -> Option<u32> {
        if self.numbers.contains_key(&silo) {
            return None;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.silos.push(None);
            u32::try_from(self.silos.len() - 1).unwrap_or(u32::MAX)
        });
        self.silos[number as usize] = Some(silo);
        self.numbers.insert(silo, number);
        Some(number)
    }

    fn hashes(&self, silo: SiloAddress) -> impl Iterator<Item = u64> + use<> {
        let seed = self.seed;
        (0..u64::from(self.points_per_silo)).map(move |i| {
            silo.stable_hash(seed.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        })
    }

    fn silo(&self, number: u32) -> Option<SiloAddress> {
        self.silos.get(number as usize).copied().flatten()
    }

    fn order(&self, a: (u64, u32), b: (u64, u32)) -> Ordering {
        a.0.cmp(&b.0).then_with(|| self.silo(a.1).cmp(&self.silo(b.1)))
    }

    fn sort(&self, points: &mut Vec<(u64, u32)>) {
        points.sort_unstable_by(|a, b| self.order(*a, *b));
        points.dedup();
    }

    /// Takes out the points at these places, which are in order.
    fn cut(&mut self, places: &[usize]) {
        let Some(first) = places.first() else { return };
        let mut to = *first;
        for (i, place) in places.iter().enumerate() {
            let until = places.get(i + 1).copied().unwrap_or(self.points.len());
            self.points.copy_within(place + 1..until, to);
            to += until - (place + 1);
        }
        self.points.truncate(to);
    }

    /// Puts in points that are in order, from the last to the first, so that everything moves once.
    fn merge(&mut self, new: &[(u64, u32)]) {
        let mut end = self.points.len();
        self.points.resize(end + new.len(), (0, 0));
        for (before, point) in new.iter().enumerate().rev() {
            let place =
                self.points[..end].partition_point(|p| self.order(*p, *point) == Ordering::Less);
            self.points.copy_within(place..end, place + before + 1);
            self.points[place + before] = *point;
            end = place;
        }
    }

    /// Positions of the points of `silo`, in no order.
    fn places(&self, silo: SiloAddress) -> Vec<usize> {
        let Some(number) = self.numbers.get(&silo) else { return Vec::new() };
        let mut places: Vec<_> = self
            .hashes(silo)
            .filter_map(|hash| {
                self.points.binary_search_by(|p| self.order(*p, (hash, *number))).ok()
            })
            .collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    /// The first point at or after `hash`, and who stands there. None behind the last point: there
    /// the ring continues with the first.
    pub fn point_from(&self, hash: u64) -> Option<(u64, SiloAddress)> {
        let at = self.points.partition_point(|(point, _)| *point < hash);
        self.points.get(at).and_then(|(point, number)| Some((*point, self.silo(*number)?)))
    }

    /// The silo that owns `hash`, or none on an empty ring.
    pub fn owner(&self, hash: u64) -> Option<SiloAddress> {
        let at = self.points.partition_point(|(point, _)| *point < hash);
        self.points
            .get(at)
            .or_else(|| self.points.first())
            .and_then(|(_, number)| self.silo(*number))
    }

    /// The ranges that `silo` owns, in ring order; empty when it is not on the ring.
    pub fn ranges_of(&self, silo: SiloAddress) -> Vec<RingRange> {
        let n = self.points.len();
        let range = |i: usize| {
            let (after, through) = (self.points[(i + n - 1) % n].0, self.points[i].0);
            // Of two silos at one and the same point the first owns the range.
            (i == 0 || after != through).then_some(RingRange { after, through })
        };
        self.places(silo).into_iter().filter_map(range).collect()
    }

    /// The silos that follow `silo` on the ring, nearest first, `silo` itself left out, each once.
    pub fn successors(&self, silo: SiloAddress) -> impl Iterator<Item = SiloAddress> + '_ {
        let n = self.points.len();
        let start = self.places(silo).first().copied().unwrap_or(n);
        let steps = if start == n { 0 } else { n - 1 };
        let mut seen = Vec::new();
        (1..=steps).filter_map(move |i| self.silo(self.points[(start + i) % n].1)).filter(
            move |s| {
                let fresh = *s != silo && !seen.contains(s);
                if fresh {
                    seen.push(*s);
                }
                fresh
            },
        )
    }

    /// Every point in ring order.
    pub fn points(&self) -> impl Iterator<Item = (u64, SiloAddress)> + '_ {
        self.points.iter().filter_map(|(point, number)| Some((*point, self.silo(*number)?)))
    }

    /// Returns true if no silo is on the ring.
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

    /// Returns true if `hash` lies in this piece.
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
            let owners: Vec<_> = silos
                .iter()
                .filter(|s| ring.ranges_of(**s).iter().any(|r| r.contains(hash)))
                .collect();
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
    fn a_ring_that_changed_equals_one_made_anew() {
        let all = silos(40);
        let mut rng = SeededRng::new(3);
        for points in [1, 2, 16] {
            let mut on = std::collections::BTreeSet::new();
            let mut ring = Ring::with_points([], 5, points);
            for _ in 0..300 {
                let (leave, join): (Vec<_>, Vec<_>) = (0..rng.below(6))
                    .map(|_| all[rng.index(all.len())])
                    .partition(|s| on.contains(s));
                ring.change(&leave, &join);
                on.retain(|silo| !leave.contains(silo));
                on.extend(join);
                let anew = Ring::with_points(on.iter().copied(), 5, points);
                assert_eq!(ring, anew);
                assert!(ring.points().count() == on.len() * points as usize);
                for silo in &all {
                    assert_eq!(ring.ranges_of(*silo), anew.ranges_of(*silo));
                }
                assert!(ring.silos.len() <= all.len() && ring.numbers.len() == on.len());
            }
        }
    }

    #[test]
    fn silos_at_one_point_are_ordered_by_address() {
        let all = silos(3);
        let mut ring = Ring::default();
        for silo in [all[2], all[0], all[1]] {
            let number = ring.number(silo).unwrap();
            ring.merge(&[(7, number)]);
        }
        let order: Vec<_> = ring.points().map(|(_, silo)| silo).collect();
        assert_eq!(order, all);
        assert_eq!((ring.owner(3), ring.owner(9)), (Some(all[0]), Some(all[0])));
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
