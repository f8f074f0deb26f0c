//! A client that calls grains all the while, and its results.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use emmer::Client;
use tokio::task::JoinSet;

use super::stage::Stage;
use crate::grains::Probe;
use emmer_cli::exit::{Failure, Result};

/// Pace of a client's calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Number of calls that are under way at once, at most.
    pub(super) callers: u64,
    /// Time for which each caller rests between two calls.
    pub(super) rest: Duration,
}

impl Pace {
    /// Load, but not all that the machine can bear.
    pub(super) const STEADY: Self = Self { callers: 16, rest: Duration::from_millis(5) };

    /// About `rate` calls a second, as long as they are answered in a few milliseconds.
    pub(super) fn of_rate(rate: u64) -> Self {
        let callers = (rate / CALLS_OF_A_CALLER).max(1);
        Self { callers, rest: Duration::from_micros(1_000_000 * callers / rate.max(1)) }
    }
}

/// Calls a second of one caller, where a rate is asked for.
const CALLS_OF_A_CALLER: u64 = 50;
/// Number of grains that are called again and again.
const GRAINS: u64 = 64;
/// Number of calls of a caller of which one goes to a grain that was never called before.
const FRESH_EVERY: u64 = 10;
/// Time for which a call waits for its answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// The most failures that are kept word by word; all are counted.
const FAILURES_KEPT_MAX: usize = 20;

/// Results that the client saw.
#[derive(Debug, Default)]
struct Seen {
    answered: AtomicU64,
    failed: AtomicU64,
    /// Number of failed calls that are known not to have run.
    unrun: AtomicU64,
    slowest_us: AtomicU64,
    failures: Mutex<Vec<String>>,
}

/// Results that the client saw up to one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Snapshot {
    pub(super) answered: u64,
    pub(super) failed: u64,
    /// Number of failed calls that are known not to have run.
    pub(super) unrun: u64,
    /// The slowest answer since the last snapshot.
    pub(super) slowest: Duration,
}

/// Calls until it is dropped.
pub(super) struct Load {
    client: Client,
    seen: Arc<Seen>,
    callers: JoinSet<()>,
}

impl Load {
    /// Connects, calls every grain once, and continues.
    pub(super) async fn start(stage: &Stage, pace: Pace) -> Result<Self> {
        let connecting =
            Client::builder().store(stage.store.clone()).cluster_id(stage.cluster.clone());
        let client = connecting.connect().await;
        let client = client
            .map_err(|error| Failure::other(format!("the client cannot connect: {error}")))?;
        for key in 0..GRAINS {
            let turn = client.grain::<dyn Probe>(key).turn().timeout(CALL_TIMEOUT).await;
            turn.map_err(|error| Failure::other(format!("grain {key} does not answer: {error}")))?;
        }
        let seen = Arc::new(Seen::default());
        let mut callers = JoinSet::new();
        for caller in 0..pace.callers {
            callers.spawn(call_for_ever(client.clone(), caller, pace, seen.clone()));
        }
        Ok(Self { client, seen, callers })
    }

    /// Results so far.
    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot {
            answered: self.seen.answered.load(Relaxed),
            failed: self.seen.failed.load(Relaxed),
            unrun: self.seen.unrun.load(Relaxed),
            slowest: Duration::from_micros(self.seen.slowest_us.swap(0, Relaxed)),
        }
    }

    /// The first failures, word by word.
    pub(super) fn failures(&self) -> Vec<String> {
        self.seen.failures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends the calls.
    pub(super) async fn stop(mut self) {
        self.callers.abort_all();
        self.client.close().await;
    }
}

async fn call_for_ever(client: Client, caller: u64, pace: Pace, seen: Arc<Seen>) {
    for number in 0_u64.. {
        let known = (caller + number * pace.callers) % GRAINS;
        let fresh = GRAINS + caller + number * pace.callers;
        let key = if number % FRESH_EVERY == FRESH_EVERY - 1 { fresh } else { known };
        let begun = Instant::now();
        let answer = client.grain::<dyn Probe>(key).turn().timeout(CALL_TIMEOUT).await;
        let took = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        match answer {
            Ok(_) => {
                seen.answered.fetch_add(1, Relaxed);
                seen.slowest_us.fetch_max(took, Relaxed);
            }
            Err(error) => {
                seen.failed.fetch_add(1, Relaxed);
                seen.unrun.fetch_add(u64::from(!error.maybe_executed()), Relaxed);
                let mut failures = seen.failures.lock().unwrap_or_else(PoisonError::into_inner);
                if failures.len() < FAILURES_KEPT_MAX {
                    failures.push(format!("grain {key} after {} ms: {error}", took / 1_000));
                }
            }
        }
        tokio::time::sleep(pace.rest).await;
    }
}
