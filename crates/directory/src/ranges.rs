//! Sets of ring positions: which hashes a silo owns, gained, lost, or still recovers.

use emmer_core::ring::{Ring, RingRange};
use emmer_core::{GrainId, SiloAddress};

/// A set of ring positions as disjoint closed intervals, sorted, never wrapping, never touching.
///
/// Unlike [`RingRange`] it can be empty, cut and intersected without special cases at the ring's
/// seam.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet {
    intervals: Vec<(u64, u64)>,
}

impl RangeSet {
    /// Ranges that `silo` owns on `ring`; empty when it is not on it.
    pub fn owned(ring: &Ring, silo: SiloAddress) -> Self {
        Self::from_ring_ranges(&ring.ranges_of(silo))
    }

    /// The union of `ranges`.
    pub fn from_ring_ranges(ranges: &[RingRange]) -> Self {
        let mut intervals = Vec::with_capacity(ranges.len() + 1);
        for range in ranges {
            if range.after < range.through {
                intervals.push((range.after + 1, range.through));
            } else {
                intervals.push((0, range.through));
                if range.after < u64::MAX {
                    intervals.push((range.after + 1, u64::MAX));
                }
            }
        }
        Self::from_intervals(intervals)
    }

    /// Converts the set to ranges that a message can carry.
    pub fn to_ring_ranges(&self) -> Vec<RingRange> {
        // An interval from 0 wraps: "after the largest hash".
        self.intervals
            .iter()
            .map(|(lo, hi)| RingRange { after: lo.wrapping_sub(1), through: *hi })
            .collect()
    }

    /// One interval, both ends in it.
    pub(crate) fn piece(interval: (u64, u64)) -> Self {
        Self { intervals: vec![interval] }
    }

    /// The set cut at the points of `ring`, in order, each piece with its owner there.
    pub(crate) fn split(&self, ring: &Ring) -> Vec<((u64, u64), SiloAddress)> {
        let mut pieces = Vec::with_capacity(self.intervals.len());
        let Some(first) = ring.owner(u64::MAX) else { return pieces };
        for (lo, hi) in &self.intervals {
            let mut at = *lo;
            loop {
                let next = ring.point_from(at);
                let (end, owner) =
                    next.map_or((*hi, first), |(point, owner)| (point.min(*hi), owner));
                pieces.push(((at, end), owner));
                if end == *hi {
                    break;
                }
                at = end + 1;
            }
        }
        pieces
    }

    fn from_intervals(mut intervals: Vec<(u64, u64)>) -> Self {
        intervals.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::with_capacity(intervals.len());
        for (lo, hi) in intervals {
            match merged.last_mut() {
                Some(last) if lo <= last.1.saturating_add(1) => last.1 = last.1.max(hi),
                _ => merged.push((lo, hi)),
            }
        }
        Self { intervals: merged }
    }

    /// Returns true if `hash` is in the set.
    pub fn contains(&self, hash: u64) -> bool {
        let at = self.intervals.partition_point(|(_, hi)| *hi < hash);
        self.intervals.get(at).is_some_and(|(lo, _)| *lo <= hash)
    }

    /// Returns true if the grain's place on the ring is in the set.
    pub fn covers(&self, grain: &GrainId) -> bool {
        self.contains(grain.stable_hash())
    }

    /// Returns true if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.intervals.is_empty()
    }

    /// The intervals, closed, in order.
    pub fn intervals(&self) -> &[(u64, u64)] {
        &self.intervals
    }

    /// Intersection of both sets.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        let (mut i, mut j) = (0, 0);
        let mut intervals = Vec::new();
        while let (Some(a), Some(b)) = (self.intervals.get(i), other.intervals.get(j)) {
            let (lo, hi) = (a.0.max(b.0), a.1.min(b.1));
            if lo <= hi {
                intervals.push((lo, hi));
            }
            if a.1 < b.1 {
                i += 1;
            } else {
                j += 1;
            }
        }
        Self { intervals }
    }

    /// Part of this set that is not in `other`.
    #[must_use]
    pub fn subtract(&self, other: &Self) -> Self {
        self.intersect(&other.complement())
    }

    /// Union of both sets.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self::from_intervals(self.intervals.iter().chain(&other.intervals).copied().collect())
    }

    fn complement(&self) -> Self {
        let mut intervals = Vec::with_capacity(self.intervals.len() + 1);
        let mut next = Some(0);
        for (lo, hi) in &self.intervals {
            if let Some(start) = next.filter(|start| start < lo) {
                intervals.push((start, lo - 1));
            }
            next = hi.checked_add(1);
        }
        if let Some(start) = next {
            intervals.push((start, u64::MAX));
        }
        Self { intervals }
    }
}

#[cfg(test)]
mod tests {
    use emmer_core::rng::SeededRng;

    use super::*;

    fn silos(n: u16) -> Vec<SiloAddress> {
        (0..n).map(|i| format!("10.0.0.1:{}:1", 1000 + i).parse().unwrap()).collect()
    }

    /// The largest part of a hundred silos, as a multiple of the mean.
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    fn largest_part(set: u64) -> f64 {
        let silo =
            |n: u64| SiloAddress::new(([10, 0, 0, 1], 11_111).into(), 1 + 977 * set + 31 * n);
        let silos: Vec<SiloAddress> = (0..100).map(silo).collect();
        let points = crate::Config::default().points_per_silo;
        let ring = Ring::with_points(silos.iter().copied(), 0, points);
        let part = |silo: &SiloAddress| {
            let owned = RangeSet::owned(&ring, *silo);
            owned.intervals.iter().map(|(lo, hi)| (hi - lo) as f64).sum::<f64>()
        };
        silos.iter().map(part).fold(0.0, f64::max) * 100.0 / (u64::MAX as f64)
    }

    #[test]
    fn the_largest_part_of_a_hundred_silos_is_a_quarter_more_than_the_mean_at_most() {
        for set in 0..20 {
            let largest = largest_part(set);
            assert!((1.0..=1.25).contains(&largest), "cluster {set}: {largest}");
        }
    }

    #[test]
    fn owned_sets_agree_with_the_ring_and_partition_it() {
        let silos = silos(6);
        let ring = Ring::with_points(silos.iter().copied(), 0, 8);
        let owned: Vec<_> = silos.iter().map(|s| RangeSet::owned(&ring, *s)).collect();
        let mut rng = SeededRng::new(1);
        let edges = ring.points().flat_map(|(p, _)| [p, p.wrapping_add(1), p.wrapping_sub(1)]);
        let mut hashes: Vec<u64> = (0..2000).map(|_| rng.bits()).chain(edges).collect();
        hashes.extend([0, u64::MAX]);
        for hash in hashes {
            let owners: Vec<_> =
                (0..6).filter(|i| owned[*i].contains(hash)).map(|i| silos[i]).collect();
            assert_eq!(owners, [ring.owner(hash).unwrap()], "{hash:x}");
        }
    }

    #[test]
    fn pieces_cover_the_set_and_have_the_rings_owners() {
        let ring = Ring::with_points(silos(6), 0, 8);
        let set =
            RangeSet::from_intervals(vec![(0, 1 << 40), (1 << 62, 3 << 62), (u64::MAX, u64::MAX)]);
        let pieces = set.split(&ring);
        assert_eq!(RangeSet::from_intervals(pieces.iter().map(|(piece, _)| *piece).collect()), set);
        for ((lo, hi), owner) in pieces {
            assert_eq!((ring.owner(lo), ring.owner(hi)), (Some(owner), Some(owner)));
        }
        assert!(set.split(&Ring::default()).is_empty());
    }

    #[test]
    fn a_silo_alone_owns_everything_and_a_stranger_nothing() {
        let alone = silos(2);
        for points in [1, 32] {
            let ring = Ring::with_points([alone[0]], 0, points);
            assert_eq!(RangeSet::owned(&ring, alone[0]).intervals(), [(0, u64::MAX)]);
            assert!(RangeSet::owned(&ring, alone[1]).is_empty());
        }
    }

    #[test]
    fn set_algebra_holds_pointwise() {
        let mut rng = SeededRng::new(7);
        let set = |rng: &mut SeededRng| {
            let n = rng.below(5);
            RangeSet::from_intervals(
                (0..n)
                    .map(|_| {
                        let lo = rng.below(60);
                        // The seam matters: shift half of them to the end of the ring.
                        let shift = if rng.chance(0.5) { u64::MAX - 80 } else { 0 };
                        (lo + shift, lo + rng.below(20) + shift)
                    })
                    .collect(),
            )
        };
        for _ in 0..500 {
            let (a, b) = (set(&mut rng), set(&mut rng));
            let (and, or, minus) = (a.intersect(&b), a.union(&b), a.subtract(&b));
            for hash in (0..90).chain(u64::MAX - 90..=u64::MAX) {
                let (x, y) = (a.contains(hash), b.contains(hash));
                assert_eq!(
                    (and.contains(hash), or.contains(hash), minus.contains(hash)),
                    (x && y, x || y, x && !y)
                );
            }
            assert_eq!(RangeSet::from_ring_ranges(&a.to_ring_ranges()), a);
        }
    }

    #[test]
    fn ring_ranges_carry_the_same_set() {
        let ring = Ring::with_points(silos(5), 0, 4);
        for silo in silos(5) {
            let owned = RangeSet::owned(&ring, silo);
            assert_eq!(RangeSet::from_ring_ranges(&ring.ranges_of(silo)), owned);
            let wire = owned.to_ring_ranges();
            for (point, _) in ring.points() {
                let hash = point.wrapping_add(1);
                assert_eq!(wire.iter().any(|r| r.contains(hash)), owned.contains(hash));
            }
        }
        assert_eq!(RangeSet::from_ring_ranges(&[RingRange::FULL]).intervals(), [(0, u64::MAX)]);
    }
}
