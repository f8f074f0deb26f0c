//! The activations that stay in memory although no call comes.

use std::collections::HashMap;
use std::time::Duration;

use emmer_net::clock::CoarseInstant;
use parking_lot::Mutex;

/// The activations that stay although they are idle, by number.
#[derive(Default)]
pub(crate) struct Kept {
    /// The moments until which activations asked to be kept.
    until: Mutex<HashMap<u64, CoarseInstant>>,
    /// Turns under way that hold nothing of their grain.
    turns: Mutex<HashMap<u64, Turns>>,
    /// The moments until which no balance of silos moves the grain again.
    settled: Mutex<HashMap<u64, CoarseInstant>>,
}

/// Turns of one activation that hold nothing of it.
struct Turns {
    count: u32,
    /// Last of their deadlines: no caller waits longer.
    until: CoarseInstant,
}

impl Kept {
    /// Keeps an activation until a moment, whatever it asked for before.
    pub(super) fn keep(&self, number: u64, until: CoarseInstant) {
        self.until.lock().insert(number, until);
    }

    /// Returns true if the activation is to be kept.
    pub(super) fn keeps(&self, number: u64, now: CoarseInstant) -> bool {
        if self.turns.lock().get(&number).is_some_and(|turns| turns.until > now) {
            return true;
        }
        let mut kept = self.until.lock();
        let keeps = kept.get(&number).is_some_and(|until| *until > now);
        if !keeps {
            kept.remove(&number);
        }
        keeps
    }

    /// The time for which the activation asked to be kept.
    pub(super) fn left(&self, number: u64, now: CoarseInstant) -> Duration {
        self.until.lock().get(&number).map_or(Duration::ZERO, |until| until.left(now))
    }

    /// Returns true if turns are under way that hold nothing of the activation.
    pub(super) fn has_turns(&self, number: u64) -> bool {
        self.turns.lock().contains_key(&number)
    }

    /// A turn begins that holds nothing of the activation, and keeps it until `until` at most.
    pub(super) fn begin_turn(&self, number: u64, until: CoarseInstant) {
        let mut turns = self.turns.lock();
        let turns = turns.entry(number).or_insert(Turns { count: 0, until });
        turns.count += 1;
        turns.until = turns.until.max(until);
    }

    /// Such a turn has ended.
    pub(super) fn end_turn(&self, number: u64) {
        let mut turns = self.turns.lock();
        if let Some(own) = turns.get_mut(&number) {
            own.count -= 1;
            if own.count == 0 {
                turns.remove(&number);
            }
        }
    }

    /// No balance moves the grain of the activation again until then; none: any may.
    pub(super) fn settle(&self, number: u64, until: Option<CoarseInstant>) {
        let mut settled = self.settled.lock();
        match until {
            Some(until) => settled.insert(number, until),
            None => settled.remove(&number),
        };
    }

    /// The time for which no balance moves the grain again.
    pub(super) fn settled_for(&self, number: u64, now: CoarseInstant) -> Duration {
        let mut settled = self.settled.lock();
        let left = settled.get(&number).map_or(Duration::ZERO, |until| until.left(now));
        if left.is_zero() {
            settled.remove(&number);
        }
        left
    }

    /// The activation is gone.
    pub(super) fn end(&self, number: u64) {
        self.settled.lock().remove(&number);
        self.until.lock().remove(&number);
    }
}
