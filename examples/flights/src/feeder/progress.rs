//! The progress of the replay, for its viewers.

use std::sync::atomic::{AtomicU64, Ordering};

use emmer::tables::SiloAddress;

use super::queue::Cursor;

/// Counters that the callers advance and any thread may read.
#[derive(Debug, Default)]
pub struct Progress {
    applied: AtomicU64,
    calls: AtomicU64,
    failures: AtomicU64,
    rewinds: AtomicU64,
    grains: AtomicU64,
    moves: AtomicU64,
}

/// The counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Departures applied, each counted once for each of its grains.
    pub applied: u64,
    /// Calls answered with success.
    pub calls: u64,
    /// Calls that failed and were repeated.
    pub failures: u64,
    /// Number of times a grain held less than it had answered before: its activation was older than
    /// its stored state, or the store lost a write. Harmless to the totals, but worth a look.
    pub rewinds: u64,
    /// Grains that answered at least once.
    pub grains: u64,
    /// How often a grain answered from another silo than before.
    pub moves: u64,
}

impl Progress {
    /// The counters now.
    pub fn snapshot(&self) -> Snapshot {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Snapshot {
            applied: get(&self.applied),
            calls: get(&self.calls),
            failures: get(&self.failures),
            rewinds: get(&self.rewinds),
            grains: get(&self.grains),
            moves: get(&self.moves),
        }
    }

    /// A stream went on from `from` to `to`, or back.
    pub(super) fn moved_on(&self, from: u64, to: u64) {
        if to < from {
            self.rewinds.fetch_add(1, Ordering::Relaxed);
        }
        // Wraps to a subtraction; the sum stays exact.
        self.applied.fetch_add(to.wrapping_sub(from), Ordering::Relaxed);
    }

    /// A grain answered from `silo`.
    pub(super) fn answered(&self, cursor: &mut Cursor, silo: Option<SiloAddress>) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let Some(silo) = silo else { return };
        match cursor.home.replace(silo) {
            None => self.grains.fetch_add(1, Ordering::Relaxed),
            Some(home) => self.moves.fetch_add(u64::from(home != silo), Ordering::Relaxed),
        };
    }

    pub(super) fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }
}
