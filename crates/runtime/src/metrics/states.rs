//! What grains ask of their states and journals, counted.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a grain does with a state or journal.
#[derive(Clone, Copy, Debug)]
pub enum StateOperation {
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

/// What it comes to.
#[derive(Clone, Copy, Debug)]
pub enum StateEnded {
    Ok,
    /// Somebody else wrote since it was read.
    Conflict,
    /// It may have happened.
    Unknown,
    Error,
}

/// Their names, in the same order.
const OUTCOMES: [&str; 4] = ["ok", "conflict", "unknown", "error"];

/// The counts of one silo.
#[derive(Debug, Default)]
pub(crate) struct StateMetrics([[AtomicU64; OUTCOMES.len()]; OPERATIONS.len()]);

impl StateMetrics {
    pub(crate) fn note(&self, operation: StateOperation, ended: StateEnded) {
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
