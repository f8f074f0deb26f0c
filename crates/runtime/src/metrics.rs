//! What a silo counts.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counters of one silo. All but the gauges only grow.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    activated: AtomicU64,
    deactivated: AtomicU64,
    calls_received: AtomicU64,
    calls_forwarded: AtomicU64,
}

impl Metrics {
    pub(crate) fn activated(&self) {
        self.activated.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn deactivated(&self) {
        self.deactivated.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn call_received(&self) {
        self.calls_received.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn call_forwarded(&self) {
        self.calls_forwarded.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self, activations: usize) -> SiloStatistics {
        let get = |c: &AtomicU64| c.load(Ordering::Relaxed);
        SiloStatistics {
            activations: activations as u64,
            activated: get(&self.activated),
            deactivated: get(&self.deactivated),
            calls_received: get(&self.calls_received),
            calls_forwarded: get(&self.calls_forwarded),
        }
    }
}

/// A silo's counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct SiloStatistics {
    /// Activations in memory now.
    pub activations: u64,
    /// Activations since the start.
    pub activated: u64,
    /// Deactivations since the start.
    pub deactivated: u64,
    /// Calls that came over connections since the start.
    pub calls_received: u64,
    /// Calls passed on to another silo since the start.
    pub calls_forwarded: u64,
}
