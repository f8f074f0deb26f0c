//! The counters of what grains do with their states and journals.

use std::sync::atomic::{AtomicU64, Ordering};

use super::store::{Ended, OUTCOMES};

/// The things that a grain does with a state or journal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StateOperation {
    Read,
    Write,
    Append,
    Snapshot,
    Clear,
}

/// Their names, in the same order.
const OPERATIONS: [&str; 5] = ["read", "write", "append", "snapshot", "clear"];

impl StateOperation {
    pub(crate) const fn name(self) -> &'static str {
        OPERATIONS[self as usize]
    }
}

/// The counts of one silo.
#[derive(Debug, Default)]
pub(crate) struct StateMetrics([[AtomicU64; OUTCOMES.len()]; OPERATIONS.len()]);

impl StateMetrics {
    pub(crate) fn note(&self, operation: StateOperation, ended: Ended) {
        self.0[operation as usize][ended as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The names of operation and outcome, and how many there were.
    pub(crate) fn snapshot(&self) -> impl Iterator<Item = ([&'static str; 2], u64)> {
        OPERATIONS.iter().zip(&self.0).flat_map(|(operation, counts)| {
            OUTCOMES.iter().zip(counts).map(move |(outcome, count)| {
                ([*operation, *outcome], count.load(Ordering::Relaxed))
            })
        })
    }
}
