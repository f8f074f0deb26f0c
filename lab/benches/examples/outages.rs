//! Silos whose store's server goes away and comes back, on real servers.
//!
//! `cargo run --release -p emmer-benches --features outages --example outages -- redis 5 12 20`:
//! clusters of one to five silos with 1 to 64 callers each, all at one server. The server is away
//! for 5, 12 and 20 seconds, killed and frozen in turn. Stores: `postgres`, `mysql`, `redis`,
//! `etcd`, `zookeeper`, `sqlite` (its file is locked). `CLUSTERS=1x1,3x12` names silos and callers;
//! `LOG=warn` shows the log. The program prints the time from the end of each outage to each
//! cluster's first answer, and exits with 1 if one took more than two seconds.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use emmer::prelude::*;
use emmer::tables::ClusterId;
use emmer_benches::grains::Counter;
use emmer_benches::{Result, silos};
use emmer_report::Goal;
use emmer_report::numbers::record;
use emmer_test_servers as servers;
use emmer_test_servers::process::Frozen;
use emmer_test_servers::{Local, Starter};
use tokio::task::JoinSet;

/// Silos and callers of each cluster.
const CLUSTERS: &str = "1x1,1x12,1x64,2x12,3x24,5x64";
/// Longest time from the end of an outage to the first answered call.
const BACK_WITHIN: Duration = Duration::from_secs(2);
/// Longest wait for a cluster before it counts as lost.
const PATIENCE: Duration = Duration::from_secs(90);
/// Pause of a caller between two calls.
const PACE: Duration = Duration::from_millis(100);

/// Ways in which a server is away.
#[derive(Clone, Copy, Debug)]
enum Away {
    Killed,
    Frozen,
}

/// A store's server.
trait Server {
    fn url(&self) -> String;
    fn leave(&mut self, how: Away) -> Result<()>;
    fn come_back(&mut self) -> Result<()>;
}

/// A server, and its processes while they stand still.
struct Process<S: Starter>(Local<S>, Option<Frozen>);

impl<S: Starter> Process<S> {
    fn boxed(server: Local<S>) -> Box<dyn Server>
    where
        S: 'static,
    {
        Box::new(Self(server, None))
    }
}

impl<S: Starter> Server for Process<S> {
    fn url(&self) -> String {
        self.0.url()
    }

    fn leave(&mut self, how: Away) -> Result<()> {
        match how {
            Away::Killed => self.0.kill(),
            Away::Frozen => self.1 = Some(Frozen::whole(self.0.pid())?),
        }
        Ok(())
    }

    fn come_back(&mut self) -> Result<()> {
        match self.1.take() {
            Some(frozen) => drop(frozen),
            None => self.0.start_again()?,
        }
        Ok(())
    }
}

/// A SQLite file, which another program locks.
struct File {
    folder: tempfile::TempDir,
    lock: Option<rusqlite::Connection>,
}

impl File {
    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("cluster.db")
    }
}

impl Server for File {
    fn url(&self) -> String {
        format!("sqlite://{}", self.path().display())
    }

    fn leave(&mut self, _: Away) -> Result<()> {
        let lock = rusqlite::Connection::open(self.path())?;
        lock.busy_timeout(PATIENCE)?;
        lock.execute_batch("begin immediate")?;
        self.lock = Some(lock);
        Ok(())
    }

    fn come_back(&mut self) -> Result<()> {
        self.lock = None;
        Ok(())
    }
}

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((store, outages)) = arguments.split_first() else {
        return Err("expected: STORE SECONDS..".into());
    };
    let outages: Vec<u64> =
        outages.iter().map(|secs| secs.parse()).collect::<std::result::Result<_, _>>()?;
    let server: Box<dyn Server> = match store.as_str() {
        "postgres" => Process::boxed(servers::PostgresServer::start()?),
        "mysql" => Process::boxed(servers::MariadbServer::start()?),
        "redis" => Process::boxed(servers::RedisServer::start()?),
        "etcd" => Process::boxed(servers::EtcdServer::start()?),
        "zookeeper" => Process::boxed(servers::ZooKeeperServer::start()?),
        "sqlite" => Box::new(File { folder: tempfile::tempdir()?, lock: None }),
        other => return Err(format!("no store {other}").into()),
    };
    let level = std::env::var("LOG").map_or(Ok(tracing::Level::ERROR), |level| level.parse())?;
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .init();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure(store, server, &outages))
}

/// Answers and failures of a cluster's calls.
#[derive(Default)]
struct Met {
    answered: AtomicU64,
    failed: AtomicU64,
    /// Time of the first answer since the server came back.
    first: Mutex<Option<Instant>>,
    last_failure: Mutex<Option<String>>,
}

impl Met {
    fn note(&self, outcome: std::result::Result<u64, CallError<StateError>>) {
        match outcome {
            Ok(_) => {
                self.answered.fetch_add(1, Ordering::Relaxed);
                lock(&self.first).get_or_insert_with(Instant::now);
            }
            Err(error) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                *lock(&self.last_failure) = Some(error.to_string());
            }
        }
    }

    /// The time from `back` to the first answer; none if no call was answered in time.
    async fn first_since(&self, back: Instant) -> Option<Duration> {
        while back.elapsed() < PATIENCE {
            if let Some(first) = *lock(&self.first) {
                return Some(first.saturating_duration_since(back));
            }
            tokio::time::sleep(millis(5)).await;
        }
        None
    }
}

/// Takes a mutex. No holder panics.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the clusters and sends the server away.
async fn measure(store: &str, mut server: Box<dyn Server>, outages: &[u64]) -> Result<ExitCode> {
    let (mut started, mut callers, mut clusters) = (Vec::new(), JoinSet::new(), Vec::new());
    let shapes = std::env::var("CLUSTERS").unwrap_or_else(|_| CLUSTERS.to_owned());
    for (number, shape) in shapes.split(',').enumerate() {
        let (size, count) = shape.split_once('x').ok_or("expected: SILOSxCALLERS")?;
        let (size, count): (usize, u64) = (size.parse()?, count.parse()?);
        let met = Arc::new(Met::default());
        let id = ClusterId::new(&format!("outage-{number}"))?;
        for _ in 0..size {
            let builder = silos::builder(server.url())?.cluster_id(id.clone());
            started.push(silos::hosting(builder).start().await?);
        }
        let client = started.last().map(|silo| silo.grains()).ok_or("no silo")?;
        for caller in 0..count {
            callers.spawn(call(client.clone(), caller, met.clone()));
        }
        clusters.push(((size, count), met));
    }
    let mut longest = Duration::ZERO;
    for (how, &outage) in [Away::Killed, Away::Frozen]
        .into_iter()
        .flat_map(|how| outages.iter().map(move |outage| (how, outage)))
    {
        tokio::time::sleep(secs(10)).await;
        tokio::task::block_in_place(|| server.leave(how))?;
        tokio::time::sleep(secs(outage)).await;
        tokio::task::block_in_place(|| server.come_back())?;
        clusters.iter().for_each(|(_, met)| *lock(&met.first) = None);
        let back = Instant::now();
        for ((size, count), met) in &clusters {
            let took = met.first_since(back).await;
            longest = longest.max(took.unwrap_or(PATIENCE));
            let answered = match took {
                Some(took) => format!("{:.2} s", took.as_secs_f64()),
                None => {
                    let why = lock(&met.last_failure).clone().unwrap_or_default();
                    format!("more than {PATIENCE:?}: {why}")
                }
            };
            println!(
                "{store} {how:?} for {outage} s: {size} silos, {count} callers answer after \
                 {answered}"
            );
        }
    }
    callers.abort_all();
    for ((size, count), met) in &clusters {
        let (answered, failed) =
            (met.answered.load(Ordering::Relaxed), met.failed.load(Ordering::Relaxed));
        println!("{store}: {size} silos, {count} callers: {answered} answered, {failed} failed");
    }
    for silo in started {
        silo.stop_now().await;
    }
    let what = "from the store's return to the first answer, longest, s";
    let goal = Goal::at_most(what, longest.as_secs_f64(), BACK_WITHIN.as_secs_f64());
    record(&format!("outages {store}"), &[goal])?;
    Ok(ExitCode::from(u8::from(longest > BACK_WITHIN)))
}

/// Calls grains until the task is aborted.
async fn call(client: GrainFactory, caller: u64, met: Arc<Met>) {
    for n in 0u64.. {
        let grain = client.grain::<dyn Counter>(caller * 1_000 + n % 20);
        met.note(grain.add(1).timeout(secs(5)).await);
        tokio::time::sleep(PACE).await;
    }
}
