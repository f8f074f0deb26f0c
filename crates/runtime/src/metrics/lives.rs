//! The counts of the activations of one class.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::latency::{Histogram, Latency};
use super::threads::Counter;

/// The counters of one class.
#[derive(Debug, Default)]
pub(crate) struct LifeMetrics {
    activated: Counter,
    deactivated: AtomicU64,
    failed: AtomicU64,
    took: Histogram,
    /// Grains that came from other silos, and that left for them.
    arrived: AtomicU64,
    left: AtomicU64,
    /// Grains that were sent to another silo and came back, or were lost.
    returned: AtomicU64,
    lost: AtomicU64,
    moving: Histogram,
}

/// Their values.
#[derive(Debug, Default)]
pub(crate) struct LifeStatistics {
    pub(crate) activated: u64,
    pub(crate) deactivated: u64,
    pub(crate) failed: u64,
    pub(crate) took: Latency,
    pub(crate) arrived: u64,
    pub(crate) left: u64,
    pub(crate) returned: u64,
    pub(crate) lost: u64,
    pub(crate) moving: Latency,
}

impl LifeStatistics {
    /// Activations in memory.
    pub(crate) const fn live(&self) -> u64 {
        let begun = self.activated + self.arrived;
        begun.saturating_sub(self.deactivated + self.left + self.lost)
    }
}

impl LifeMetrics {
    /// Counts an activation, and how long it took if it was timed.
    pub(crate) fn activated(&self, took: Option<Duration>) {
        self.activated.add(1);
        if let Some(took) = took {
            self.took.record(took);
        }
    }

    /// Counts a grain that came from another silo.
    pub(crate) fn arrived(&self) {
        self.arrived.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a grain that left for another silo, and the time for which its calls waited.
    pub(crate) fn left(&self, took: Duration) {
        self.left.fetch_add(1, Ordering::Relaxed);
        self.moving.record(took);
    }

    /// Counts a grain that was sent to another silo and is not there.
    pub(crate) fn not_moved(&self, is_lost: bool) {
        let count = if is_lost { &self.lost } else { &self.returned };
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn deactivated(&self) {
        self.deactivated.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> LifeStatistics {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (failed, deactivated) = (get(&self.failed), get(&self.deactivated));
        let (activated, took) = (self.activated.get(), self.took.snapshot());
        let (arrived, left) = (get(&self.arrived), get(&self.left));
        let (returned, lost) = (get(&self.returned), get(&self.lost));
        let moving = self.moving.snapshot();
        LifeStatistics {
            activated,
            deactivated,
            failed,
            took,
            arrived,
            left,
            returned,
            lost,
            moving,
        }
    }
}
