//! Grains that left, a moment ago, for a silo with another version of their class. Calls that come
//! meanwhile follow them, and do not bring them back.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use emmer_core::{GrainId, SiloAddress};
use emmer_net::clock::CoarseInstant;
use emmer_net::numbers::NumberMap;
use parking_lot::Mutex;

/// Time for which calls follow a grain. By then its callers have heard where it is.
const KEPT: Duration = Duration::from_secs(1);

/// Number of grains that are remembered at once; then the oldest are forgotten.
const MAX: usize = 4_096;

/// Grains that have left.
#[derive(Default)]
pub(crate) struct Departures {
    kept: Mutex<Kept>,
    /// Number of departures, for the many calls that come while there are none.
    count: AtomicUsize,
}

#[derive(Default)]
struct Kept {
    grains: NumberMap<GrainId, (SiloAddress, CoarseInstant)>,
    /// Times until which they are kept, in order. A grain that left again is in it twice.
    order: VecDeque<(CoarseInstant, GrainId)>,
}

impl Kept {
    fn forget_old(&mut self, now: CoarseInstant) {
        while let Some((until, grain)) = self.order.front() {
            if *until > now && self.order.len() <= MAX {
                return;
            }
            if self.grains.get(grain).is_some_and(|(_, kept)| kept == until) {
                self.grains.remove(grain);
            }
            self.order.pop_front();
        }
    }
}

impl Departures {
    /// The grain goes to `to`.
    pub(super) fn note(&self, grain: &GrainId, to: SiloAddress, now: CoarseInstant) {
        let mut kept = self.kept.lock();
        let until = now.after(KEPT);
        kept.grains.insert(grain.clone(), (to, until));
        kept.order.push_back((until, grain.clone()));
        kept.forget_old(now);
        self.count.store(kept.order.len(), Ordering::Relaxed);
    }

    /// Silo to which a call from `asker` follows the grain. A call from the silo that the grain
    /// went to brings it back.
    pub(crate) fn follow(
        &self,
        grain: &GrainId,
        asker: SiloAddress,
        now: CoarseInstant,
    ) -> Option<SiloAddress> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut kept = self.kept.lock();
        kept.forget_old(now);
        self.count.store(kept.order.len(), Ordering::Relaxed);
        let (to, _) = *kept.grains.get(grain)?;
        if to != asker {
            return Some(to);
        }
        kept.grains.remove(grain);
        None
    }
}

#[cfg(test)]
mod tests {
    use emmer_core::GrainTypeId;

    use super::*;

    #[test]
    fn calls_follow_for_a_moment_unless_they_come_from_there() {
        let silo = |n: u8| format!("10.0.0.{n}:1:1").parse::<SiloAddress>().unwrap();
        let grain = |n: u64| GrainId::new(GrainTypeId::of("g"), n);
        let at = CoarseInstant::from_millis;
        let departures = Departures::default();
        departures.note(&grain(1), silo(2), at(1_000));
        departures.note(&grain(2), silo(2), at(1_000));
        let follow = |n, asker, ms| departures.follow(&grain(n), silo(asker), at(ms));
        assert_eq!(follow(1, 3, 1_900), Some(silo(2)));
        assert_eq!(follow(3, 3, 1_900), None);
        assert_eq!(follow(1, 2, 1_900), None);
        assert_eq!(follow(1, 3, 1_900), None, "it came back");
        departures.note(&grain(1), silo(4), at(1_500));
        assert_eq!(follow(1, 3, 2_100), Some(silo(4)), "it left again");
        assert_eq!(follow(2, 3, 2_100), None, "the moment is over");
        assert_eq!(follow(1, 3, 2_600), None);
        assert_eq!(departures.count.load(Ordering::Relaxed), 0);
        (0..10_000).for_each(|n| departures.note(&grain(n), silo(2), at(5_000)));
        assert_eq!(departures.kept.lock().grains.len(), MAX);
        assert_eq!(follow(9_999, 3, 5_100), Some(silo(2)), "the newest are kept");
        assert_eq!(follow(0, 3, 5_100), None);
    }
}
