//! Grains that move: the processor time of a move, the pause of its callers, and a silo with 50,000
//! busy grains that leaves under load.
//!
//! `cargo run --release -p emmer-benches --example moves`. The silos and the callers are in this
//! process, and talk over its loopback: the processor time is that of both sides together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use emmer::prelude::*;
use emmer::store::{MemoryStore, SystemStore};
use emmer_benches::Result;
use emmer_benches::meter::Meter;
use emmer_report::numbers::record;
use emmer_report::{Goal, quantile};

/// Grains of the silo that leaves.
const GRAINS: u64 = 50_000;
/// Bytes in the memory of each.
const BYTES: usize = 1_024;
/// Moves of which the pause is measured.
const PAUSES: u64 = 4_000;
/// Callers while the silo leaves.
const CALLERS: u64 = 16;

#[grain_interface(key = u64, grain = "bench-moves")]
trait Moves {
    /// Counts in memory.
    async fn count(&mut self) -> u64;
    async fn go(&self, to: String);
}

#[derive(Grain)]
#[placement(prefer_local)]
struct MovesGrain {
    #[context]
    ctx: Ctx,
    #[carry]
    count: u64,
    #[carry]
    memory: String,
}

#[grain]
impl Moves for MovesGrain {
    async fn count(&mut self) -> u64 {
        if self.memory.is_empty() {
            self.memory = "x".repeat(BYTES);
        }
        self.count += 1;
        self.count
    }

    async fn go(&self, to: String) {
        if let Ok(to) = to.parse() {
            self.ctx.move_to(to);
        }
    }
}

async fn start(store: &Arc<dyn SystemStore>) -> Result<Silo> {
    let silo = Silo::builder()
        .store(store.clone())
        .cluster_id("bench")
        .listen("127.0.0.1:0")
        .gateway("127.0.0.1:0")
        .configure(|options| options.shutdown_timeout = Duration::from_secs(300))
        .host::<dyn Moves, MovesGrain>();
    Ok(silo.start().await?)
}

#[tokio::main]
async fn main() -> Result<()> {
    let store: Arc<dyn SystemStore> = Arc::new(MemoryStore::new());
    let (one, two) = (start(&store).await?, start(&store).await?);
    let mut goals = pauses(&one, &two).await?;
    goals.extend(leave(&store, &one, false).await?);
    goals.extend(leave(&store, &one, true).await?);
    for goal in &goals {
        println!("{:<64} {:>10.3} (goal {})", goal.what, goal.reached.unwrap_or(0.0), goal.at_most);
    }
    record("moves", &goals)?;
    Ok(())
}

/// Grains move one after the other, each while a caller calls it.
async fn pauses(one: &Silo, two: &Silo) -> Result<Vec<Goal>> {
    let to = two.address().to_string();
    let mut took = Vec::new();
    for key in 0..PAUSES {
        let grain = one.grain::<dyn Moves>(1_000_000 + key);
        grain.count().await?;
        grain.go(to.clone()).await?;
        let began = Instant::now();
        if grain.count().await? != 2 {
            return Err("a grain has lost its memory".into());
        }
        took.push(began.elapsed());
    }
    took.sort_unstable();
    let p99 = quantile(&took, 0.99).unwrap_or_default().as_secs_f64() * 1e3;
    println!("{} of {PAUSES} grains moved", one.statistics().left);
    Ok(vec![Goal::at_most("pause of a caller while its grain moves, p99, ms", p99, 5.0)])
}

/// A silo leaves with all its grains, with callers or without.
async fn leave(store: &Arc<dyn SystemStore>, one: &Silo, called: bool) -> Result<Vec<Goal>> {
    let three = start(store).await?;
    let grains = three.grains();
    let first = if called { 2 * GRAINS } else { 0 };
    for key in first..first + GRAINS {
        grains.grain::<dyn Moves>(key).count().await?;
    }
    let over = Arc::new(AtomicBool::new(false));
    let mut callers = Vec::new();
    for n in 0..if called { CALLERS } else { 0 } {
        let (grains, over) = (one.grains(), over.clone());
        callers.push(tokio::spawn(async move {
            let (mut calls, mut failed, mut longest) = (0u64, 0u64, Duration::ZERO);
            let mut key = n * 977;
            while !over.load(Ordering::Relaxed) {
                key = (key + 7_919) % GRAINS;
                let began = Instant::now();
                failed += u64::from(grains.grain::<dyn Moves>(first + key).count().await.is_err());
                longest = longest.max(began.elapsed());
                calls += 1;
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            (calls, failed, longest)
        }));
    }
    let meter = Meter::start();
    three.stop().await?;
    let (wall, cpu) = meter.read();
    over.store(true, Ordering::Relaxed);
    let (mut calls, mut failed, mut longest) = (0, 0, Duration::ZERO);
    for caller in callers {
        let (more, bad, long) = caller.await?;
        (calls, failed, longest) = (calls + more, failed + bad, longest.max(long));
    }
    let left = three.statistics().left;
    println!("{left} of {GRAINS} grains moved in {wall:?}, {calls} calls meanwhile");
    if !called {
        let each = cpu.as_secs_f64() * 1e6 / GRAINS as f64;
        return Ok(vec![Goal::at_most(
            "a move with 1 KB of memory, both sides, µs of CPU",
            each,
            60.0,
        )]);
    }
    Ok(vec![
        Goal::at_most("a silo with 50,000 busy grains leaves, s", wall.as_secs_f64(), 10.0),
        Goal::at_most(
            "the longest wait of a caller meanwhile, ms",
            longest.as_secs_f64() * 1e3,
            250.0,
        ),
        Goal::at_most("calls that failed meanwhile", failed as f64, 0.0),
    ])
}
