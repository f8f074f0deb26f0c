//! A silo that is offered three times the calls that it can serve, with load shedding and without.
//!
//! `cargo run --release -p emmer-benches --example overload -- 10`: 10 seconds for each. The silo
//! is a process with one thread. Each call waits once and then computes for 200 us. The client
//! first measures the silo's capacity, with 64 callers that each wait for their answer. Then it
//! calls at three times that pace, whatever becomes of the calls. With `QUEUE=1000000` only the use
//! of the processors counts.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use emmer::prelude::*;
use emmer_benches::Result;
use emmer_benches::histogram::Histogram;
use emmer_report::Goal;
use emmer_report::numbers::record;
use tokio::task::JoinSet;

/// The time that a call computes.
const WORK: Duration = Duration::from_micros(200);
/// Callers that measure the silo's capacity.
const CALLERS: u64 = 64;
/// The queue from which on calls are refused.
const QUEUE: usize = 100;
/// A call that is not answered within this time has failed.
const PATIENCE: Duration = Duration::from_secs(5);

#[grain_interface(key = u64, grain = "bench-busy")]
trait Busy {
    async fn work(&self);
}

#[derive(Grain, Default)]
struct BusyGrain;

#[grain]
impl Busy for BusyGrain {
    async fn work(&self) {
        tokio::task::yield_now().await;
        let begun = Instant::now();
        while begun.elapsed() < WORK {
            std::hint::spin_loop();
        }
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["silo", store, shedding] => {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(1).enable_all().build()?.block_on(silo(store, *shedding == "on"))
        }
        [secs] => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            let time = Duration::from_secs(secs.parse()?);
            for shedding in ["on", "off"] {
                runtime.block_on(measure(shedding, time))?;
            }
            Ok(())
        }
        _ => Err("expected: SECONDS".into()),
    }
}

async fn silo(store: &str, shedding: bool) -> Result<()> {
    let queue = std::env::var("QUEUE").map_or(Ok(QUEUE), |text| text.parse())?;
    let silo = Silo::builder()
        .store(store)
        .cluster_id(ClusterId::new("bench")?)
        .gateway("127.0.0.1:0")
        .configure(|options| {
            options.load_shedding.enabled = shedding;
            options.load_shedding.queue = queue;
        })
        .host::<dyn Busy, BusyGrain>()
        .start()
        .await?;
    println!("ready");
    silo.terminated().await;
    Ok(())
}

/// A process that is killed at the end.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    fn start(store: &str, shedding: &str) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["silo", store, shedding])
            .stdout(Stdio::piped())
            .spawn()?;
        let out = child.stdout.take().ok_or("no output")?;
        let process = Self(child);
        BufReader::new(out).read_line(&mut String::new())?;
        Ok(process)
    }

    /// The most memory that it ever had, in MiB.
    fn peak(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.split_whitespace().next()).ok_or("no VmHWM")?;
        Ok(kib.parse::<u64>()? / 1_024)
    }
}

#[derive(Default)]
struct Outcome {
    served: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    served_after: std::sync::Mutex<Histogram>,
    refused_after: std::sync::Mutex<Histogram>,
}

async fn call(client: &Client, key: u64, outcome: &Outcome) {
    let begun = Instant::now();
    let answer = client.grain::<dyn Busy>(key).work().timeout(PATIENCE).await;
    let (count, times) = match answer {
        Ok(()) => (&outcome.served, Some(&outcome.served_after)),
        Err(CallError::Overloaded { .. }) => (&outcome.refused, Some(&outcome.refused_after)),
        Err(_) => (&outcome.failed, None),
    };
    count.fetch_add(1, Ordering::Relaxed);
    if let Some(mut times) = times.and_then(|times| times.lock().ok()) {
        times.record(begun.elapsed());
    }
}

async fn measure(shedding: &str, time: Duration) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let store = format!("sqlite://{}", folder.path().join("cluster.db").display());
    let silo = Process::start(&store, shedding)?;
    let client = Client::builder().store(store.as_str()).cluster_id(ClusterId::new("bench")?);
    let client = Arc::new(client.connect().await?);
    // The capacity.
    let outcome = Arc::new(Outcome::default());
    let mut callers = JoinSet::new();
    let begun = Instant::now();
    for caller in 0..CALLERS {
        let (client, outcome) = (client.clone(), outcome.clone());
        callers.spawn(async move {
            while begun.elapsed() < time {
                call(&client, caller, &outcome).await;
            }
        });
    }
    callers.join_all().await;
    let capacity = outcome.served.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64();
    // Three times as much.
    let outcome = Arc::new(Outcome::default());
    let (begun, mut sent) = (Instant::now(), 0u64);
    let mut calls = JoinSet::new();
    while begun.elapsed() < time {
        let wanted = (begun.elapsed().as_secs_f64() * 3.0 * capacity) as u64;
        while sent < wanted {
            let (client, outcome, key) = (client.clone(), outcome.clone(), sent % 1_000);
            calls.spawn(async move { call(&client, key, &outcome).await });
            sent += 1;
        }
        while calls.try_join_next().is_some() {}
        tokio::time::sleep(millis(1)).await;
    }
    let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let served = get(&outcome.served) as f64 / begun.elapsed().as_secs_f64();
    calls.join_all().await;
    let quantiles = |times: &std::sync::Mutex<Histogram>| {
        let quantiles = times.lock().ok().and_then(|times| times.quantiles());
        let span = Duration::from_nanos;
        quantiles.map_or_else(
            || "never".to_owned(),
            |q| format!("p50 {:.1?}, p99 {:.1?}", span(q.p50), span(q.p99)),
        )
    };
    println!(
        "shedding {shedding}: can do {capacity:.0}/s; of {:.0}/s offered it served {served:.0}/s \
         ({:.0} %), refused {}, failed {}",
        3.0 * capacity,
        100.0 * served / capacity,
        get(&outcome.refused),
        get(&outcome.failed),
    );
    println!(
        "  served after {}; refused after {}; at most {} MiB",
        quantiles(&outcome.served_after),
        quantiles(&outcome.refused_after),
        silo.peak()?
    );
    let shares = [
        Goal::at_most(
            "offered three times what it can do: share not served",
            1.0 - served / capacity,
            0.1,
        ),
        Goal::at_most(
            "the same: a call is refused after, p99 ms",
            outcome
                .refused_after
                .lock()
                .ok()
                .and_then(|times| times.quantiles())
                .map(|q| q.p99 as f64 / 1e6),
            50.0,
        ),
    ];
    let name = if shedding == "on" { "overload, shedding" } else { "overload" };
    record(name, &shares)?;
    client.close().await;
    Ok(())
}
