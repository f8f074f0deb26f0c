//! The process that calls slow grains: `emmer-lab bench callers`, started by measurements. Its
//! calls do not wait for each other's answers, so a silent silo takes no load from the others.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use clap::builder::RangedU64ValueParser;
use emmer::Client;
use tokio::sync::{Semaphore, oneshot};

use crate::grains::slow::Slow;
use crate::grains::turn_log;
use emmer::config::Settings;
use emmer_cli::commands::store;
use emmer_cli::exit::{Failure, Result};

/// Interval at which calls begin.
const TICK: Duration = Duration::from_millis(5);
/// Time between two reports of the sums.
const TELL: Duration = Duration::from_millis(200);
/// Number of grains that are called at one time.
const GRAINS: u64 = 400;
/// Time after which another grain takes the place of a called one.
const GRAIN_LIFE: Duration = Duration::from_secs(16);
/// Time for which a call waits for its answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// The most calls under way.
const IN_FLIGHT_MAX: usize = 4_096;
/// A turn's sleep, all its steps together, in milliseconds.
const SLEEP_MS: std::ops::RangeInclusive<u64> = 5..=500;
/// The most steps it has.
const STEPS_MAX: u64 = 4;
/// Distance in keys of the grain that a turn asks; further only, so that no two wait for each
/// other.
const NEIGHBOURS: u64 = 20;

#[derive(clap::Args)]
pub(super) struct Args {
    #[arg(long)]
    pub(super) cluster_id: String,
    /// Other calls for another number
    #[arg(long)]
    pub(super) seed: u64,
    /// Calls in a second
    #[arg(long, value_parser = RangedU64ValueParser::<u64>::new().range(1..=10_000))]
    pub(super) rate: u64,
}

/// Counts of a caller so far.
#[derive(Default)]
struct Seen {
    answered: AtomicU64,
    failed: AtomicU64,
    slowest_us: AtomicU64,
}

/// Calls until the standard input ends.
pub(super) async fn run(args: &Args, settings: &Settings) -> Result<()> {
    let store = store::open(&settings.required("store", "--store")?.text).await?;
    let connecting = Client::builder()
        .store(store)
        .cluster_id(settings.cluster()?)
        .configure(|options| options.response_timeout = CALL_TIMEOUT);
    let client = connecting.connect().await;
    let client =
        client.map_err(|error| Failure::other(format!("the client cannot connect: {error}")))?;
    let mut stop = stdin_ended()?;
    let seen = Arc::new(Seen::default());
    let room = Arc::new(Semaphore::new(IN_FLIGHT_MAX));
    let mut dice = Dice(args.seed);
    let begun = Instant::now();
    let (mut calls, mut told) = (0, Instant::now());
    let mut ticks = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = &mut stop => break,
        }
        let due = begun.elapsed().as_millis() * u128::from(args.rate) / 1_000;
        while calls < due {
            calls += 1;
            // With no room left the call is left out: the load is what the cluster bears.
            if let Ok(permit) = room.clone().try_acquire_owned() {
                let (client, seen, mut dice) = (client.clone(), seen.clone(), dice.split());
                tokio::spawn(async move {
                    let begun = Instant::now();
                    let answered = call(&client, &mut dice).await;
                    let count = if answered { &seen.answered } else { &seen.failed };
                    count.fetch_add(1, Relaxed);
                    let took = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
                    seen.slowest_us.fetch_max(took, Relaxed);
                    drop(permit);
                });
            }
        }
        if told.elapsed() >= TELL {
            told = Instant::now();
            tell(&seen)?;
        }
    }
    tell(&seen)?;
    client.close().await;
    Ok(())
}

/// One line: answered, failed, and the slowest of both since the last line in microseconds.
fn tell(seen: &Seen) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let (answered, failed) = (seen.answered.load(Relaxed), seen.failed.load(Relaxed));
    writeln!(out, "{answered} {failed} {}", seen.slowest_us.swap(0, Relaxed))
        .and_then(|()| out.flush())
        .map_err(Failure::other)
}

/// One call, of a random kind. Returns true if it was answered.
async fn call(client: &Client, dice: &mut Dice) -> bool {
    let key = first_key() + dice.below(GRAINS);
    let grain = client.grain::<dyn Slow>(key);
    match dice.below(100) {
        0..35 => grain.quick().await.is_ok(),
        35..38 => grain.quick().send().is_ok(),
        38..40 => grain.leave().await.is_ok(),
        40..68 => grain.work(dice.steps()).await.is_ok(),
        68..90 => grain.look(dice.steps()).await.is_ok(),
        _ => {
            let other = key + 1 + dice.below(NEIGHBOURS);
            matches!(grain.ask(other, dice.steps()).await, Ok(true))
        }
    }
}

/// The first key to call now. All processes of a machine agree on it, because they read one clock.
fn first_key() -> u64 {
    let each = u64::try_from(GRAIN_LIFE.as_nanos()).unwrap_or(u64::MAX) / GRAINS;
    turn_log::now() / each
}

/// Random numbers (`SplitMix64`).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn split(&mut self) -> Self {
        Self(self.next())
    }

    /// Sleeps of one turn: short ones and long ones, in a few steps.
    fn steps(&mut self) -> Vec<u32> {
        let steps = 1 + self.below(STEPS_MAX);
        let doublings = (SLEEP_MS.end() / SLEEP_MS.start()).ilog2() + 1;
        let most =
            (SLEEP_MS.start() << (1 + self.below(u64::from(doublings)))).min(*SLEEP_MS.end());
        let whole = SLEEP_MS.start() + self.below(most - SLEEP_MS.start() + 1);
        (0..steps).map(|_| u32::try_from(whole / steps).unwrap_or(u32::MAX)).collect()
    }
}

/// The parent process holds the standard input open as long as this one shall call.
fn stdin_ended() -> Result<oneshot::Receiver<()>> {
    let (ended, stop) = oneshot::channel();
    let watch = move || {
        let mut nowhere = [0; 64];
        while matches!(std::io::stdin().lock().read(&mut nowhere), Ok(1..)) {}
        // The receiver may be gone.
        let _ = ended.send(());
    };
    let thread = std::thread::Builder::new().name("emmer-stdin".to_owned()).spawn(watch);
    thread.map_err(|error| {
        Failure::other(format!("no thread to watch the standard input: {error}"))
    })?;
    Ok(stop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_stay_in_their_range() {
        let mut dice = Dice(7);
        for _ in 0..1_000 {
            let steps = dice.steps();
            let whole: u64 = steps.iter().map(|step| u64::from(*step)).sum();
            assert!(
                (1..=STEPS_MAX).contains(&(steps.len() as u64)) && whole <= *SLEEP_MS.end(),
                "{steps:?}"
            );
        }
    }
}
