//! Idle and half-open connections: their cost to a silo and to honest clients.
//!
//! One silo process; this one opens the sockets and speaks the protocol by hand.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::{BufMut, BytesMut};
use emmer::store::{SiloTable, open};
use emmer_core::limits::Limits;
use emmer_report::{Cell, Goal, Report, quantile};
use emmer_wire::{
    ConnectionLimits, FrameKind, HANDSHAKE_BYTES_MAX, Hello, PeerKind, decode_frame, encode_hello,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::job::{Launcher, Serve, Server, What, runtime};
use crate::silos::cluster_id;
use crate::{Result, lock};

/// Number of sockets that are opened at once.
const OPENING: usize = 64;
/// Number of honest handshakes that are timed.
const HONEST: usize = 100;
/// Time after the sockets were opened for which the silo is left alone before it is measured.
const SETTLE: Duration = Duration::from_secs(3);
/// Time for which a client continues with a frame that the silo does not read.
const WRITE_PATIENCE: Duration = Duration::from_secs(5);
/// The whole frame that is begun, and how much of it is sent.
const FRAME: usize = 16 << 20;
const SENT: usize = 15 << 20;
/// Credit that these clients give; they are sent nothing.
const CREDIT: u64 = 1 << 20;

/// Parameters of the measurement.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Clients that have said hello and nothing since.
    pub idle: usize,
    /// Sockets that say nothing at all.
    pub silent: usize,
    /// Clients that send 15 of 16 MiB of a frame and stop.
    pub halves: usize,
    /// Time for which the idle ones are watched.
    pub time: Duration,
}

/// Results of the measurement.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Processor time of the silo in percent of one core: with no connection, and with the idle
    /// ones.
    pub idle_percent: [f64; 2],
    /// Honest handshakes, with no other socket, and with the silent ones: the median and the
    /// longest.
    pub handshakes: [[Duration; 2]; 2],
    /// Resident bytes that the half frames hold.
    pub held: u64,
}

/// Measures all three.
///
/// # Errors
/// A socket that cannot be opened (there must be descriptors for all of them), a silo that ended.
pub fn run(plan: &Plan, launcher: &Launcher, say: &dyn Fn(&str)) -> Result<Measured> {
    let folder = tempfile::tempdir()?;
    let store = format!("sqlite://{}", folder.path().join("cluster.db").display());
    let mut server = launcher.serve(Serve { threads: 2, what: What::Silo(store.clone()) })?;
    runtime(2)?.block_on(async {
        let gateway = gateway(&store).await?;
        let quiet = honest(gateway).await?;
        let nothing = busy(&mut server, plan.time).await?;
        let idle = many(plan.idle, move || hello(gateway)).await?;
        let watched = busy(&mut server, plan.time).await?;
        say(&format!(
            "{} idle connections: {watched:.2} % of a core, {nothing:.2} % without",
            idle.len()
        ));
        drop(idle);
        tokio::time::sleep(SETTLE).await;
        let silent =
            many(plan.silent, move || async move { Ok(TcpStream::connect(gateway).await?) })
                .await?;
        let beside = honest(gateway).await?;
        say(&format!(
            "{} silent sockets: an honest handshake takes {:?} at most",
            silent.len(),
            beside[1]
        ));
        drop(silent);
        tokio::time::sleep(SETTLE).await;
        let before = server.usage()?.resident;
        let halves = many(plan.halves, move || half(gateway)).await?;
        tokio::time::sleep(SETTLE).await;
        let held = server.usage()?.resident.saturating_sub(before);
        say(&format!("{} half frames: {} MiB", halves.len(), held >> 20));
        Ok(Measured { idle_percent: [nothing, watched], handshakes: [quiet, beside], held })
    })
}

/// Where clients connect to.
pub(crate) async fn gateway(store: &str) -> Result<SocketAddr> {
    let table = SiloTable::new(open(store).await?, cluster_id()?);
    let silos = table.gateways().await?;
    let silo = silos.first().ok_or("no gateway")?;
    Ok(SocketAddr::new(silo.address.endpoint().ip(), silo.proxy_port))
}

/// A client that has said hello and was welcomed.
async fn hello(gateway: SocketAddr) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(gateway).await?;
    let limits = ConnectionLimits::new(&Limits::default(), CREDIT);
    let number = u64::from(stream.local_addr()?.port());
    let mut out = BytesMut::new();
    encode_hello(&mut out, &Hello::new(cluster_id()?, PeerKind::Client(number), None, limits));
    stream.write_all(&out).await?;
    let mut input = BytesMut::new();
    loop {
        if let Some(frame) = decode_frame(&mut input, HANDSHAKE_BYTES_MAX)? {
            let welcome = frame.kind == FrameKind::Welcome;
            return if welcome {
                Ok(stream)
            } else {
                Err(format!("answered by {:?}", frame.kind).into())
            };
        }
        if stream.read_buf(&mut input).await? == 0 {
            return Err("the silo hung up".into());
        }
    }
}

/// A client that sends most of a frame and stops, or is kept from going on.
async fn half(gateway: SocketAddr) -> Result<TcpStream> {
    let mut stream = hello(gateway).await?;
    let mut frame = BytesMut::with_capacity(SENT);
    frame.put_u32_le(u32::try_from(FRAME)?);
    frame.put_u8(FrameKind::Request as u8);
    frame.resize(SENT, 0);
    // A silo that has no room for it reads no further.
    let _ = tokio::time::timeout(WRITE_PATIENCE, stream.write_all(&frame)).await;
    Ok(stream)
}

/// Opens `count` of something, some at a time.
pub(crate) async fn many<F, S>(count: usize, one: F) -> Result<Vec<TcpStream>>
where
    F: Fn() -> S + Clone + Send + Sync + 'static,
    S: Future<Output = Result<TcpStream>> + Send,
{
    let left = std::sync::Arc::new(std::sync::Mutex::new(count));
    let mut opening = JoinSet::new();
    for _ in 0..OPENING.min(count) {
        let (one, left) = (one.clone(), left.clone());
        opening.spawn(async move {
            let mut opened = Vec::new();
            while take(&left) {
                opened.push(one().await?);
            }
            Ok::<_, crate::Error>(opened)
        });
    }
    let mut all = Vec::with_capacity(count);
    while let Some(opened) = opening.join_next().await {
        all.extend(opened??);
    }
    Ok(all)
}

fn take(left: &std::sync::Mutex<usize>) -> bool {
    let mut left = lock(left);
    let any = *left > 0;
    *left = left.saturating_sub(1);
    any
}

/// Time that honest handshakes take, one after the other: the median and the longest.
async fn honest(gateway: SocketAddr) -> Result<[Duration; 2]> {
    let mut times = Vec::with_capacity(HONEST);
    for _ in 0..HONEST {
        let begun = Instant::now();
        drop(hello(gateway).await?);
        times.push(begun.elapsed());
    }
    Ok([0.5, 1.0].map(|q| quantile(&times, q).unwrap_or_default()))
}

/// Share of one core that the silo uses without calls, in percent.
async fn busy(server: &mut Server, time: Duration) -> Result<f64> {
    tokio::time::sleep(SETTLE).await;
    let (before, begun) = (server.usage()?.cpu, Instant::now());
    tokio::time::sleep(time).await;
    let used = server.usage()?.cpu.saturating_sub(before);
    Ok(100.0 * used.as_secs_f64() / begun.elapsed().as_secs_f64())
}

/// The table, with the goals.
pub fn report(plan: &Plan, found: &Measured) -> Report {
    let title = "Connections that do nothing, or stop half way (emmer-lab bench connections).";
    let mut report = Report::new("bench-connections", title, &["what", "without", "with"]);
    let ms = |time: Duration| time.as_secs_f64() * 1_000.0;
    let [[quiet, quiet_most], [beside, beside_most]] = found.handshakes;
    report.push(vec![
        format!("{} idle connections: percent of one core", plan.idle).into(),
        Cell::Number(found.idle_percent[0], 2),
        Cell::Number(found.idle_percent[1], 2),
    ]);
    for (what, without, with) in [("median", quiet, beside), ("longest", quiet_most, beside_most)] {
        report.push(vec![
            format!("{} silent sockets: honest handshake, {what}, ms", plan.silent).into(),
            Cell::Number(ms(without), 2),
            Cell::Number(ms(with), 2),
        ]);
    }
    #[expect(clippy::cast_precision_loss, reason = "bytes far below 2^52")]
    let held = found.held as f64 / f64::from(1 << 20);
    let what = format!("{} half frames of 16 MiB: MiB held", plan.halves);
    report.push(vec![what.into(), Cell::Nothing, Cell::Number(held, 1)]);
    let cost = found.idle_percent[1] - found.idle_percent[0];
    report.goals.push(Goal::at_most("idle connections, percent of a core", cost, 1.0));
    let delay = ms(beside_most) - ms(quiet);
    report.goals.push(Goal::at_most("delay of an honest handshake, ms", delay, 50.0));
    report.goals.push(Goal::at_most("held by half frames, MiB", held, 64.0));
    report
}
