//! The activations that asked to be kept.

use std::collections::HashMap;

use emmer_net::clock::CoarseInstant;
use parking_lot::Mutex;

/// The activations that asked to be kept although they are idle, by number.
#[derive(Default)]
pub(crate) struct Kept(Mutex<HashMap<u64, CoarseInstant>>);

impl Kept {
    /// Keeps an activation until a moment, whatever it asked for before.
    pub(super) fn keep(&self, number: u64, until: CoarseInstant) {
        self.0.lock().insert(number, until);
    }

    /// Returns true if the activation is to be kept.
    pub(super) fn keeps(&self, number: u64, now: CoarseInstant) -> bool {
        let mut kept = self.0.lock();
        let keeps = kept.get(&number).is_some_and(|until| *until > now);
        if !keeps {
            kept.remove(&number);
        }
        keeps
    }

    /// The activation is gone.
    pub(super) fn end(&self, number: u64) {
        self.0.lock().remove(&number);
    }
}
