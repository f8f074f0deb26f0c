//! The turns of single grains, one after the other, while an operator has them traced.
//!
//! A trace has every call of the grain's class timed ([`MethodMetrics::time_all`]); classes without
//! a trace pay nothing. The first calls of a thread may be missing.
//!
//! [`MethodMetrics::time_all`]: crate::metrics::MethodMetrics::time_all

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use emmer_core::{GrainId, GrainTypeId, Instant};
use parking_lot::Mutex;

use crate::metrics::Ended;

/// Number of grains that a silo traces at once.
const TRACED_MAX: usize = 8;

/// Number of turns that are kept of each.
const TURNS_MAX: usize = 500;

/// Time after the end of a trace in which its turns can be read.
const KEPT_FOR: Duration = Duration::from_secs(300);

/// A turn of a traced grain.
#[derive(Clone)]
pub(crate) struct TracedTurn {
    /// Its number in the trace, from 1.
    pub(crate) number: u64,
    /// `Interface.method`.
    pub(crate) method: &'static str,
    /// The grain that made the call.
    pub(crate) caller: Option<GrainId>,
    /// Stamp of its arrival.
    pub(crate) arrived: NonZeroU64,
    /// Time from its arrival to its end.
    pub(crate) took: Duration,
    pub(crate) end: Ended,
}

struct Trace {
    grain: GrainId,
    until: Instant,
    last: u64,
    turns: VecDeque<TracedTurn>,
}

/// The traces of a silo.
#[derive(Default)]
pub(crate) struct Traces {
    /// True while there is a trace.
    is_on: AtomicBool,
    kept: Mutex<Vec<Trace>>,
}

impl Traces {
    /// Returns true while there is a trace.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Traces a grain until then, or prolongs the trace that it has. False if the silo traces as
    /// many grains as it may.
    pub(super) fn begin(&self, grain: &GrainId, until: Instant) -> bool {
        let mut kept = self.kept.lock();
        if let Some(trace) = kept.iter_mut().find(|trace| trace.grain == *grain) {
            trace.until = trace.until.max(until);
        } else {
            if kept.len() >= TRACED_MAX {
                return false;
            }
            let (grain, turns) = (grain.clone(), VecDeque::new());
            kept.push(Trace { grain, until, last: 0, turns });
        }
        self.is_on.store(true, Ordering::Relaxed);
        true
    }

    /// A turn has ended that had arrived at `arrived`.
    #[cold]
    pub(super) fn note(
        &self,
        grain: &GrainId,
        method: &'static str,
        caller: Option<&GrainId>,
        arrived: NonZeroU64,
        (took, end): (Duration, Ended),
    ) {
        let mut kept = self.kept.lock();
        let trace = kept.iter_mut().find(|trace| trace.grain == *grain);
        let is_on = |trace: &&mut Trace| arrived.get() < trace.until.as_nanos();
        let Some(trace) = trace.filter(is_on) else { return };
        trace.last += 1;
        if trace.turns.len() >= TURNS_MAX {
            trace.turns.pop_front();
        }
        let (number, caller) = (trace.last, caller.cloned());
        trace.turns.push_back(TracedTurn { number, method, caller, arrived, took, end });
    }

    /// The turns of a trace, oldest first, and the time that is left of the trace. None without a
    /// trace.
    pub(super) fn of_grain(
        &self,
        grain: &GrainId,
        now: Instant,
    ) -> Option<(Vec<TracedTurn>, Duration)> {
        let kept = self.kept.lock();
        let trace = kept.iter().find(|trace| trace.grain == *grain)?;
        Some((trace.turns.iter().cloned().collect(), trace.until.saturating_since(now)))
    }

    /// Forgets old traces. Returns the types of grains that are traced still.
    pub(super) fn rest(&self, now: Instant) -> Vec<GrainTypeId> {
        let mut kept = self.kept.lock();
        kept.retain(|trace| now.saturating_since(trace.until) < KEPT_FOR);
        self.is_on.store(!kept.is_empty(), Ordering::Relaxed);
        let live = kept.iter().filter(|trace| now < trace.until);
        live.map(|trace| trace.grain.grain_type()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_has_the_last_turns_of_its_grain_and_ends() {
        let (traces, at) = (Traces::default(), |s: u64| Instant::from_nanos(s * 1_000_000_000));
        let grain = |n: u64| GrainId::new(GrainTypeId::of("t"), n);
        let stamp = |n: u64| NonZeroU64::new(n).unwrap();
        assert!(traces.begin(&grain(1), at(60)) && traces.is_on());
        let note = |n: u64, at: u64| {
            traces.note(&grain(n), "I.m", None, stamp(at), (Duration::from_nanos(at), Ended::Done));
        };
        (1..=1_200).for_each(|n| note(n % 2, n));
        let (turns, left) = traces.of_grain(&grain(1), at(50)).unwrap();
        assert_eq!((turns.len(), left), (TURNS_MAX, Duration::from_secs(10)));
        let numbers = (turns[0].number, turns[499].number, turns[499].took);
        assert_eq!(numbers, (101, 600, Duration::from_nanos(1_199)));
        note(1, 61_000_000_000);
        assert_eq!(traces.of_grain(&grain(1), at(61)).unwrap().0[499].number, 600);
        assert_eq!(traces.rest(at(59)), [GrainTypeId::of("t")]);
        assert!(traces.rest(at(60)).is_empty() && traces.is_on());
        assert!(traces.rest(at(360)).is_empty() && !traces.is_on());
        let began = (0..20).filter(|n| traces.begin(&grain(*n), at(400))).count();
        assert_eq!(began, TRACED_MAX);
    }
}
