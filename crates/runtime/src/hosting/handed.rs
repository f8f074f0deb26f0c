//! Grains that went, a moment ago, to a silo with another version of their class. Calls that come
//! meanwhile follow them, and do not bring them back.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use emmer_core::{GrainId, SiloAddress};
use parking_lot::Mutex;

use crate::clock::CoarseInstant;
use crate::numbers::NumberMap;

/// How long calls follow. By then whoever calls the grain has heard where it is.
const KEPT: Duration = Duration::from_secs(1);

/// So many grains are remembered at once.
const MAX: usize = 4_096;

/// What is remembered.
#[derive(Default)]
pub(crate) struct Handed {
    grains: Mutex<NumberMap<GrainId, (SiloAddress, CoarseInstant)>>,
    /// How many there are, for the many calls that come while there are none.
    count: AtomicUsize,
}

impl Handed {
    /// The grain goes to `to`.
    pub(super) fn note(&self, grain: &GrainId, to: SiloAddress, now: CoarseInstant) {
        let mut grains = self.grains.lock();
        if grains.len() >= MAX {
            grains.retain(|_, (_, until)| *until > now);
        }
        if grains.len() < MAX {
            grains.insert(grain.clone(), (to, now.after(KEPT)));
        }
        self.count.store(grains.len(), Ordering::Relaxed);
    }

    /// Where a call follows the grain to that comes from `asker`. One that comes from where the
    /// grain went brings it back.
    pub(crate) fn follow(
        &self,
        grain: &GrainId,
        asker: SiloAddress,
        now: CoarseInstant,
    ) -> Option<SiloAddress> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut grains = self.grains.lock();
        let (to, until) = *grains.get(grain)?;
        if to != asker && until > now {
            return Some(to);
        }
        grains.remove(grain);
        self.count.store(grains.len(), Ordering::Relaxed);
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
        let handed = Handed::default();
        handed.note(&grain(1), silo(2), at(1_000));
        handed.note(&grain(2), silo(2), at(1_000));
        assert_eq!(handed.follow(&grain(1), silo(3), at(1_900)), Some(silo(2)));
        assert_eq!(handed.follow(&grain(3), silo(3), at(1_900)), None);
        assert_eq!(handed.follow(&grain(1), silo(2), at(1_900)), None);
        assert_eq!(handed.follow(&grain(1), silo(3), at(1_900)), None, "it came back");
        assert_eq!(handed.follow(&grain(2), silo(3), at(2_100)), None, "the moment is over");
        assert!(handed.grains.lock().is_empty());
        (0..10_000).for_each(|n| handed.note(&grain(n), silo(2), at(5_000)));
        assert_eq!(handed.grains.lock().len(), MAX);
        handed.note(&grain(20_000), silo(2), at(7_000));
        assert_eq!(handed.grains.lock().len(), 1);
    }
}
