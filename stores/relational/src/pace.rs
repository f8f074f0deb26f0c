//! Estimates of how long requests take: the store refuses requests that cannot end in time.
//!
//! A request that runs out of time has used a connection and the server in vain. If more is asked
//! of a store than it can do, most requests end so. The store therefore refuses a request with too
//! little time left before it sends it, and a request behind too long a queue at once.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use emmer_store::Fault;

/// An estimate moves by this part of the difference to each new duration.
const WEIGHT: u64 = 4;
/// Largest estimate, as a part of the time of an operation: a request with all its time left is
/// always sent, or nothing would show that the store is fast again.
const ESTIMATE_MAX: (u32, u32) = (9, 10);

/// Kinds of requests, which take different times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
}

/// Durations of the latest requests, and the length of the queue.
#[derive(Debug)]
pub(crate) struct Pace {
    /// The time of an operation.
    timeout: Duration,
    /// Number of requests that are worked on at once.
    places: usize,
    /// In microseconds: of reads, of writes.
    kinds: [AtomicU64; 2],
    /// In microseconds: of all requests.
    all: AtomicU64,
    waiting: AtomicUsize,
    /// Number of requests that are being worked on: reads, writes.
    running: [AtomicUsize; 2],
}

/// A request in the queue.
#[derive(Debug)]
pub(crate) struct Waits<'a>(&'a Pace);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request that is being worked on.
#[derive(Debug)]
pub(crate) struct Runs<'a> {
    pace: &'a Pace,
    kind: Kind,
    begun: Instant,
}

impl Runs<'_> {
    /// Notes the time since the request began, at the end of a request.
    pub(crate) fn note(&self, has_failed: bool) {
        self.pace.note(self.kind, self.begun.elapsed(), has_failed);
    }
}

impl Drop for Runs<'_> {
    fn drop(&mut self) {
        self.pace.running[self.kind as usize].fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pace {
    pub(crate) fn new(timeout: Duration, places: usize) -> Self {
        Self {
            timeout,
            places: places.max(1),
            kinds: Default::default(),
            all: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            running: Default::default(),
        }
    }

    /// Notes the time of a request. A failed one has not taken its whole time: it counts only where
    /// it lasted longer than expected.
    fn note(&self, kind: Kind, took: Duration, has_failed: bool) {
        if has_failed && took <= self.estimate(kind) {
            return;
        }
        let (part, of) = ESTIMATE_MAX;
        let took = took.min(self.timeout * part / of);
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        for estimate in [&self.kinds[kind as usize], &self.all] {
            // Two at once may lose one of their steps, which later ones correct.
            let before = estimate.load(Ordering::Relaxed);
            let now = (before * (WEIGHT - 1) + took) / WEIGHT;
            estimate.store(now, Ordering::Relaxed);
        }
    }

    fn estimate(&self, kind: Kind) -> Duration {
        Duration::from_micros(self.kinds[kind as usize].load(Ordering::Relaxed))
    }

    /// Takes a place in the queue.
    ///
    /// # Errors
    /// `Unavailable` if earlier requests are expected to leave it too little time.
    pub(crate) fn enter(&self, kind: Kind) -> Result<Waits<'_>, Fault> {
        let waiting = self.waiting.fetch_add(1, Ordering::Relaxed);
        let waits = Waits(self);
        let rounds = u32::try_from(waiting / self.places).unwrap_or(u32::MAX);
        let before = Duration::from_micros(self.all.load(Ordering::Relaxed)).saturating_mul(rounds);
        let takes = self.estimate(kind);
        if before > self.timeout {
            return Err(Fault::unavailable(format!(
                "the store is slow: {waiting} requests wait, and each takes some {takes:.1?}"
            )));
        }
        Ok(waits)
    }

    /// Begins a request, if it can end in its remaining time. The only request of its kind always
    /// begins: it shows that a server which stood still is back.
    ///
    /// # Errors
    /// `Unavailable` if it is not expected to end in time.
    pub(crate) fn begin(&self, kind: Kind, left: Duration) -> Result<Runs<'_>, Fault> {
        let takes = self.estimate(kind);
        let others = self.running[kind as usize].fetch_add(1, Ordering::Relaxed);
        let runs = Runs { pace: self, kind, begun: Instant::now() };
        if left >= takes || others == 0 {
            return Ok(runs);
        }
        Err(Fault::unavailable(format!(
            "the store is slow: a request takes some {takes:.1?}, and {left:.1?} were left when \
             the connection was made"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A store whose writes take two seconds of five.
    fn slow() -> Pace {
        let pace = Pace::new(SECOND * 5, 8);
        (0..40).for_each(|_| pace.note(Kind::Write, SECOND * 2, false));
        pace
    }

    #[test]
    fn what_cannot_end_in_time_is_refused_before_it_is_sent() {
        let pace = slow();
        let one = pace.begin(Kind::Write, SECOND * 3).unwrap();
        let fault = pace.begin(Kind::Write, SECOND).unwrap_err();
        assert!(fault.detail.contains("takes some 2.0s"), "{}", fault.detail);
        let _read = pace.begin(Kind::Read, SECOND).unwrap();
        assert!(pace.begin(Kind::Read, SECOND / 10).is_ok(), "reads are quick");
        drop(one);
        let one = pace.begin(Kind::Write, SECOND / 10);
        assert!(one.is_ok(), "the only one shows whether the store is still slow");
        assert!(pace.begin(Kind::Write, SECOND / 10).is_err());
    }

    #[test]
    fn a_request_that_failed_counts_where_it_lasted_longer_than_expected() {
        let pace = slow();
        let before = pace.estimate(Kind::Write);
        pace.note(Kind::Write, SECOND / 1_000, true);
        assert_eq!(pace.estimate(Kind::Write), before, "refused at once");
        (0..40).for_each(|_| pace.note(Kind::Write, SECOND * 4, true));
        assert!(pace.begin(Kind::Write, SECOND * 3).is_ok(), "the only one");
        let _one = pace.begin(Kind::Write, SECOND * 5).unwrap();
        assert!(pace.begin(Kind::Write, SECOND * 3).is_err(), "ended by the server after 4 s");
    }

    #[test]
    fn a_queue_is_as_long_as_its_last_request_has_time() {
        let pace = slow();
        let waiting: Vec<_> = (0..100).map_while(|_| pace.enter(Kind::Write).ok()).collect();
        // Three rounds of eight begin within five seconds.
        assert_eq!(waiting.len(), 24);
        drop(waiting);
        assert!(pace.enter(Kind::Write).is_ok());
    }

    #[test]
    fn a_store_that_stood_still_is_asked_again_and_found_fast() {
        let pace = Pace::new(SECOND * 5, 8);
        (0..100).for_each(|_| pace.note(Kind::Write, SECOND * 60, false));
        assert!(pace.enter(Kind::Write).is_ok() && pace.begin(Kind::Write, SECOND * 5).is_ok());
        (0..10).for_each(|_| pace.note(Kind::Write, SECOND / 1_000, false));
        assert!(pace.begin(Kind::Write, SECOND).is_ok());
    }
}
