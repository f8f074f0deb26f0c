//! Counts of each method of a grain class.
//!
//! A call costs a load and a store in memory of its thread. On average one call in
//! [`SAMPLE_EVERY`] of each thread and method is timed by the exact clock, its wait for the turn
//! included. The gaps vary, so that calls which follow a pattern are all met.

use std::num::NonZeroU64;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use emmer_core::GrainTypeId;
use serde::{Deserialize, Serialize};

use super::latency::{Histogram, Latency};
use super::threads::{self, SHARED};

/// Number of calls of which one is timed, on average. A power of two.
pub(crate) const SAMPLE_EVERY: u64 = 64;

/// The number of the next call that is timed, after the call `number`: on average [`SAMPLE_EVERY`]
/// further on.
const fn next_sample(number: u64) -> u64 {
    // The last steps of the generator SplitMix64 (Steele and others, 2014).
    let mut mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number + 1 + (mixed ^ (mixed >> 31)) % (2 * SAMPLE_EVERY - 1)
}

/// End of a turn, for the counters. A success is not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The method ran.
    Done,
    /// The method ran and returned its own error.
    OwnError,
    /// The turn panicked, its result could not be encoded, or its grain could not be activated.
    Failed,
    /// It did not run, because the activation was closed first; the call is made again elsewhere.
    Closed,
}

impl Ended {
    /// The end in one word.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::OwnError => "error",
            Self::Failed => "failed",
            Self::Closed => "elsewhere",
        }
    }
}

#[derive(Debug, Default)]
struct Cells {
    calls: AtomicU64,
    /// Number of the next call that is timed.
    next: AtomicU64,
    own_errors: AtomicU64,
    failures: AtomicU64,
    closed: AtomicU64,
}

/// The cells of one thread.
#[derive(Debug)]
#[repr(align(128))]
struct OfThread(Box<[Cells]>);

/// The counters of every method of one class.
#[derive(Debug)]
pub(crate) struct MethodMetrics {
    threads: Box<[OnceLock<OfThread>]>,
    latencies: Box<[Histogram]>,
    /// True while every call is timed: a grain of the class is traced.
    all: AtomicBool,
}

impl MethodMetrics {
    pub(crate) fn new(methods: usize) -> Self {
        Self {
            threads: (0..=SHARED).map(|_| OnceLock::new()).collect(),
            latencies: (0..methods).map(|_| Histogram::default()).collect(),
            all: AtomicBool::new(false),
        }
    }

    fn cells(&self, thread: usize, method: usize) -> Option<&Cells> {
        let cells = self.threads.get(thread)?.get_or_init(|| {
            OfThread((0..self.latencies.len()).map(|_| Cells::default()).collect())
        });
        cells.0.get(method)
    }

    /// Counts a call; true when it is one to be timed.
    #[inline]
    pub(crate) fn begin(&self, method: usize) -> bool {
        let thread = threads::current();
        let Some(cells) = self.cells(thread, method) else { return false };
        let number = threads::add(&cells.calls, thread, 1);
        if number < cells.next.load(Ordering::Relaxed) {
            return false;
        }
        let next = if self.all.load(Ordering::Relaxed) { number + 1 } else { next_sample(number) };
        cells.next.store(next, Ordering::Relaxed);
        true
    }

    /// Has every call timed, or samples again.
    pub(crate) fn time_all(&self, all: bool) {
        self.all.store(all, Ordering::Relaxed);
        if all {
            let cells = self.threads.iter().filter_map(OnceLock::get).flat_map(|own| &own.0);
            cells.for_each(|cells| cells.next.store(0, Ordering::Relaxed));
        }
    }

    /// Returns true if a call that was timed counts among the samples.
    pub(crate) fn is_sample(&self, stamp: NonZeroU64) -> bool {
        !self.all.load(Ordering::Relaxed) || stamp.get().is_multiple_of(SAMPLE_EVERY)
    }

    /// Counts how a call ended, and how long it took if it was timed. Successes that were not timed
    /// need not be told.
    #[cold]
    pub(crate) fn end(&self, method: usize, ended: Ended, took: Option<Duration>) {
        let thread = threads::current();
        if let Some(cells) = self.cells(thread, method) {
            let cell = match ended {
                Ended::Done => None,
                Ended::OwnError => Some(&cells.own_errors),
                Ended::Failed => Some(&cells.failures),
                Ended::Closed => Some(&cells.closed),
            };
            cell.inspect(|cell| {
                threads::add(cell, thread, 1);
            });
        }
        if ended != Ended::Closed
            && let (Some(took), Some(latencies)) = (took, self.latencies.get(method))
        {
            latencies.record(took);
        }
    }

    /// Counts of method `method`.
    pub(crate) fn snapshot(
        &self,
        method: usize,
        grain_type: &'static str,
        name: &'static str,
    ) -> MethodStatistics {
        let sum = |of: fn(&Cells) -> &AtomicU64| {
            let all = self.threads.iter().filter_map(|t| t.get()?.0.get(method));
            all.map(|cells| of(cells).load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
        };
        let closed = sum(|c| &c.closed);
        MethodStatistics {
            grain_type: grain_type.to_owned(),
            grain_type_id: GrainTypeId::of(grain_type),
            method: name.to_owned(),
            calls: sum(|c| &c.calls).saturating_sub(closed),
            own_errors: sum(|c| &c.own_errors),
            failures: sum(|c| &c.failures),
            latency: self.latencies.get(method).map(Histogram::snapshot).unwrap_or_default(),
        }
    }
}

/// Counts of one silo for one method since its start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MethodStatistics {
    /// The grain type's name.
    pub grain_type: String,
    /// Its number.
    pub grain_type_id: GrainTypeId,
    /// `Interface.method`.
    pub method: String,
    /// Calls whose turn was started on this silo, those that are still under way included.
    pub calls: u64,
    /// Calls that the method answered with its own `Err`.
    pub own_errors: u64,
    /// Calls that failed otherwise: a panic, a result that cannot be encoded, an activation that
    /// failed.
    pub failures: u64,
    /// Durations of one call in 64 on this silo, from arrival at the activation to the end.
    pub latency: Latency,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_by_method_and_times_one_in_so_many() {
        let metrics = MethodMetrics::new(2);
        let all = 1_000 * SAMPLE_EVERY;
        let timed: Vec<_> = (0..all).filter(|_| metrics.begin(1)).collect();
        assert!((950..1_050).contains(&timed.len()), "{}", timed.len());
        // Of calls that go round a hundred grains each grain is met.
        let met: std::collections::BTreeSet<_> = timed.iter().map(|call| call % 100).collect();
        assert_eq!((timed[0], met.len()), (0, 100));
        metrics.end(1, Ended::OwnError, Some(Duration::from_micros(3)));
        metrics.end(1, Ended::Closed, Some(Duration::from_micros(3)));
        metrics.end(1, Ended::Failed, None);
        let (first, second) = (metrics.snapshot(0, "T", "I.a"), metrics.snapshot(1, "T", "I.b"));
        assert_eq!((first.calls, first.own_errors, first.failures), (0, 0, 0));
        assert_eq!((second.calls, second.own_errors, second.failures), (all - 1, 1, 1));
        assert_eq!(second.latency.samples(), 1);
    }
}
