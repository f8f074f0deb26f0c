//! Bytes that are no frame and no handshake, a million times: their cost to a silo and to honest
//! clients.
//!
//! One silo process without TLS and one with it. This process speaks to their gateways by hand,
//! says something wrong or half, and hangs up; an honest client calls a grain all the while.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use emmer::Client;
use emmer::tls::Tls;
use emmer_core::limits::Limits;
use emmer_core::rng::SeededRng;
use emmer_report::{Cell, Goal, Report, quantile};
use emmer_wire::{
    ConnectionLimits, FrameKind, HANDSHAKE_BYTES_MAX, Hello, PeerKind, decode_frame, encode_hello,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use crate::connections::{gateway, many};
use crate::grains::Echo;
use crate::job::{Launcher, Serve, Server, What, runtime};
use crate::silos::{client_tls, cluster_id, make_certificates};
use crate::{Result, lock};

/// Strangers at once.
const AT_ONCE: usize = 64;
/// A stranger waits this long for the silo to hang up.
const HANGS_UP: Duration = Duration::from_secs(10);
/// The pause between calls of the honest client.
const CALLS_EVERY: Duration = Duration::from_millis(5);
/// The most bytes of a stranger.
const BYTES_MAX: u64 = 2_000;
/// The most handshakes whose cost is measured.
const HANDSHAKES_MAX: usize = 2_000;
/// Number of honest handshakes during which silent sockets are open.
const HONEST: usize = 100;
/// The silo is left alone for this time before its memory is read.
const SETTLE: Duration = Duration::from_secs(3);

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Strangers in all: a quarter each before and after the handshake, without and with TLS.
    pub count: usize,
    /// Sockets that say nothing while honest handshakes are timed.
    pub silent: usize,
    /// Seed of their bytes.
    pub seed: u64,
}

/// The results with one silo.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The kind of silo: `plain` or `TLS`.
    pub what: &'static str,
    /// Strangers that came.
    pub strangers: usize,
    /// Bytes in memory after the first tenth of them, and after all.
    pub resident: [u64; 2],
    /// Calls of the honest client: how many, how many failed, the longest.
    pub calls: (usize, usize, Duration),
    /// Processor time of the silo for one honest handshake, from its first byte to its Welcome.
    pub handshake: Duration,
    /// The longest honest handshake during which silent sockets are open, less the median without
    /// them.
    pub delay: Duration,
}

/// Measures both.
///
/// # Errors
/// A silo that ended.
pub fn run(plan: &Plan, launcher: &Launcher, say: &dyn Fn(&str)) -> Result<Vec<Measured>> {
    let folder = tempfile::tempdir()?;
    make_certificates(folder.path())?;
    let mut all = Vec::new();
    for is_secured in [false, true] {
        let store =
            format!("sqlite://{}", folder.path().join(format!("{is_secured}.db")).display());
        let what = match is_secured {
            true => What::SecuredSilo(store.clone(), folder.path().to_owned()),
            false => What::Silo(store.clone()),
        };
        let server = launcher.serve(Serve { threads: 2, what })?;
        let target = Target::new(is_secured.then_some(folder.path()))?;
        let measured = runtime(2)?.block_on(one(plan, server, &store, target, say))?;
        say(&format!("{measured:?}"));
        all.push(measured);
    }
    Ok(all)
}

async fn one(
    plan: &Plan,
    mut server: Server,
    store: &str,
    target: Target,
    say: &dyn Fn(&str),
) -> Result<Measured> {
    let port = gateway(store).await?;
    let target = Arc::new(target);
    let handshake = cost(&mut server, port, &target, plan.count.min(HANDSHAKES_MAX)).await?;
    let quiet = honest(port, &target).await?[0];
    let silent =
        many(plan.silent, move || async move { Ok(TcpStream::connect(port).await?) }).await?;
    let delay = honest(port, &target).await?[1].saturating_sub(quiet);
    drop(silent);
    tokio::time::sleep(SETTLE).await;
    say(&format!("a handshake costs {handshake:?}; silent sockets delay one by {delay:?}"));

    let is_over = Arc::new(AtomicBool::new(false));
    let caller = tokio::spawn(call(store.to_owned(), target.clone(), is_over.clone()));
    let mut resident = [0; 2];
    let (first, rest) = (plan.count / 20, plan.count / 2 - plan.count / 20);
    for (at, count) in [first, rest].into_iter().enumerate() {
        come(count, plan.seed + at as u64, port, &target).await?;
        tokio::time::sleep(SETTLE).await;
        resident[at] = server.usage()?.resident;
        say(&format!("{count} strangers: {} MiB", resident[at] >> 20));
    }
    is_over.store(true, Ordering::Relaxed);
    let calls = caller.await??;
    let what = if target.0.is_some() { "TLS" } else { "plain" };
    Ok(Measured { what, strangers: first + rest, resident, calls, handshake, delay })
}

/// The encryption of connections to a silo: none, or TLS by the files in a folder.
struct Target(Option<(TlsConnector, Arc<ClientConfig>, PathBuf)>);

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

impl Target {
    fn new(folder: Option<&Path>) -> Result<Self> {
        let Some(folder) = folder else { return Ok(Self(None)) };
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(folder.join("authority.pem"))?)?;
        let chain: std::result::Result<Vec<_>, _> =
            CertificateDer::pem_file_iter(folder.join("client.pem"))?.collect();
        let key = PrivateKeyDer::from_pem_file(folder.join("client.key"))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain?, key)?;
        config.alpn_protocols = vec![b"emmer/1".to_vec()];
        config.resumption = rustls::client::Resumption::disabled();
        let config = Arc::new(config);
        Ok(Self(Some((TlsConnector::from(config.clone()), config, folder.to_owned()))))
    }

    fn tls(&self) -> Option<Tls> {
        self.0.as_ref().map(|(_, _, folder)| client_tls(folder))
    }

    fn name() -> Result<ServerName<'static>> {
        Ok(ServerName::try_from("silo.bench.emmer")?)
    }

    /// A connection with the encryption that the silo wants.
    async fn connect(&self, port: SocketAddr) -> Result<Box<dyn Stream>> {
        let stream = TcpStream::connect(port).await?;
        // Ends the connection without TCP's usual wait: there are too many.
        stream.set_zero_linger()?;
        stream.set_nodelay(true)?;
        Ok(match &self.0 {
            None => Box::new(stream),
            Some((connector, ..)) => Box::new(connector.connect(Self::name()?, stream).await?),
        })
    }

    /// The first bytes of an honest peer.
    fn first_bytes(&self, hello: &[u8]) -> Result<Vec<u8>> {
        let Some((_, config, _)) = &self.0 else { return Ok(hello.to_vec()) };
        let mut session = ClientConnection::new(config.clone(), Self::name()?)?;
        let mut first = Vec::new();
        session.write_tls(&mut first)?;
        Ok(first)
    }
}

fn hello(number: u64) -> Result<BytesMut> {
    let limits = ConnectionLimits::new(&Limits::default(), 1 << 20);
    let mut out = BytesMut::new();
    encode_hello(&mut out, &Hello::new(cluster_id()?, PeerKind::Client(number), None, limits));
    Ok(out)
}

/// A connection that was welcomed.
async fn welcomed(port: SocketAddr, target: &Target, number: u64) -> Result<Box<dyn Stream>> {
    let mut stream = target.connect(port).await?;
    stream.write_all(&hello(number)?).await?;
    stream.flush().await?;
    let mut input = BytesMut::new();
    loop {
        if let Some(frame) = decode_frame(&mut input, HANDSHAKE_BYTES_MAX)? {
            let welcome = frame.kind == FrameKind::Welcome;
            return if welcome { Ok(stream) } else { Err("not welcomed".into()) };
        }
        if stream.read_buf(&mut input).await? == 0 {
            return Err("the silo hung up".into());
        }
    }
}

/// Honest handshakes, one after the other: the median and the longest.
async fn honest(port: SocketAddr, target: &Target) -> Result<[Duration; 2]> {
    let mut times = Vec::with_capacity(HONEST);
    for number in 0..HONEST {
        let begun = Instant::now();
        drop(welcomed(port, target, number as u64).await?);
        times.push(begun.elapsed());
    }
    Ok([0.5, 1.0].map(|q| quantile(&times, q).unwrap_or_default()))
}

/// The silo's processor time for one handshake.
async fn cost(
    server: &mut Server,
    port: SocketAddr,
    target: &Target,
    count: usize,
) -> Result<Duration> {
    let before = server.usage()?.cpu;
    for number in 0..count {
        drop(welcomed(port, target, number as u64).await?);
    }
    let used = server.usage()?.cpu.saturating_sub(before);
    Ok(used / u32::try_from(count)?)
}

/// The honest client: how many calls it made, how many failed, and the longest.
async fn call(
    store: String,
    target: Arc<Target>,
    is_over: Arc<AtomicBool>,
) -> Result<(usize, usize, Duration)> {
    let client = Client::builder().store(store).cluster_id(cluster_id()?);
    let client = match target.tls() {
        Some(tls) => client.tls(tls),
        None => client,
    };
    let client = client.connect().await?;
    let echo = client.grain::<dyn Echo>(1);
    let (mut calls, mut failed, mut longest) = (0, 0, Duration::ZERO);
    while !is_over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let answered = echo.echo(Bytes::from_static(b"honest")).await;
        calls += 1;
        failed += usize::from(answered.is_err());
        longest = longest.max(begun.elapsed());
        tokio::time::sleep(CALLS_EVERY).await;
    }
    Ok((calls, failed, longest))
}

/// Lets `count` strangers come, every other one after a good handshake.
async fn come(count: usize, seed: u64, port: SocketAddr, target: &Arc<Target>) -> Result<()> {
    let left = Arc::new(AtomicUsize::new(count));
    let failed = Arc::new(std::sync::Mutex::new(None));
    let mut strangers = JoinSet::new();
    for at in 0..AT_ONCE {
        let (left, failed, target) = (left.clone(), failed.clone(), target.clone());
        let mut rng = SeededRng::new(seed.wrapping_mul(1_000_003).wrapping_add(at as u64));
        strangers.spawn(async move {
            let take = |left: usize| left.checked_sub(1);
            while let Ok(number) = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
                let came = stranger(port, &target, number, &mut rng);
                match tokio::time::timeout(HANGS_UP, came).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => *lock(&failed) = Some(error.to_string()),
                    Err(_) => *lock(&failed) = Some("the silo did not hang up".to_owned()),
                }
            }
        });
    }
    while strangers.join_next().await.is_some() {}
    let failed = lock(&failed).take();
    failed.map_or(Ok(()), |why| Err(why.into()))
}

/// One stranger: says something wrong, and waits until the silo hangs up.
async fn stranger(
    port: SocketAddr,
    target: &Target,
    number: usize,
    rng: &mut SeededRng,
) -> Result<()> {
    let (mut stream, wrong): (Box<dyn Stream>, _) = if number.is_multiple_of(2) {
        let stream = TcpStream::connect(port).await?;
        stream.set_zero_linger()?;
        let good = target.first_bytes(&hello(number as u64)?)?;
        (Box::new(stream), spoilt(&good, rng))
    } else {
        (welcomed(port, target, number as u64).await?, no_frames(rng))
    };
    // The silo may hang up before it has read everything, and after any byte of it.
    let _ = stream.write_all(&wrong).await;
    let _ = stream.shutdown().await;
    let mut heard = [0; 4_096];
    while stream.read(&mut heard).await.is_ok_and(|n| n > 0) {}
    Ok(())
}

/// Wrong bytes: cut, with flipped bits, or random.
fn spoilt(good: &[u8], rng: &mut SeededRng) -> Vec<u8> {
    let mut bytes = good.to_vec();
    match rng.below(4) {
        0 => bytes.truncate(rng.below(good.len() as u64) as usize),
        1 => {
            for _ in 0..=rng.below(3) {
                let at = rng.below(good.len() as u64) as usize;
                bytes[at] ^= 1 << rng.below(8);
            }
        }
        2 => {
            let at = rng.below(good.len() as u64) as usize;
            bytes.splice(at.., chance(rng));
        }
        _ => bytes = chance(rng),
    }
    bytes
}

/// Invalid frames: cut ones, or of a kind that a client does not send.
fn no_frames(rng: &mut SeededRng) -> Vec<u8> {
    let mut out = BytesMut::new();
    for _ in 0..=rng.below(4) {
        let body = chance(rng);
        match rng.below(4) {
            // A good length, and any kind.
            0 | 1 => {
                out.put_u32_le(body.len() as u32 + 1);
                out.put_u8(rng.below(16) as u8);
            }
            // Any length.
            2 => out.put_u32_le(rng.below(1 << 32) as u32),
            _ => {}
        }
        out.put_slice(&body);
    }
    out.to_vec()
}

fn chance(rng: &mut SeededRng) -> Vec<u8> {
    (0..rng.below(BYTES_MAX)).map(|_| rng.below(256) as u8).collect()
}

/// The table, with the goals.
pub fn report(found: &[Measured]) -> Report {
    let title = "Bytes that are no frames and no handshakes (emmer-lab bench strangers).";
    let columns = [
        "silo",
        "strangers",
        "MiB after a tenth",
        "MiB after all",
        "honest calls",
        "failed",
        "longest, ms",
        "CPU of a handshake, ms",
        "delay by silent ones, ms",
    ];
    let mut report = Report::new("bench-strangers", title, &columns);
    let ms = |time: Duration| time.as_secs_f64() * 1_000.0;
    #[expect(clippy::cast_precision_loss, reason = "bytes far below 2^52")]
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    for one in found {
        let (calls, failed, longest) = one.calls;
        report.push(vec![
            one.what.into(),
            Cell::Number(one.strangers as f64, 0),
            Cell::Number(mib(one.resident[0]), 1),
            Cell::Number(mib(one.resident[1]), 1),
            Cell::Number(calls as f64, 0),
            Cell::Number(failed as f64, 0),
            Cell::Number(ms(longest), 1),
            Cell::Number(ms(one.handshake), 3),
            Cell::Number(ms(one.delay), 1),
        ]);
        let goal = |what: &str, reached, most| {
            Goal::at_most(format!("{}: {what}", one.what), reached, most)
        };
        let grown = mib(one.resident[1]) - mib(one.resident[0]);
        report.goals.push(goal("growth, MiB", grown, 8.0));
        report.goals.push(goal("honest calls that failed", failed as f64, 0.0));
        report.goals.push(goal("CPU of a handshake, ms", ms(one.handshake), 2.0));
        report.goals.push(goal("delay of an honest handshake, ms", ms(one.delay), 50.0));
    }
    report
}
