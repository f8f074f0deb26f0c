//! A silo is killed that had many hot grains with state: what the others and the store see of it.
//!
//! `cargo run --release -p emmer-benches --features outages --example hot -- 200000`: so many
//! grains on one of three silo processes, with PostgreSQL. 2,000 callers go on calling them when
//! that silo is killed; a prober calls grains without state meanwhile. The program prints the
//! latencies of the prober before and after, the time until each grain has answered again, and the
//! largest number of sessions at the server.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use emmer::ClusterId;
use emmer::prelude::*;
use emmer_benches::Result;
use emmer_benches::histogram::Histogram;
use emmer_test_servers::PostgresServer;
use tokio::task::JoinSet;

const CALLERS: u64 = 2_000;
/// Number of grains that the prober calls in turn.
const PROBED: u64 = 200;
/// Pause of the prober between two calls.
const PACE: Duration = Duration::from_millis(5);

#[grain_interface(key = u64, grain = "hot-counter")]
trait Counter {
    async fn add(&mut self, n: u64) -> std::result::Result<u64, StateError>;
    async fn total(&self) -> u64;
}

#[derive(Grain)]
struct CounterGrain {
    #[state("total")]
    total: Persistent<u64>,
}

#[grain]
impl Counter for CounterGrain {
    async fn add(&mut self, n: u64) -> std::result::Result<u64, StateError> {
        *self.total += n;
        self.total.write().await?;
        Ok(*self.total)
    }

    async fn total(&self) -> u64 {
        *self.total
    }
}

#[grain_interface(key = u64, grain = "hot-echo")]
trait Echo {
    async fn echo(&self, n: u64) -> u64;
}

#[derive(Grain)]
struct EchoGrain;

#[grain]
impl Echo for EchoGrain {
    async fn echo(&self, n: u64) -> u64 {
        n
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["silo", store] => silo(store).await,
        [grains] => measure(grains.parse()?).await,
        _ => Err("expected: GRAINS".into()),
    }
}

async fn silo(store: &str) -> Result<()> {
    let builder = Silo::builder().store(store).cluster_id(ClusterId::new("hot")?);
    let builder = builder.host::<dyn Counter, CounterGrain>().host::<dyn Echo, EchoGrain>();
    let gateway = |options: &mut emmer::SiloOptions| options.gateway = "127.0.0.1:0".parse().ok();
    Ok(builder.configure(gateway).start().await?.run_until_stopped().await?)
}

/// A silo process. Dropped, it is killed.
struct Process(Child);

impl Process {
    fn start(store: &str) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        Ok(Self(command.args(["silo", store]).stdout(Stdio::null()).spawn()?))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn measure(grains: u64) -> Result<()> {
    let server = Arc::new(PostgresServer::start()?);
    let store = server.url();
    let victim = Process::start(&store)?;
    let connect = Client::builder().cluster_id(ClusterId::new("hot")?).store(store.as_str());
    let client = connect.connect().await?;
    let begun = Instant::now();
    let (_, failed) = every(&client, grains, 256, |client, key| async move {
        client.grain::<dyn Counter>(key).add(1).await.is_ok_and(|total| total == 1)
    })
    .await;
    let took = begun.elapsed().as_secs_f64();
    println!("{grains} grains with state on one silo after {took:.0} s ({failed} calls repeated)");
    let others = [Process::start(&store)?, Process::start(&store)?];
    while client.gateways().len() < 3 {
        tokio::time::sleep(millis(50)).await;
    }
    println!("others, before: {}", probe(&client, secs(10)).await);
    let busy = Arc::new(AtomicU64::new(0));
    let watcher = tokio::spawn(watch(server.clone(), busy.clone()));
    drop(victim);
    let begun = Instant::now();
    let answering = every(&client, grains, CALLERS, |client, key| async move {
        let grain = client.grain::<dyn Counter>(key);
        grain.total().timeout(secs(10)).await.is_ok_and(|total| total == 1)
    });
    let mut answering = std::pin::pin!(answering);
    let mut seen = Histogram::default();
    let (answered, failed) = loop {
        tokio::select! {
            ended = &mut answering => break ended,
            later = probed(&client, secs(1)) => seen.add(&later),
        }
    };
    let took = begun.elapsed().as_secs_f64();
    watcher.abort();
    println!("others, after the kill: {}", told(&seen));
    println!(
        "{answered} grains have answered {took:.1} s after the kill ({failed} calls repeated); at \
         most {} sessions at the server",
        busy.load(Ordering::Relaxed)
    );
    drop(others);
    Ok(())
}

/// Calls every grain until it has answered, by so many callers. The number of grains, and of calls
/// that were made again.
async fn every<F: Future<Output = bool> + Send>(
    client: &Client,
    grains: u64,
    callers: u64,
    call: impl Fn(Client, u64) -> F + Copy + Send + Sync + 'static,
) -> (u64, u64) {
    let failed = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for caller in 0..callers {
        let (client, failed) = (client.clone(), failed.clone());
        tasks.spawn(async move {
            for key in (caller..grains).step_by(usize::try_from(callers).unwrap_or(1)) {
                while !call(client.clone(), key).await {
                    failed.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(millis(20)).await;
                }
            }
        });
    }
    while tasks.join_next().await.is_some() {}
    (grains, failed.load(Ordering::Relaxed))
}

async fn probe(client: &Client, time: Duration) -> String {
    told(&probed(client, time).await)
}

/// The latencies of grains without state. A call that fails was on the killed silo: it counts with
/// its time.
async fn probed(client: &Client, time: Duration) -> Histogram {
    let (begun, mut seen) = (Instant::now(), Histogram::default());
    for n in 0u64.. {
        if begun.elapsed() >= time {
            break;
        }
        let called = Instant::now();
        let _ = client.grain::<dyn Echo>(n % PROBED).echo(n).timeout(secs(10)).await;
        seen.record(called.elapsed());
        tokio::time::sleep(PACE).await;
    }
    seen
}

fn told(seen: &Histogram) -> String {
    let quantiles = seen.quantiles();
    let ms = |nanos: Option<u64>| nanos.unwrap_or(0) as f64 / 1e6;
    format!(
        "{} calls, p50 {:.2} ms, p99 {:.2} ms, longest {:.1} ms",
        seen.count(),
        ms(quantiles.as_ref().map(|told| told.p50)),
        ms(quantiles.as_ref().map(|told| told.p99)),
        ms(quantiles.as_ref().map(|told| told.most)),
    )
}

/// Notes how many sessions the silos have at the server.
async fn watch(server: Arc<PostgresServer>, busy: Arc<AtomicU64>) {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'emmer'";
    loop {
        let server = server.clone();
        let asked = tokio::task::spawn_blocking(move || server.psql(&["-Atc", sql])).await;
        if let Ok(Ok(count)) = asked {
            busy.fetch_max(count.trim().parse().unwrap_or(0), Ordering::Relaxed);
        }
        tokio::time::sleep(millis(200)).await;
    }
}
