//! A shortage of memory that no idle activation relieves.

use std::sync::atomic::{AtomicBool, Ordering};

/// Says whether a silo takes new grains.
#[derive(Debug, Default)]
pub(crate) struct Shortage(AtomicBool);

impl Shortage {
    /// Returns true if the silo has reached its share of memory and found no idle activation to
    /// end.
    pub(crate) fn is_hard(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Notes what a look at the silo's memory found.
    pub(super) fn set_hard(&self, is_hard: bool) {
        self.0.store(is_hard, Ordering::Relaxed);
    }
}
