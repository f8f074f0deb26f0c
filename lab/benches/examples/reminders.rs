//! Reminders by the million on three silo processes, and timers by the hundred thousand on one.
//!
//! `cargo run --release -p emmer-benches --example reminders -- 1000000 180`: 1,000,000 reminders
//! with periods of 1 to 60 min in a SQLite file, for 180 seconds. Each silo prints every 30 s its
//! delivered ticks, their lateness, and its memory.
//!
//! `... --example reminders -- timers 100000 60`: 100,000 grains with a timer of 60 s
//! (`PERIOD_MS=60000`). It compares the processor time of their ticks with that of as many one-way
//! calls.
//!
//! `... --example reminders -- wheel 100000`: compares the cost of an entry in the ordered map of
//! the silo's wheel with `tokio-util`'s `DelayQueue`, with 100,000 other entries.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use emmer::prelude::*;
use emmer::store::{Reminder, ReminderTable, Schedule, SystemStore};
use emmer::tables::{ClusterId, GrainId, GrainTypeId, Timestamp};
use emmer_benches::histogram::Histogram;
use emmer_benches::{Result, meter};
use emmer_core::rng::SeededRng;
use tokio::task::JoinSet;
use tokio_util::time::DelayQueue;

const KIND: &str = "bench-chime";
const SILOS: usize = 3;
/// A silo tells this often.
const EVERY: Duration = Duration::from_secs(30);
/// The rows written at once.
const WRITERS: usize = 64;

#[grain_interface(key = u64, grain = "bench-chime")]
trait Chime {
    async fn poke(&mut self);
    async fn start(&mut self, period_ms: u64, first_ms: u64);
}

#[derive(Grain)]
#[grain(idle = "2s")]
struct ChimeGrain {
    #[context]
    ctx: Ctx,
    pokes: u64,
}

/// The lateness of this process's ticks.
static LATE: Mutex<Option<Histogram>> = Mutex::new(None);

#[grain]
impl Chime for ChimeGrain {
    async fn poke(&mut self) {
        self.pokes += 1;
    }

    async fn start(&mut self, period_ms: u64, first_ms: u64) {
        let timer = self.ctx.timer(millis(first_ms)).every(millis(period_ms)).keep_alive();
        timer.run(Self::tick);
    }
}

impl ChimeGrain {
    async fn tick(&mut self) {
        self.pokes += 1;
    }
}

#[grain]
impl ChimeGrain {
    #[reminder("chime")]
    async fn chime(&mut self, tick: Tick) {
        let late = self.ctx.now().saturating_since(tick.due);
        if let Ok(mut seen) = LATE.lock() {
            seen.get_or_insert_with(Histogram::default).record(late);
        }
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match words.as_slice() {
        ["silo", store, secs] => runtime.block_on(silo(store, secs.parse()?)),
        ["timers", count, secs] => runtime.block_on(timers(count.parse()?, secs.parse()?)),
        ["wheel", count] => runtime.block_on(wheel(count.parse()?)),
        [count, secs] => {
            let folder = tempfile::tempdir()?;
            let store = format!("sqlite://{}", folder.path().join("cluster.db").display());
            runtime.block_on(fill(&store, count.parse()?))?;
            drop(runtime);
            watch(&store, secs)
        }
        _ => Err("expected: COUNT SECONDS, timers COUNT SECONDS, or wheel COUNT".into()),
    }
}

/// Writes the reminders.
async fn fill(store: &str, count: u64) -> Result<()> {
    let (store, begun) = (emmer::store::open(store).await?, Instant::now());
    let id = ClusterId::new("bench")?;
    let table = Arc::new(ReminderTable::new(store as Arc<dyn SystemStore>, id.clone(), id));
    table.ensure().await?;
    let now = Timestamp::from_millis(i64::try_from(
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_millis(),
    )?);
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS as u64 {
        let table = table.clone();
        writers.spawn(async move {
            let mut rng = SeededRng::new(writer);
            for key in (writer..count).step_by(WRITERS) {
                let period = Duration::from_millis(60_000 + rng.below(59 * 60_000));
                // The first ones are due when the silos run.
                let start = now + secs(30 + count / 20_000) + rng.duration_below(period);
                let reminder = Reminder {
                    grain: GrainId::new(GrainTypeId::of(KIND), key),
                    grain_type: KIND.into(),
                    name: "chime".into(),
                    schedule: Schedule { start, period: Some(period), end: None },
                    missed: MissedPolicy::Once,
                    fired: 0,
                    last_fired: None,
                    missed_count: 0,
                };
                table.upsert(&reminder).await?;
            }
            Ok::<_, emmer::store::StoreError>(())
        });
    }
    while let Some(written) = writers.join_next().await {
        written??;
    }
    println!("{count} reminders written in {:.0} s", begun.elapsed().as_secs_f64());
    Ok(())
}

/// Starts the silos, and prints their lines.
fn watch(store: &str, secs: &str) -> Result<()> {
    let program = std::env::current_exe()?;
    let mut silos = Vec::new();
    for number in 0..SILOS {
        let mut command = Command::new(&program);
        command.args(["silo", store, secs]).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let lines = child.stdout.take().map(BufReader::new);
        let told = std::thread::spawn(move || {
            for line in lines.into_iter().flat_map(BufRead::lines).map_while(std::io::Result::ok) {
                println!("silo {number}: {line}");
            }
        });
        silos.push((child, told));
    }
    for (mut child, told) in silos {
        child.wait()?;
        told.join().map_err(|_| "a reader panicked")?;
    }
    Ok(())
}

async fn silo(store: &str, time: u64) -> Result<()> {
    let builder = Silo::builder().store(store).cluster_id(ClusterId::new("bench")?);
    let builder = builder.host::<dyn Chime, ChimeGrain>();
    let builder = builder.configure(|options| options.collection_quantum = Some(secs(1)));
    let silo = builder.start().await?;
    let begun = Instant::now();
    while begun.elapsed() < secs(time) {
        let cpu = meter::cpu();
        tokio::time::sleep(EVERY).await;
        let seen = LATE.lock().map_err(|_| "poisoned")?.take().unwrap_or_default();
        let told = seen.quantiles();
        let of = |nanos: Option<u64>| nanos.unwrap_or(0) / 1_000_000;
        let statistics = silo.statistics();
        println!(
            "{:>4.0} s: {} ticks, late p50 {} ms, p99 {} ms, max {} ms; {} in memory, {} missed, \
             {} failed, {} activations, {} MiB, {:.0} % of a core",
            begun.elapsed().as_secs_f64(),
            seen.count(),
            of(told.as_ref().map(|told| told.p50)),
            of(told.as_ref().map(|told| told.p99)),
            of(told.as_ref().map(|told| told.most)),
            statistics.reminders,
            statistics.reminders_missed,
            statistics.reminders_failed,
            statistics.activations,
            meter::resident().unwrap_or(0) >> 20,
            (meter::cpu() - cpu).as_secs_f64() / EVERY.as_secs_f64() * 100.0,
        );
    }
    silo.stop().await?;
    Ok(())
}

async fn timers(count: u64, time: u64) -> Result<()> {
    let builder = Silo::builder().store("memory://timers").cluster_id(ClusterId::new("bench")?);
    let silo = builder.host::<dyn Chime, ChimeGrain>().start().await?;
    let client = silo.grains();
    let period: u64 = std::env::var("PERIOD_MS").map_or(Ok(60_000), |text| text.parse())?;
    let chimes: Vec<_> = (0..count).map(|key| client.grain::<dyn Chime>(key)).collect();
    for (key, chime) in chimes.iter().enumerate() {
        // Spread over the minute, and all of them started before the first is due.
        let first = 20_000 + key as u64 * period / count.max(1);
        chime.start(period, first).await?;
    }
    let idle = measured(secs(10)).await;
    println!("{count} timers wait: {idle:.2} % of a core ({} MiB)", resident());
    tokio::time::sleep(secs(12)).await;
    let turns = silo.statistics().timers;
    let ticking = measured(secs(time)).await;
    let each = (ticking - idle) / 100.0 * time as f64
        / (count as f64 * time as f64 * 1_000.0 / period as f64);
    println!("{turns} timers tick: {ticking:.2} % of a core, {:.2} us for each tick", each * 1e6);
    // As many one-way calls, at the same pace.
    let pace = Duration::from_nanos(60_000_000_000 / count.max(1));
    let begun = Instant::now();
    let cpu = meter::cpu();
    let mut sent = 0u32;
    while begun.elapsed() < secs(time) {
        tokio::time::sleep(millis(1)).await;
        while pace * sent < begun.elapsed() {
            chimes[sent as usize % chimes.len()].poke().send()?;
            sent += 1;
        }
    }
    let used = (meter::cpu() - cpu).as_secs_f64() / begun.elapsed().as_secs_f64() * 100.0;
    println!("beside {sent} one-way calls: {used:.2} % of a core, timers included");
    let cpu = meter::cpu();
    for round in 0..10 {
        for chime in &chimes {
            chime.poke().send()?;
        }
        let _ = round;
    }
    let each = (meter::cpu() - cpu).as_secs_f64() / (10.0 * chimes.len() as f64);
    println!("a one-way call in a row: {:.2} us", each * 1e6);
    silo.stop_now().await;
    Ok(())
}

/// An entry is put in and taken out again, as a call with a deadline would do.
#[allow(clippy::unused_async, reason = "a DelayQueue asks for a runtime")]
async fn wheel(count: u64) -> Result<()> {
    const ROUNDS: u32 = 1_000_000;
    let mut rng = SeededRng::new(1);
    let due: Vec<u64> = (0..u64::from(ROUNDS)).map(|_| rng.below(60_000) + 1_000).collect();
    let others = (0..count).map(|number| 1_000 + number * 60_000 / count.max(1));

    let map: BTreeMap<_, Arc<()>> =
        others.clone().zip(0..).map(|key| (key, Arc::default())).collect();
    let map = Mutex::new(map);
    let one = Arc::new(());
    let meter = meter::Meter::start();
    for (at, number) in due.iter().zip(count..) {
        let key = (*at, number);
        map.lock().map_err(|_| "poisoned")?.insert(key, one.clone());
        map.lock().map_err(|_| "poisoned")?.remove(&key);
    }
    println!("ordered map: {:?} for an entry, in and out", meter.read().1 / ROUNDS);

    let mut queue = DelayQueue::new();
    for at in others {
        queue.insert(Arc::new(()), millis(at));
    }
    let queue = Mutex::new(queue);
    let meter = meter::Meter::start();
    for at in &due {
        let key = queue.lock().map_err(|_| "poisoned")?.insert(one.clone(), millis(*at));
        queue.lock().map_err(|_| "poisoned")?.remove(&key);
    }
    println!("DelayQueue: {:?} for an entry, in and out", meter.read().1 / ROUNDS);
    Ok(())
}

/// The processor time of a while, in percent of a core.
async fn measured(time: Duration) -> f64 {
    let cpu = meter::cpu();
    tokio::time::sleep(time).await;
    (meter::cpu() - cpu).as_secs_f64() / time.as_secs_f64() * 100.0
}

fn resident() -> u64 {
    meter::resident().unwrap_or(0) >> 20
}
