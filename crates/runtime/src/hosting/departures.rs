//! Grains that left for another silo, or were found to be there, a moment ago. Calls that come
//! meanwhile follow them, and do not bring them back: in their order, through the activation that
//! was here.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use emmer_core::{GrainId, SiloAddress};
use emmer_net::clock::CoarseInstant;
use emmer_net::numbers::NumberMap;
use parking_lot::{Mutex, MutexGuard};

/// Time for which calls follow a grain at least. By then its callers have heard where it is.
const KEPT: Duration = Duration::from_secs(1);

/// Number of grains that are remembered at once; then the oldest are forgotten.
const MAX: usize = 16_384;

/// Grains that have left.
pub(crate) struct Departures<D> {
    kept: Mutex<Kept<D>>,
    /// Number of departures, for the many calls that come while there are none.
    count: AtomicUsize,
}

/// Door of a grain that has left.
pub(crate) trait Door: Clone {
    /// Returns true if calls wait at the door, or are on their way from it.
    fn is_waited_for(&self) -> bool;
}

struct Kept<D> {
    grains: NumberMap<GrainId, Departed<D>>,
    /// Times until which they are kept, in order. A grain that left again is in it twice.
    order: VecDeque<(CoarseInstant, GrainId)>,
}

/// A grain that has left.
struct Departed<D> {
    to: SiloAddress,
    until: CoarseInstant,
    /// The activation that was here. Calls wait there, each until the one before is on its way.
    /// None for a grain that ended here for another version of its class.
    door: Option<D>,
}

impl<D: Door> Kept<D> {
    /// Takes out what is too old, or too much.
    fn forget_old(&mut self, now: CoarseInstant) -> Vec<Departed<D>> {
        let mut forgotten = Vec::new();
        while let Some(&(until, _)) = self.order.front() {
            let over = self.order.len() > MAX;
            if until > now && !over {
                break;
            }
            let Some((_, grain)) = self.order.pop_front() else { break };
            let Some(departed) = self.grains.get_mut(&grain) else { continue };
            if departed.until != until {
                continue;
            }
            if !over && departed.door.as_ref().is_some_and(Door::is_waited_for) {
                departed.until = now.after(KEPT);
                self.order.push_back((departed.until, grain));
            } else {
                forgotten.extend(self.grains.remove(&grain));
            }
        }
        forgotten
    }
}

impl<D: Door> Default for Departures<D> {
    fn default() -> Self {
        Self { kept: Mutex::new(Kept::new()), count: AtomicUsize::new(0) }
    }
}

impl<D> Kept<D> {
    fn new() -> Self {
        Self { grains: NumberMap::default(), order: VecDeque::new() }
    }
}

impl<D: Door> Departures<D> {
    /// The grain goes to `to`. Calls follow it through `door`.
    pub(super) fn note(
        &self,
        grain: &GrainId,
        to: SiloAddress,
        now: CoarseInstant,
        door: Option<D>,
    ) {
        let until = now.after(KEPT);
        let mut kept = self.kept.lock();
        let before = kept.grains.insert(grain.clone(), Departed { to, until, door });
        kept.order.push_back((until, grain.clone()));
        self.forget_old(kept, now);
        drop(before);
    }

    /// A tick of the clock.
    pub(super) fn tick(&self, now: CoarseInstant) {
        if self.count.load(Ordering::Relaxed) > 0 {
            self.forget_old(self.kept.lock(), now);
        }
    }

    fn forget_old(&self, mut kept: MutexGuard<'_, Kept<D>>, now: CoarseInstant) {
        let forgotten = kept.forget_old(now);
        self.count.store(kept.order.len(), Ordering::Relaxed);
        // Activations are let go without the lock.
        drop(kept);
        drop(forgotten);
    }

    /// Forgets all of them: the silo has ended.
    pub(crate) fn clear(&self) {
        let kept = std::mem::replace(&mut *self.kept.lock(), Kept::new());
        self.count.store(0, Ordering::Relaxed);
        drop(kept);
    }

    /// Silo to which a call from `asker` follows the grain. A call from the silo that the grain
    /// went to brings it back.
    pub(crate) fn follow(&self, grain: &GrainId, asker: SiloAddress) -> Option<SiloAddress> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut kept = self.kept.lock();
        let to = kept.grains.get(grain)?.to;
        if to != asker {
            return Some(to);
        }
        let brought = kept.grains.remove(grain);
        drop(kept);
        drop(brought);
        None
    }

    /// Door through which a call of the silo `asker` follows a grain, and the silo to which it
    /// leads. No call of that silo follows the grain.
    #[inline]
    pub(crate) fn door(
        &self,
        grain: &GrainId,
        asker: Option<SiloAddress>,
    ) -> Option<(D, SiloAddress)> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let kept = self.kept.lock();
        let departed = kept.grains.get(grain).filter(|departed| asker != Some(departed.to))?;
        departed.door.clone().map(|door| (door, departed.to))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use emmer_core::GrainTypeId;

    use super::*;

    impl Door for Arc<AtomicBool> {
        fn is_waited_for(&self) -> bool {
            self.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn calls_follow_for_a_moment_unless_they_come_from_there() {
        let silo = |n: u8| format!("10.0.0.{n}:1:1").parse::<SiloAddress>().unwrap();
        let grain = |n: u64| GrainId::new(GrainTypeId::of("g"), n);
        let at = CoarseInstant::from_millis;
        let departures = Departures::<Arc<AtomicBool>>::default();
        let note = |n, to, ms| {
            let door = Arc::new(AtomicBool::new(false));
            departures.note(&grain(n), silo(to), at(ms), Some(door.clone()));
            door
        };
        let door = |n, asker, ms| {
            departures.tick(at(ms));
            departures.door(&grain(n), Some(silo(asker))).map(|(_, to)| to)
        };
        note(1, 2, 1_000);
        departures.note(&grain(2), silo(2), at(1_000), None);
        assert_eq!(door(1, 3, 1_900), Some(silo(2)));
        assert_eq!((door(2, 3, 1_900), door(3, 3, 1_900), door(1, 2, 1_900)), (None, None, None));
        let follow = |n, asker| departures.follow(&grain(n), silo(asker));
        assert_eq!(
            (follow(1, 3), follow(2, 3), follow(3, 3)),
            (Some(silo(2)), Some(silo(2)), None)
        );
        assert_eq!(follow(1, 2), None);
        assert_eq!((follow(1, 3), door(1, 3, 1_900)), (None, None), "it came back");
        note(1, 4, 1_500);
        assert_eq!(door(1, 3, 2_100), Some(silo(4)), "it left again");
        assert_eq!(follow(2, 3), None, "the moment is over");
        assert_eq!(door(1, 3, 2_600), None);
        assert_eq!(departures.count.load(Ordering::Relaxed), 0);
        let waits = note(1, 2, 3_000);
        waits.store(true, Ordering::Relaxed);
        assert_eq!(door(1, 3, 4_500), Some(silo(2)), "calls wait there");
        waits.store(false, Ordering::Relaxed);
        assert_eq!(door(1, 3, 5_500), None);
        (0..40_000).for_each(|n| drop(note(n, 2, 5_600)));
        assert_eq!(departures.kept.lock().grains.len(), MAX);
        assert_eq!(door(39_999, 3, 5_700), Some(silo(2)), "the newest are kept");
        assert_eq!(door(0, 3, 5_700), None);
        departures.clear();
        assert_eq!(door(39_999, 3, 5_700), None);
    }
}
