//! A silo with many hot grains with state is killed: the effects on the others and the store.
//!
//! `cargo run --release -p emmer-benches --features outages --example hot -- 200000` puts 200,000
//! grains on the first of three silo processes, with PostgreSQL. That silo is killed, and 2,000
//! callers call all of them again. A prober calls grains without state meanwhile. The program
//! prints the latencies of the prober before and after the kill, the time until each grain has
//! answered, and the largest number of sessions at the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use emmer::prelude::*;
use emmer_benches::grains::{Cell, Counter};
use emmer_benches::histogram::Histogram;
use emmer_benches::job::{self, Launcher, Serve, What, runtime};
use emmer_benches::scenarios;
use emmer_benches::{Result, silos};
use emmer_test_servers::PostgresServer;
use tokio::task::JoinSet;

const SILO_THREADS: usize = 2;
/// Number of callers that make the grains, and that call them after the kill.
const CALLERS: [u64; 2] = [256, 2_000];
/// Number of grains that the prober calls in turn.
const PROBED: u64 = 200;
/// Pause of the prober between two calls.
const PACE: Duration = Duration::from_millis(5);

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let launcher = scenarios::this_program(&["job"])?;
    match words.as_slice() {
        ["job", job] => job::main(job, &launcher),
        [grains] => runtime(SILO_THREADS)?.block_on(measure(grains.parse()?, &launcher)),
        _ => Err("expected: GRAINS".into()),
    }
}

async fn measure(grains: u64, launcher: &Launcher) -> Result<()> {
    let server = Arc::new(PostgresServer::start()?);
    let silo = Serve { threads: SILO_THREADS, what: What::Silo(server.url()) };
    let victim = launcher.serve(silo.clone())?;
    let client = silos::client(server.url()).await?;
    let begun = Instant::now();
    every(&client, grains, CALLERS[0], |client, key| async move {
        client.grain::<dyn Counter>(key).add(1).await.is_ok_and(|total| total == 1)
    })
    .await?;
    println!("{grains} grains on one silo after {:.0} s", begun.elapsed().as_secs_f64());
    let others = [launcher.serve(silo.clone())?, launcher.serve(silo)?];
    while client.gateways().len() <= others.len() {
        tokio::time::sleep(millis(50)).await;
    }
    let before = while_it_lasts(&client, tokio::time::sleep(secs(10))).await.1;
    println!("others, before: {}", told(&before));
    let sessions = Arc::new(AtomicU64::new(0));
    let watcher = tokio::spawn(watch(server.clone(), sessions.clone()));
    let begun = Instant::now();
    drop(victim);
    let answers = every(&client, grains, CALLERS[1], |client, key| async move {
        let grain = client.grain::<dyn Counter>(key);
        grain.total().timeout(secs(10)).await.is_ok_and(|total| total == 1)
    });
    let (repeated, seen) = while_it_lasts(&client, answers).await;
    let (repeated, took) = (repeated?, begun.elapsed().as_secs_f64());
    watcher.abort();
    println!("others, after the kill: {}", told(&seen));
    println!(
        "each of {grains} grains has answered {took:.1} s after the kill ({repeated} calls made \
         again); at most {} sessions at the server",
        sessions.load(Ordering::Relaxed)
    );
    drop(others);
    Ok(())
}

/// Calls every grain until it has answered. `callers` of them are called at once.
///
/// Returns the number of calls that failed and were made again.
async fn every<F: Future<Output = bool> + Send>(
    client: &Client,
    grains: u64,
    callers: u64,
    call: impl Fn(Client, u64) -> F + Copy + Send + Sync + 'static,
) -> Result<u64> {
    let mut tasks = JoinSet::new();
    for caller in 0..callers {
        let client = client.clone();
        tasks.spawn(async move {
            let (mut key, mut repeated) = (caller, 0);
            while key < grains {
                if call(client.clone(), key).await {
                    key += callers;
                } else {
                    repeated += 1;
                    tokio::time::sleep(millis(20)).await;
                }
            }
            repeated
        });
    }
    let mut repeated = 0;
    while let Some(ended) = tasks.join_next().await {
        repeated += ended?;
    }
    Ok(repeated)
}

/// Calls grains without state while `work` lasts. Returns its output and the latencies. A call that
/// fails was on the killed silo: it counts with its time.
async fn while_it_lasts<T>(client: &Client, work: impl Future<Output = T>) -> (T, Histogram) {
    let over = std::cell::Cell::new(false);
    let work = async {
        let output = work.await;
        over.set(true);
        output
    };
    let probed = async {
        let mut seen = Histogram::default();
        for n in (0..PROBED).cycle().take_while(|_| !over.get()) {
            let called = Instant::now();
            let _ = client.grain::<dyn Cell>(n).turns().timeout(secs(10)).await;
            seen.record(called.elapsed());
            tokio::time::sleep(PACE).await;
        }
        seen
    };
    tokio::join!(work, probed)
}

fn told(seen: &Histogram) -> String {
    let told = seen.quantiles().unwrap_or_default();
    let ms = |nanos: u64| Duration::from_nanos(nanos).as_secs_f64() * 1_000.0;
    format!(
        "{} calls, p50 {:.2} ms, p99 {:.2} ms, longest {:.1} ms",
        seen.count(),
        ms(told.p50),
        ms(told.p99),
        ms(told.most),
    )
}

/// Notes the largest number of sessions that the silos have at the server.
async fn watch(server: Arc<PostgresServer>, sessions: Arc<AtomicU64>) {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'emmer'";
    loop {
        let server = server.clone();
        let asked = tokio::task::spawn_blocking(move || server.psql(&["-Atc", sql])).await;
        if let Ok(Ok(count)) = asked {
            sessions.fetch_max(count.trim().parse().unwrap_or(0), Ordering::Relaxed);
        }
        tokio::time::sleep(millis(200)).await;
    }
}
