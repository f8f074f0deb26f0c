//! Calls while an operator looks: the throughput of calls within a silo and over a connection, with
//! and without a `Gather` that asks for everything once a second, in turns in one process.
//!
//! `cargo run --release -p emmer-benches --example watched` prints the ratios. The silo has 100,000
//! other grains in memory, which each look at the types and the queues goes through.

#![allow(clippy::print_stdout, reason = "it is what this program is for")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use emmer::Silo;
use emmer::console::{Gather, Wants};
use emmer::options::StoreSource;
use emmer::store::{MemoryStore, SystemStore};
use emmer_benches::grains::{Cell, CellRef};
use emmer_benches::{Result, silos};
use emmer_report::Goal;
use emmer_report::numbers::record;

const ROUNDS: usize = 9;
const WINDOW: Duration = Duration::from_secs(2);
const EVERY: Duration = Duration::from_secs(1);
const GRAINS: u64 = 100_000;
const ALL: Wants =
    Wants { types: true, methods: true, hot: true, turns: true, queues: true, reminders: true };

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let store: Arc<dyn SystemStore> = Arc::new(MemoryStore::new());
    let builder = silos::builder(StoreSource::Opened(store.clone()))?;
    let silo = silos::hosting(builder).gateway("127.0.0.1:0").start().await?;
    let client = silos::client(StoreSource::Opened(store)).await?;
    for key in 0..GRAINS {
        silo.grain::<dyn Cell>(1_000 + key).bump(1).await?;
    }
    let mut goals = Vec::new();
    let references = [
        ("within a silo", silo.grain::<dyn Cell>(1u64)),
        ("over a connection", client.grain::<dyn Cell>(2u64)),
    ];
    for (what, cell) in references {
        calls(&cell).await?;
        let mut ratios = Vec::new();
        for _ in 0..ROUNDS {
            let alone = calls(&cell).await?;
            let looking = tokio::spawn(look(Gather::new(silo.admin())));
            let watched = calls(&cell).await?;
            looking.abort();
            ratios.push(alone / watched);
        }
        ratios.sort_by(f64::total_cmp);
        let (ratio, least, most) = (ratios[ROUNDS / 2], ratios[0], ratios[ROUNDS - 1]);
        println!("calls {what}, watched: {ratio:.3} x the time ({least:.3} to {most:.3})");
        let what = format!("a call {what} while an operator looks: times one while none does");
        goals.push(Goal::at_most(what, ratio, 1.02));
    }
    record("watched", &goals)?;
    end(silo).await
}

async fn end(silo: Silo) -> Result<()> {
    silo.stop().await?;
    Ok(())
}

/// Calls in a second, of one caller in one window.
#[expect(clippy::cast_precision_loss, reason = "a rate")]
async fn calls(cell: &CellRef) -> Result<f64> {
    let (begun, mut count) = (Instant::now(), 0_u64);
    while begun.elapsed() < WINDOW {
        for n in 0..1_000 {
            cell.bump(n).await?;
        }
        count += 1_000;
    }
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}

async fn look(mut gather: Gather) {
    let mut ticks = tokio::time::interval(EVERY);
    loop {
        ticks.tick().await;
        gather.step(ALL).await;
    }
}
