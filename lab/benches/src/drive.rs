//! Callers in closed loops: each makes its next call when the last one was answered.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::Result;
use crate::histogram::Histogram;
use crate::meter::Meter;

/// Something within the process that answers.
pub trait Ask: Clone + Send + Sync + 'static {
    /// Answers with `n + 1`.
    fn ask(&self, n: u64) -> impl Future<Output = Result<u64>> + Send;
}

/// Something within the process that takes messages without an answer.
pub trait Tell: Clone + Send + Sync + 'static {
    /// Hands one message over, waiting while there is no room.
    fn tell(&self) -> impl Future<Output = Result<()>> + Send;
    /// Number of messages that were worked off.
    fn told(&self) -> impl Future<Output = Result<u64>> + Send;
}

/// A process that sends every body back.
pub trait Exchange: Clone + Send + Sync + 'static {
    /// Returns the length of the answer. `call` numbers the call, for contenders that choose a
    /// target.
    fn exchange(&self, body: &Bytes, call: u64) -> impl Future<Output = Result<usize>> + Send;
}

/// A small generator of numbers, the same for every contender: xorshift.
#[derive(Debug)]
pub struct Dice(u64);

impl Dice {
    /// The one of caller `number`.
    pub const fn of(number: u64) -> Self {
        Self(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(number + 1) | 1)
    }

    /// One of `0..below`.
    pub fn below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % (below.max(1) as u64)).unwrap_or(0)
    }
}

/// Time and work of a run of callers.
#[derive(Debug)]
pub struct Run {
    /// Calls answered.
    pub calls: u64,
    /// Wall and processor time.
    pub took: (Duration, Duration),
    /// Time that each call took; empty when that was not asked for.
    pub latency: Histogram,
}

/// `callers` callers together make about `calls` calls, each to one of `targets` at random.
///
/// # Errors
/// The first call that failed or was answered wrongly.
pub async fn ask<A: Ask>(
    targets: &Arc<Vec<A>>,
    callers: usize,
    calls: u64,
    timed: bool,
) -> Result<Run> {
    let each = (calls / callers as u64).max(1);
    let mut running = JoinSet::new();
    let meter = Meter::start();
    for caller in 0..callers {
        let targets = targets.clone();
        running.spawn(async move {
            let mut latency = Histogram::default();
            let mut dice = Dice::of(caller as u64);
            for n in 0..each {
                let target = &targets[dice.below(targets.len())];
                let begun = timed.then(Instant::now);
                if target.ask(n).await? != n + 1 {
                    return Err("a wrong answer".into());
                }
                if let Some(begun) = begun {
                    latency.record(begun.elapsed());
                }
            }
            Ok(latency)
        });
    }
    let latency = gather(running).await?;
    Ok(Run { calls: each * callers as u64, took: meter.read(), latency })
}

/// One caller sends `messages` messages; ends when all were worked off.
///
/// # Errors
/// The first message that was refused.
pub async fn tell<T: Tell>(target: &T, messages: u64) -> Result<Run> {
    let before = target.told().await?;
    let meter = Meter::start();
    for _ in 0..messages {
        target.tell().await?;
    }
    while target.told().await? < before + messages {
        tokio::task::yield_now().await;
    }
    Ok(Run { calls: messages, took: meter.read(), latency: Histogram::default() })
}

/// Callers that exchange bodies until they are stopped.
#[derive(Debug)]
pub struct Exchanging {
    stop: Arc<AtomicBool>,
    recording: Arc<AtomicBool>,
    counted: Arc<Notify>,
    callers: JoinSet<Result<Histogram>>,
}

impl Exchanging {
    /// Starts one caller for each of `targets`.
    pub fn start<E: Exchange>(targets: Vec<E>, body_bytes: usize) -> Self {
        let (stop, recording) =
            (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let counted = Arc::new(Notify::new());
        let mut callers = JoinSet::new();
        for (caller, target) in targets.into_iter().enumerate() {
            let (stop, recording, counted) = (stop.clone(), recording.clone(), counted.clone());
            // Each caller has a body of its own, so that they share no reference counts.
            let body = Bytes::from(vec![7u8; body_bytes]);
            callers.spawn(async move {
                let mut latency = Histogram::default();
                // Callers begin far apart, so that they do not choose alike.
                let mut call = (caller as u64) << 32;
                while !stop.load(Ordering::Relaxed) {
                    call += 1;
                    let begun = Instant::now();
                    if target.exchange(&body, call).await? != body.len() {
                        return Err("a wrong answer".into());
                    }
                    if recording.load(Ordering::Relaxed) {
                        latency.record(begun.elapsed());
                        if latency.count() == 1 {
                            counted.notify_one();
                        }
                    }
                }
                Ok(latency)
            });
        }
        Self { stop, recording, counted, callers }
    }

    /// Waits until a call was counted, at most `at_most`: a busy machine may answer no call within
    /// a short window, which would measure nothing.
    pub async fn counted(&self, at_most: Duration) {
        let _ = tokio::time::timeout(at_most, self.counted.notified()).await;
    }

    /// Turns the counting of calls on or off.
    pub fn record(&self, on: bool) {
        self.recording.store(on, Ordering::Relaxed);
    }

    /// Ends the callers; how long the calls took that were counted.
    ///
    /// # Errors
    /// The first call that failed or was answered wrongly.
    pub async fn stop(self) -> Result<Histogram> {
        self.stop.store(true, Ordering::Relaxed);
        gather(self.callers).await
    }
}

async fn gather(mut running: JoinSet<Result<Histogram>>) -> Result<Histogram> {
    let mut all = Histogram::default();
    while let Some(ended) = running.join_next().await {
        all.add(&ended??);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::floors::local::{Inline, Mpsc};

    #[tokio::test]
    async fn every_call_is_made_and_counted() {
        let targets = Arc::new((0..5).map(|_| Mpsc::start()).collect::<Vec<_>>());
        let run = ask(&targets, 4, 100, true).await.unwrap();
        assert_eq!((run.calls, run.latency.count()), (100, 100));
        assert_eq!(
            ask(&Arc::new(vec![Inline::start()]), 3, 10, false).await.unwrap().latency.count(),
            0
        );
        assert_eq!(tell(&targets[0], 1_000).await.unwrap().calls, 1_000);
        assert_eq!(targets[0].told().await.unwrap(), 1_000);
    }

    #[test]
    fn dice_reach_everybody() {
        let mut dice = Dice::of(0);
        let seen: std::collections::BTreeSet<_> = (0..1_000).map(|_| dice.below(10)).collect();
        assert_eq!(seen.len(), 10);
    }
}
