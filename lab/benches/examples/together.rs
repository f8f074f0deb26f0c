//! Grains that come together (`repartition`): which part of the calls of a chat and of flights
//! stays on its silo, and what a call costs, before and after.
//!
//! `cargo run --release -p emmer-benches --example together`. Four silos in this process talk over
//! its loopback. In the chat 4,000 people talk to one of 200 rooms each. In the flights 4,043
//! aircraft call the airports from which and to which they flew in 2013, in that order. It takes
//! twelve minutes: silos exchange grains once a minute.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use emmer::prelude::*;
use emmer::store::{MemoryStore, SystemStore};
use emmer_benches::Result;
use emmer_benches::meter::Meter;
use emmer_example_flights::{BUNDLED, file};
use emmer_report::Goal;
use emmer_report::numbers::record;

/// Silos.
const SILOS: usize = 4;
/// Callers, each of which has one grain talk at a time.
const CALLERS: usize = 32;
/// Calls of a grain that talks once.
const BATCH: usize = 16;
/// Time of a measurement. The first ends before the first exchange.
const MEASURED: Duration = Duration::from_secs(40);
/// Time for exchanges between the two measurements.
const RUNS_FOR: Duration = Duration::from_secs(260);

#[grain_interface(key = u64, grain = "bench-talker")]
trait Talker {
    /// Calls these grains, one after the other. Returns how many of them are on its silo.
    async fn talk(&self, to: Vec<u64>) -> u64;
    /// Its silo.
    async fn hear(&mut self) -> String;
}

#[derive(Grain)]
struct TalkerGrain {
    #[context]
    ctx: Ctx,
    #[carry]
    heard: u64,
}

fn here(ctx: &Ctx) -> String {
    ctx.silo().map(|silo| silo.to_string()).unwrap_or_default()
}

#[grain]
impl Talker for TalkerGrain {
    async fn talk(&self, to: Vec<u64>) -> u64 {
        let mut near = 0;
        for key in to {
            let at = self.ctx.grains().grain::<dyn Talker>(key).hear().await;
            near += u64::from(at.is_ok_and(|at| at == here(&self.ctx)));
        }
        near
    }

    async fn hear(&mut self) -> String {
        self.heard += 1;
        here(&self.ctx)
    }
}

/// Grains that talk, each with the grains that it calls then.
type Talks = Vec<(u64, Vec<u64>)>;

/// Rooms of twenty people.
fn chat() -> Talks {
    (0..4_000).map(|person| (1_000 + person, vec![person / 20; BATCH])).collect()
}

/// Each aircraft with the airports of its flights.
fn flights() -> Result<Talks> {
    let mut airports: BTreeMap<Arc<str>, u64> = BTreeMap::new();
    let mut by_aircraft: BTreeMap<Arc<str>, Vec<u64>> = BTreeMap::new();
    for departure in file::read(BUNDLED, None)? {
        let Some(tail) = &departure.tail else { continue };
        let calls = by_aircraft.entry(tail.clone()).or_default();
        for code in [&departure.origin, &departure.dest] {
            let next = airports.len() as u64;
            calls.push(*airports.entry(code.clone()).or_insert(next));
        }
    }
    let numbered = (1_000u64..).zip(by_aircraft.into_values());
    let talks = numbered.flat_map(|(aircraft, calls)| {
        calls.chunks(BATCH).map(|part| (aircraft, part.to_vec())).collect::<Vec<_>>()
    });
    let mut talks: Talks = talks.collect();
    // As they would fly: all aircraft by turns, and not one after the other.
    talks.sort_by_key(|(aircraft, part)| {
        aircraft.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ part.len() as u64
    });
    Ok(talks)
}

/// Sums of a span.
struct Span {
    calls: u64,
    near: u64,
    wall: Duration,
    cpu: Duration,
}

impl Span {
    fn near_percent(&self) -> f64 {
        100.0 * self.near as f64 / self.calls.max(1) as f64
    }

    fn cpu_us(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.calls.max(1) as f64
    }

    fn rate(&self) -> f64 {
        self.calls as f64 / self.wall.as_secs_f64()
    }
}

async fn start(store: &Arc<dyn SystemStore>) -> Result<Silo> {
    let silo = Silo::builder()
        .store(store.clone())
        .cluster_id("bench")
        .listen("127.0.0.1:0")
        .configure(|options| options.repartition = true)
        .host::<dyn Talker, TalkerGrain>();
    Ok(silo.start().await?)
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut goals = measure("chat", chat(), [0.6, 0.9]).await?;
    // Three airports have half of the calls, so there is little to win. It must cost little.
    goals.extend(measure("flights", flights()?, [0.9, 1.2]).await?);
    for goal in &goals {
        println!("{:<48} {:>6.3} (goal {})", goal.what, goal.reached.unwrap_or(0.0), goal.at_most);
    }
    record("together", &goals)?;
    Ok(())
}

/// Measures before and after. `most`: the part of the calls between silos, and of the cost of a
/// call.
async fn measure(name: &str, talks: Talks, most: [f64; 2]) -> Result<Vec<Goal>> {
    let store: Arc<dyn SystemStore> = Arc::new(MemoryStore::new());
    let mut silos = Vec::new();
    for _ in 0..SILOS {
        silos.push(start(&store).await?);
    }
    let talks = Arc::new(talks);
    println!("{name}: {} grains talk, {} times in all", grains(&talks), talks.len());
    run(&silos, &talks, Duration::from_secs(5)).await?;
    let before = run(&silos, &talks, MEASURED).await?;
    let arrived = || silos.iter().map(|silo| silo.statistics().arrived).sum::<u64>();
    tell(name, "before", &before, arrived());
    run(&silos, &talks, RUNS_FOR).await?;
    let after = run(&silos, &talks, MEASURED).await?;
    tell(name, "after", &after, arrived());
    let counts: Vec<_> = silos.iter().map(|silo| silo.statistics().activations).collect();
    println!("{name}: grains of the silos {counts:?}");
    for silo in silos {
        silo.stop().await?;
    }
    let far = |span: &Span| 100.0 - span.near_percent();
    let goal = |what: &str, after: f64, before: f64, at_most: f64| {
        Goal::at_most(format!("{name}: {what}, after / before"), after / before, at_most)
    };
    Ok(vec![
        goal("calls between silos", far(&after), far(&before), most[0]),
        goal("CPU of a call", after.cpu_us(), before.cpu_us(), most[1]),
        goal("time of a call", before.rate(), after.rate(), most[1]),
    ])
}

fn grains(talks: &Talks) -> usize {
    talks.iter().map(|(grain, _)| grain).collect::<std::collections::BTreeSet<_>>().len()
}

fn tell(name: &str, when: &str, span: &Span, moved: u64) {
    println!(
        "{name} {when}: {:.1} % stay on their silo, {:.2} us of CPU and {:.0} calls a second, {moved} \
         grains have moved",
        span.near_percent(),
        span.cpu_us(),
        span.rate(),
    );
}

/// The grains talk by turns for a while.
async fn run(silos: &[Silo], talks: &Arc<Talks>, time: Duration) -> Result<Span> {
    let over = Arc::new(AtomicBool::new(false));
    let meter = Meter::start();
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..CALLERS {
        let (grains, talks, over) =
            (silos[caller % silos.len()].grains(), talks.clone(), over.clone());
        callers.spawn(async move {
            let (mut calls, mut near) = (0u64, 0u64);
            let mut at = caller;
            while !over.load(Ordering::Relaxed) {
                let (grain, to) = &talks[at % talks.len()];
                at += CALLERS;
                near += grains.grain::<dyn Talker>(*grain).talk(to.clone()).await?;
                calls += to.len() as u64;
            }
            Ok::<_, CallError<std::convert::Infallible>>((calls, near))
        });
    }
    tokio::time::sleep(time).await;
    over.store(true, Ordering::Relaxed);
    let (mut calls, mut near) = (0, 0);
    for told in callers.join_all().await {
        let (its_calls, its_near) = told.map_err(|error| error.to_string())?;
        (calls, near) = (calls + its_calls, near + its_near);
    }
    let (wall, cpu) = meter.read();
    Ok(Span { calls, near, wall, cpu })
}
