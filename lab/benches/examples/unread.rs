//! Clients that do not read, and clients that call a busy grain: the memory of the silos, and an
//! honest call at the same time.
//!
//! `cargo run --release -p emmer-benches --example unread`. The silo is a process of its own; a
//! second one, behind the gateway of the first, writes streams as well. The clients of an attack
//! call through a proxy that passes on their bytes and, once they are connected, none of the
//! silo's. It fails if a silo grows by more than 256 MB, or if an honest call takes longer than
//! 50 ms.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use emmer::prelude::*;
use emmer_benches::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const MEGABYTE: usize = 1_000_000;
/// The growth of the silo in an attack, at most.
const GROWTH_MAX: usize = 256 * MEGABYTE;
/// The longest honest call.
const HONEST_MAX: Duration = Duration::from_millis(50);
/// Time for which an attack is watched.
const WATCHED: Duration = Duration::from_secs(8);

#[grain_interface(key = u64, grain = "bench-large")]
trait Large {
    async fn give(&mut self, bytes: usize) -> Bytes;
    async fn give_late(&mut self, bytes: usize) -> Bytes;
    async fn take(&mut self, bytes: Bytes);
    async fn sleep(&mut self);
    async fn small(&mut self) -> u64;
    /// Streams values of 1 KB for as long as they are taken.
    async fn pour(&self, to: Sink<Bytes>);
}

#[derive(Grain, Default)]
struct LargeGrain;

#[grain]
impl Large for LargeGrain {
    async fn give(&mut self, bytes: usize) -> Bytes {
        vec![7; bytes].into()
    }

    async fn give_late(&mut self, bytes: usize) -> Bytes {
        tokio::time::sleep(Duration::from_secs(1)).await;
        vec![7; bytes].into()
    }

    async fn take(&mut self, _bytes: Bytes) {}

    async fn sleep(&mut self) {
        tokio::time::sleep(Duration::from_secs(3_600)).await;
    }

    async fn small(&mut self) -> u64 {
        1
    }

    async fn pour(&self, to: Sink<Bytes>) {
        let value = Bytes::from(vec![7; 1_000]);
        while to.send(value.clone()).await.is_ok() {}
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match words.as_slice() {
        [] => {}
        ["silo", store] => return runtime.block_on(silo(store)),
        [attack, gateway] => {
            let attack = ATTACKS.iter().find(|(name, ..)| name == attack).ok_or("which attack?")?;
            return runtime.block_on(call(attack, gateway));
        }
        _ => return Err("no arguments are expected".into()),
    }
    let mut within = true;
    for attack in &ATTACKS {
        within &= runtime.block_on(measure(attack))?;
    }
    if within { Ok(()) } else { Err("beyond its bounds".into()) }
}

/// Name, kind, number of clients, and number of calls of each.
type Attack = (&'static str, Kind, usize, usize);

const ATTACKS: [Attack; 6] = [
    ("20 clients, 150 answers of 1 MB each, unread", Kind::Unread, 20, 150),
    ("1 client, 1,500 answers of suspended turns, unread", Kind::Late, 1, 1_500),
    ("16 clients that call a busy grain with 150 times 1 MB", Kind::Busy, 16, 150),
    ("1 client that reads 150 answers of 1 MB", Kind::Reads, 1, 150),
    ("10 clients with 100 streams each that they do not read", Kind::Streams, 10, 100),
    ("10 clients with 100 streams each, whose connections are not read", Kind::Stalled, 10, 100),
];

async fn silo(store: &str) -> Result<()> {
    let silo = Silo::builder()
        .store(store)
        .listen("127.0.0.1:0")
        .gateway("127.0.0.1:0")
        .host::<dyn Large, LargeGrain>()
        .start()
        .await?;
    println!("{}", silo.gateway().ok_or("no gateway")?);
    // Until the parent is gone.
    tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await??;
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Unread,
    Late,
    Busy,
    Reads,
    /// The connection is read, the streams are not.
    Streams,
    /// Streams over a connection that is not read.
    Stalled,
}

/// Passes on bytes from clients, and bytes to them until they are to read nothing.
async fn proxy(silo: String, stalled: Arc<AtomicBool>) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(silo) = TcpStream::connect(&silo).await else { return };
            let stalled = stalled.clone();
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_silo, mut to_silo) = silo.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_silo).await });
            tokio::spawn(async move {
                let mut bytes = vec![0; 64 << 10];
                while let Ok(n) = from_silo.read(&mut bytes).await {
                    while stalled.load(Ordering::Relaxed) {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                    if n == 0 || to_client.write_all(&bytes[..n]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    Ok(address)
}

async fn client(gateway: &str) -> Result<Client> {
    Ok(Client::builder().gateways([gateway]).cluster_id("dev").connect().await?)
}

/// The memory of the largest silo.
fn memory(silos: &[Child]) -> Result<usize> {
    let mut most = 0;
    for silo in silos {
        let status = std::fs::read_to_string(format!("/proc/{}/status", silo.id()))?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).ok_or("no VmRSS")?;
        let kilobytes: usize = line.split_whitespace().nth(1).ok_or("no VmRSS")?.parse()?;
        most = most.max(kilobytes * 1_024);
    }
    Ok(most)
}

/// The process of the attackers: calls, and says at the end how many were answered.
async fn call(&(_, kind, clients, calls): &Attack, gateway: &str) -> Result<()> {
    let stalled = Arc::new(AtomicBool::new(false));
    let proxied = proxy(gateway.to_owned(), stalled.clone()).await?;
    let mut attackers = Vec::new();
    for _ in 0..clients {
        attackers.push(client(&proxied).await?);
    }
    stalled.store(matches!(kind, Kind::Unread | Kind::Late), Ordering::Relaxed);
    let mut under_way = Vec::new();
    for (n, client) in attackers.iter().enumerate() {
        for call in 0..calls {
            let grain = client.grain::<dyn Large>(2 + (n * calls + call) as u64);
            let busy = client.grain::<dyn Large>(1);
            under_way.push(tokio::spawn(async move {
                match kind {
                    Kind::Unread | Kind::Reads => grain.give(MEGABYTE).await.is_ok(),
                    Kind::Late => grain.give_late(MEGABYTE).await.is_ok(),
                    Kind::Busy => busy.take(vec![7; MEGABYTE].into()).await.is_ok(),
                    Kind::Streams | Kind::Stalled => {
                        let mut stream = grain.pour();
                        let first = stream.next().await;
                        tokio::time::sleep(WATCHED).await;
                        first.is_some_and(|first| first.is_ok())
                    }
                }
            }));
        }
    }
    if kind == Kind::Stalled {
        // The streams have begun.
        tokio::time::sleep(Duration::from_secs(1)).await;
        stalled.store(true, Ordering::Relaxed);
    }
    tokio::time::sleep(WATCHED).await;
    let mut answered = 0;
    for call in under_way {
        if call.is_finished() {
            answered += usize::from(call.await?);
        } else {
            call.abort();
        }
    }
    println!("{answered}");
    Ok(())
}

/// Starts this program as another process. Attackers have machines of their own, so their processes
/// come last here.
fn process(arguments: &[&str]) -> Result<Child> {
    let niceness = if arguments.first() == Some(&"silo") { "0" } else { "15" };
    let mut command = Command::new("nice");
    command.args(["-n", niceness]).arg(std::env::current_exe()?);
    Ok(command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?)
}

fn line(child: &mut Child) -> Result<String> {
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("no stdout")?).read_line(&mut line)?;
    Ok(line.trim().to_owned())
}

async fn measure(&(name, kind, clients, calls): &Attack) -> Result<bool> {
    let dir = tempfile::tempdir()?;
    let store = format!("sqlite://{}?mode=rwc", dir.path().join("unread.db").display());
    let mut silo = process(&["silo", &store])?;
    let gateway = line(&mut silo)?;
    let mut silos = vec![silo];
    if matches!(kind, Kind::Streams | Kind::Stalled) {
        silos.push(process(&["silo", &store])?);
        line(&mut silos[1])?;
    }
    let honest = client(&gateway).await?;
    honest.grain::<dyn Large>(0).small().await?;
    if kind == Kind::Busy {
        let busy = honest.grain::<dyn Large>(1);
        tokio::spawn(async move { busy.sleep().await });
    }
    let before = memory(&silos)?;
    let mut attackers = process(&[name, &gateway])?;
    let (mut most, mut times) = (before, Vec::new());
    while attackers.try_wait()?.is_none() {
        let call = Instant::now();
        honest.grain::<dyn Large>(0).small().await?;
        times.push(call.elapsed());
        most = most.max(memory(&silos)?);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let answered: usize = line(&mut attackers)?.parse()?;
    for mut silo in silos {
        silo.kill()?;
        silo.wait()?;
    }
    times.sort_unstable();
    let slowest = times.last().copied().unwrap_or_default();
    let (growth, all) = (most - before, clients * calls);
    println!(
        "{name}: the silo grew by {} MB; of {} honest calls the median took {:.1} ms, the slowest \
         {:.1} ms; {answered} of {all} were answered",
        growth / MEGABYTE,
        times.len(),
        times[times.len() / 2].as_secs_f64() * 1e3,
        slowest.as_secs_f64() * 1e3,
    );
    let served = kind != Kind::Reads || answered == all;
    Ok(growth <= GROWTH_MAX && slowest <= HONEST_MAX && served)
}
