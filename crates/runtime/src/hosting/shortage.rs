//! The reasons for which a silo takes no new grains.

use std::sync::atomic::{AtomicBool, Ordering};

/// Says whether a silo takes new grains.
#[derive(Debug, Default)]
pub(crate) struct Shortage {
    /// It has reached its share of memory and found no idle activation to end.
    memory: AtomicBool,
    /// An operator has cordoned it.
    cordoned: AtomicBool,
}

impl Shortage {
    /// Returns true if the silo has reached its share of memory and found no idle activation to
    /// end.
    pub(crate) fn is_hard(&self) -> bool {
        self.memory.load(Ordering::Relaxed)
    }

    /// Notes what a look at the silo's memory found.
    pub(super) fn set_hard(&self, is_hard: bool) {
        self.memory.store(is_hard, Ordering::Relaxed);
    }

    /// Returns true if an operator has cordoned the silo.
    pub(crate) fn is_cordoned(&self) -> bool {
        self.cordoned.load(Ordering::Acquire)
    }

    /// Cordons the silo, or ends that.
    pub(crate) fn set_cordoned(&self, is_cordoned: bool) {
        self.cordoned.store(is_cordoned, Ordering::Release);
    }
}
