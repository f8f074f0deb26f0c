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
    left_took: Histogram,
}

/// Their values.
#[derive(Debug, Default)]
pub(crate) struct LifeStatistics {
    pub(crate) activated: u64,
    pub(crate) deactivated: u64,
    pub(crate) failed: u64,
    pub(crate) took: Latency,
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
        self.left_took.record(took);
    }

    pub(crate) fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn deactivated(&self) {
        self.deactivated.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> LifeStatistics {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        // In this order: no activation seems to have ended that has not begun.
        let (failed, deactivated) = (get(&self.failed), get(&self.deactivated));
        let (activated, took) = (self.activated.get().max(deactivated), self.took.snapshot());
        LifeStatistics { activated, deactivated, failed, took }
    }
}
