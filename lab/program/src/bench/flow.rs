//! A client that calls at a steady pace, whatever becomes of earlier calls, or as fast as its
//! callers can.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use emmer::Client;
use emmer_benches::histogram::Histogram;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::stage::{PATIENCE, Stage};
use crate::grains::quick::Quick;
use emmer_cli::exit::{Failure, Result};

/// Interval at which calls begin.
const TICK: Duration = Duration::from_millis(2);
/// Time for which a call waits for its answer.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// The most calls under way: more than begin within their time at the fastest pace.
const IN_FLIGHT_MAX: usize = 1 << 18;
/// Number of grains that are called for the first time at once.
const WARM_AT_ONCE: u64 = 100;
/// The most failures that are kept word by word; all are counted.
const TOLD_MAX: usize = 10;
/// The number of callers. At a steady pace the calls go to them in turn.
const CALLERS: usize = 64;
/// Time without a failed call after which all is well.
const CALM: Duration = Duration::from_secs(2);
/// A caller rests for this time after a call that failed.
const REST: Duration = Duration::from_millis(1);

/// The way in which the client calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// This many calls a second.
    Steady(u64),
    /// Each caller calls again when it has its answer, and each called grain calls another one.
    Between,
}

/// Results of the calls that ended since the last look.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) answered: u64,
    pub(super) failed: u64,
    /// Number of failed calls that are known not to have run.
    pub(super) unrun: u64,
    /// Calls that did not begin, since too many were under way.
    pub(super) left_out: u64,
    /// The slowest answer.
    pub(super) slowest: Duration,
    /// The times to all answers.
    pub(super) latencies: Histogram,
    /// The longest time between two answers to one caller.
    pub(super) gap: Duration,
    /// When each caller had its last answer.
    heard: BTreeMap<usize, Instant>,
    /// When the last one failed.
    pub(super) last_failure: Option<Instant>,
    /// Some of the failures, word by word.
    pub(super) told: Vec<String>,
}

type Shared = Arc<Mutex<Seen>>;

/// Calls until it is dropped.
pub(super) struct Flow {
    client: Client,
    seen: Shared,
    calls: JoinSet<()>,
}

impl Flow {
    /// Connects, calls every grain once, and continues with `load`.
    pub(super) async fn start(stage: &Stage, grains: u64, load: Load) -> Result<Self> {
        let connecting =
            Client::builder().store(stage.store.clone()).cluster_id(stage.cluster.clone());
        let client = connecting.connect().await;
        let client = client
            .map_err(|error| Failure::other(format!("the client cannot connect: {error}")))?;
        for first in (0..grains).step_by(WARM_AT_ONCE as usize) {
            let mut warm = JoinSet::new();
            for key in first..(first + WARM_AT_ONCE).min(grains) {
                let client = client.clone();
                warm.spawn(async move { (key, turn(&client, key).await) });
            }
            for (key, answer) in warm.join_all().await {
                answer.map_err(|(_, words)| {
                    Failure::other(format!("grain {key} does not answer: {words}"))
                })?;
            }
        }
        let (seen, mut calls) = (Shared::default(), JoinSet::new());
        match load {
            Load::Steady(rate) => {
                calls.spawn(flow(client.clone(), seen.clone(), grains, rate));
            }
            Load::Between => {
                for caller in 0..CALLERS {
                    calls.spawn(between(client.clone(), seen.clone(), grains, caller));
                }
            }
        }
        Ok(Self { client, seen, calls })
    }

    /// Results since the last time.
    pub(super) fn take(&self) -> Seen {
        let mut seen = lock(&self.seen);
        // A gap may have begun already.
        let heard = seen.heard.clone();
        std::mem::replace(&mut *seen, Seen { heard, ..Seen::default() })
    }

    /// Waits until calls are answered again, and none has failed for a while.
    pub(super) async fn settle(&self) -> Result<()> {
        let begun = Instant::now();
        loop {
            let calm = {
                let seen = lock(&self.seen);
                seen.last_failure.unwrap_or(begun).elapsed() > CALM
            };
            if calm {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                return Err(Failure::other("calls still fail long after the fault"));
            }
            tokio::time::sleep(CALM / 10).await;
        }
    }

    /// Ends the calls.
    pub(super) async fn stop(mut self) {
        self.calls.abort_all();
        self.client.close().await;
    }
}

fn lock(seen: &Mutex<Seen>) -> std::sync::MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One call. For a failure, whether it may have run, and the words.
async fn turn(client: &Client, key: u64) -> std::result::Result<(), (bool, String)> {
    let answer = client.grain::<dyn Quick>(key).turn().timeout(CALL_TIMEOUT).await;
    answer.map_err(|error| (error.maybe_executed(), error.to_string()))
}

async fn flow(client: Client, seen: Shared, grains: u64, rate: u64) {
    let room = Arc::new(Semaphore::new(IN_FLIGHT_MAX));
    let (begun, mut calls) = (Instant::now(), 0_u64);
    let mut ticks = tokio::time::interval(TICK);
    loop {
        ticks.tick().await;
        while u128::from(calls) < begun.elapsed().as_millis() * u128::from(rate) / 1_000 {
            let caller = (calls % CALLERS as u64) as usize;
            // A stride without a factor in common with usual numbers of grains.
            let key = calls * 7 % grains;
            calls += 1;
            let Ok(room) = room.clone().try_acquire_owned() else {
                lock(&seen).left_out += 1;
                continue;
            };
            let (client, seen) = (client.clone(), seen.clone());
            tokio::spawn(async move {
                let begun = Instant::now();
                let answer = turn(&client, key).await;
                lock(&seen).note(caller, key, begun.elapsed(), answer);
                drop(room);
            });
        }
    }
}

/// One caller: grains of the lower half call grains of the upper one, so that no two wait for each
/// other.
async fn between(client: Client, seen: Shared, grains: u64, caller: usize) {
    let half = (grains / 2).max(1);
    let mut calls = caller as u64;
    loop {
        calls += CALLERS as u64;
        // Strides without a factor in common with usual numbers of grains.
        let (key, to) = (calls * 7 % half, half + calls * 11 % half);
        let begun = Instant::now();
        let call = client.grain::<dyn Quick>(key).pass(to).timeout(CALL_TIMEOUT);
        let answer = match call.await {
            Ok(None) => Ok(()),
            Ok(Some(failed)) => Err(failed),
            Err(error) => Err((error.maybe_executed(), error.to_string())),
        };
        let failed = answer.is_err();
        lock(&seen).note(caller, key, begun.elapsed(), answer);
        if failed {
            tokio::time::sleep(REST).await;
        }
    }
}

impl Seen {
    fn note(
        &mut self,
        caller: usize,
        key: u64,
        took: Duration,
        answer: std::result::Result<(), (bool, String)>,
    ) {
        match answer {
            Ok(()) => {
                let now = Instant::now();
                if let Some(last) = self.heard.insert(caller, now) {
                    self.gap = self.gap.max(now.saturating_duration_since(last));
                }
                self.answered += 1;
                self.slowest = self.slowest.max(took);
                self.latencies.record(took);
            }
            Err((maybe_executed, words)) => {
                self.failed += 1;
                self.unrun += u64::from(!maybe_executed);
                self.last_failure = Some(Instant::now());
                if self.told.len() < TOLD_MAX {
                    self.told.push(format!("grain {key} after {} ms: {words}", took.as_millis()));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_became_of_calls_is_counted() {
        let mut seen = Seen::default();
        seen.note(0, 1, Duration::from_millis(3), Ok(()));
        seen.note(0, 2, Duration::from_millis(9), Err((true, "it may have run".to_owned())));
        seen.note(0, 3, Duration::from_millis(8), Err((false, "it did not".to_owned())));
        seen.note(1, 4, Duration::from_millis(2), Ok(()));
        assert_eq!((seen.answered, seen.failed, seen.unrun), (2, 2, 1));
        assert_eq!(seen.slowest, Duration::from_millis(3), "of the answers");
        assert_eq!(seen.told[1], "grain 3 after 8 ms: it did not");
        assert!(seen.last_failure.is_some());
        assert_eq!(seen.gap, Duration::ZERO, "one answer to each caller");
        let last = seen.heard[&1];
        seen.note(1, 5, Duration::from_millis(1), Ok(()));
        assert_eq!(seen.gap, seen.heard[&1] - last);
    }
}
