//! The owners of buckets.

use emmer_core::SiloAddress;
use emmer_core::reminder::REMINDER_BUCKETS;
use emmer_core::ring::Ring;

/// The points of a silo on the ring.
const POINTS: u32 = 64;

/// The ring of the Active silos, and the buckets of one of them.
#[derive(Debug)]
pub(crate) struct Owners {
    me: SiloAddress,
    ring: Ring,
    /// In order.
    active: Vec<SiloAddress>,
    /// The buckets of `me`, as runs `(first, last)`, in order.
    runs: Vec<(u16, u16)>,
}

impl Owners {
    pub(crate) fn new(me: SiloAddress) -> Self {
        let ring = Ring::with_points([], 0, POINTS);
        Self { me, ring, active: Vec::new(), runs: Vec::new() }
    }

    /// Takes up the Active silos of a view; false if they are the ones known.
    pub(crate) fn set(&mut self, mut active: Vec<SiloAddress>) -> bool {
        active.sort_unstable();
        active.dedup();
        if active == self.active {
            return false;
        }
        let only_in = |these: &[SiloAddress], those: &[SiloAddress]| -> Vec<SiloAddress> {
            these.iter().filter(|silo| those.binary_search(silo).is_err()).copied().collect()
        };
        let (leave, join) = (only_in(&self.active, &active), only_in(&active, &self.active));
        self.ring.change(&leave, &join);
        self.active = active;
        let mut runs: Vec<(u16, u16)> = Vec::new();
        for bucket in (0..REMINDER_BUCKETS).filter(|b| self.owner(*b) == Some(self.me)) {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == bucket => *last = bucket,
                _ => runs.push((bucket, bucket)),
            }
        }
        self.runs = runs;
        true
    }

    /// The owner of a bucket; none while no silo is Active.
    pub(crate) fn owner(&self, bucket: u16) -> Option<SiloAddress> {
        let width = 1u64 << (64 - REMINDER_BUCKETS.ilog2());
        self.ring.owner(u64::from(bucket) * width + width / 2)
    }

    /// Returns true if the bucket is this silo's.
    pub(crate) fn is_mine(&self, bucket: u16) -> bool {
        let after = self.runs.partition_point(|(first, _)| *first <= bucket);
        after > 0 && self.runs.get(after - 1).is_some_and(|(_, last)| bucket <= *last)
    }

    /// This silo's buckets, as runs `(first, last)`, in order.
    pub(crate) fn runs(&self) -> &[(u16, u16)] {
        &self.runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bucket_has_one_owner_and_most_stay_when_one_leaves() {
        let silos: Vec<SiloAddress> =
            (0..5).map(|i| format!("10.0.0.1:{}:1", 1000 + i).parse().unwrap()).collect();
        let of = |active: &[SiloAddress]| -> Vec<Vec<bool>> {
            let of_one = |me: &SiloAddress| {
                let mut owners = Owners::new(*me);
                assert!(owners.set(active.to_vec()) && !owners.set(active.to_vec()));
                (0..REMINDER_BUCKETS).map(|bucket| owners.is_mine(bucket)).collect()
            };
            silos.iter().map(of_one).collect()
        };
        let (before, after) = (of(&silos), of(&silos[1..]));
        for bucket in 0..usize::from(REMINDER_BUCKETS) {
            let owners = |all: &[Vec<bool>]| -> Vec<usize> {
                (0..silos.len()).filter(|silo| all[*silo][bucket]).collect()
            };
            assert_eq!((owners(&before).len(), owners(&after).len()), (1, 1));
            assert!(owners(&before) == [0] || owners(&before) == owners(&after));
        }
        assert!(before.iter().all(|mine| mine.iter().filter(|b| **b).count() > 300));
    }
}
