//! Clients that read nothing: whatever they send, a silo holds at most its stated limit of it, and
//! serves others meanwhile.
//!
//! The attacks list everything in the protocol: a new kind of frame does not compile without its
//! attack, and a new channel without its message fails the test.

use bytes::BytesMut;
use emmer::access::Access;
use emmer::admin::Question;
use emmer::options::Limits;
use emmer::prelude::*;
use emmer::tables::GrainId;
use emmer::{Silo, SiloBuilder};
use emmer_wire::{
    CallChain, ConnectionLimits, FailureCode, FrameKind, GoodbyeCode, Hello, PeerKind, Refuse,
    RefuseCode, RequestFlags, RequestHeader, Welcome, channel, encode_cancel, encode_credit,
    encode_failure, encode_goodbye, encode_hello, encode_refuse, encode_request, encode_system,
    encode_welcome,
};
use serde::Serialize;
use tokio::io::AsyncWriteExt;

use super::imp::run;
use crate::imposters::{Connected, connect};
use crate::strangers::{Credit, Part, Place, Streams, ToWriter};
use crate::tls::Authority;

/// All that clients may hold.
const MAX: usize = 4 << 20;
/// Bytes that one connection may always hold: of calls, of waiting answers, and of answers being
/// written.
const OF_ONE: usize = 3 * (64 << 10);
/// Answers of one go of each thread; they are counted at its end.
const OF_THREADS: usize = 2 * (1 << 20);
/// More than any buffer on the way takes.
const SENT_MAX: usize = 256 << 20;
/// Enough frames without an answer.
const SENT_ENOUGH: usize = 16 << 20;

#[grain_interface(key = String, internal)]
trait Vault {
    async fn open(&self) -> u64;
}

#[derive(Grain, Default)]
struct VaultGrain;

#[grain]
impl Vault for VaultGrain {
    async fn open(&self) -> u64 {
        1
    }
}

#[grain_interface(key = String)]
trait Desk {
    async fn ask(&self) -> u64;
    async fn rest(&mut self);
}

#[derive(Grain, Default)]
struct DeskGrain;

#[grain]
impl Desk for DeskGrain {
    async fn ask(&self) -> u64 {
        1
    }
    async fn rest(&mut self) {
        tokio::time::sleep(secs(60)).await;
    }
}

fn builder(store: &str) -> SiloBuilder {
    let silo = Silo::builder().store(format!("memory://{store}")).gateway("127.0.0.1:0");
    silo.host::<dyn Vault, VaultGrain>()
        .host::<dyn Desk, DeskGrain>()
        .configure(|options| options.limits.client_bytes_max = MAX)
        .authorize(|call| {
            if call.key().to_string() == "refused" {
                Access::Refuse("w".repeat(1_000))
            } else {
                Access::Allow
            }
        })
}

fn hello() -> Hello {
    let limits = ConnectionLimits::new(&Limits::default(), 1 << 20);
    Hello::new(ClusterId::new("dev").unwrap(), PeerKind::Client(7), None, limits)
}

/// A connection that has said hello and will read nothing.
async fn deaf(silo: &Silo, shows: Option<(&Authority, &str)>) -> Connected {
    let (mut stream, exported) = connect(silo.gateway().unwrap(), shows).await;
    let mut out = BytesMut::new();
    encode_hello(&mut out, &hello());
    stream.write_all(&out).await.unwrap();
    stream.flush().await.unwrap();
    (stream, exported)
}

/// Frames that a client sends again and again.
struct Attack {
    name: String,
    bytes: BytesMut,
    /// The silo answers each, if only by a refusal.
    is_answered: bool,
}

/// A thousand frames, as `write` appends them.
fn attack(name: &str, is_answered: bool, write: impl Fn(&mut BytesMut, u64)) -> Attack {
    let mut bytes = BytesMut::new();
    (1..=1_000).for_each(|n| write(&mut bytes, n));
    Attack { name: name.to_owned(), bytes, is_answered }
}

fn calls(name: &str, target: &GrainId, method: &str, one_way: bool) -> Attack {
    let flags = if one_way { RequestFlags::ONE_WAY } else { RequestFlags::NONE };
    calls_with(name, target, method, flags, !one_way)
}

/// Calls whose callers wait only until they begin.
fn begun(name: &str, target: &GrainId, method: &str) -> Attack {
    let attack = calls_with(name, target, method, RequestFlags::ONE_WAY, true);
    Attack { is_answered: false, ..attack }
}

fn calls_with(
    name: &str,
    target: &GrainId,
    method: &str,
    flags: RequestFlags,
    with_number: bool,
) -> Attack {
    attack(name, with_number, |out, n| {
        let header = RequestHeader {
            correlation: if with_number { n } else { 0 },
            target: target.clone(),
            method: emmer::__rt::name32(method),
            flags,
            deadline_ms: 60_000,
            forwards: 0,
            expect_view: 0,
            chain: CallChain::EMPTY,
            trace: None,
        };
        let no_arguments = |out: &mut BytesMut| {
            out.extend_from_slice(&[0x80]);
            Ok::<_, ()>(())
        };
        encode_request(out, &header, no_arguments).unwrap();
    })
}

fn says<T: Serialize>(channel: u8, message: &T, is_answered: bool) -> Attack {
    let name = format!("a message on channel {channel}");
    attack(&name, is_answered, |out, _| {
        encode_system(out, channel, message).unwrap();
    })
}

/// A question that the silo answers: it has no such stream.
fn about_a_stream(silo: &Silo) -> Streams {
    let here = Place { silo: silo.address(), client: None };
    let PeerKind::Client(number) = hello().peer else { unreachable!("a client says hello") };
    let from = Place { client: Some(number), ..here };
    let check = ToWriter::Check { stream: 1, credit: Credit { items: 0, bytes: 0 } };
    Streams::Parcel { to: here, from, parts: vec![Part::ToWriter(check)] }
}

/// Messages of a client in frames of this kind.
fn attacks(kind: FrameKind, silo: &Silo) -> Vec<Attack> {
    let limits = ConnectionLimits::new(&Limits::default(), 1 << 20);
    let id = |key: &str| silo.grain::<dyn Desk>(key).grain_id().clone();
    let vault = silo.grain::<dyn Vault>("a").grain_id().clone();
    match kind {
        FrameKind::Request => vec![
            calls("internal", &vault, "Vault.open", false),
            calls("refused", &id("refused"), "Desk.ask", false),
            calls("answered", &id("a"), "Desk.ask", false),
            calls("unknown", &id("a"), "Desk.unknown", false),
            calls("waiting", &id("busy"), "Desk.rest", false),
            calls("one-way", &id("busy"), "Desk.rest", true),
            begun("until they begin", &id("a"), "Desk.ask"),
            begun("until they begin, behind another", &id("busy"), "Desk.rest"),
        ],
        FrameKind::System => vec![
            says(channel::MEMBERSHIP, &"x", false),
            says(channel::DIRECTORY, &"x", false),
            // Statistics, gateways, and a question that only gateways ask.
            says(channel::GATEWAY, &"q", true),
            says(channel::GATEWAY, &"w", true),
            says(channel::GATEWAY, &"s", false),
            // A ping, and a connection that takes the place of another.
            says(channel::CALLS, &"p", true),
            says(channel::CALLS, &"i", false),
            says(channel::WAITS, &"x", false),
            says(channel::LOAD, &"x", false),
            says(channel::REMINDERS, &"x", false),
            says(channel::MOVES, &"x", false),
            // Questions of an operator: one with a large answer, and an unknown one.
            says(channel::ADMIN, &asks(&Question::Types), true),
            says(channel::ADMIN, &asks(&"x"), true),
            // A question about a stream that is not there. No answer waits for a full connection.
            says(channel::STREAMS, &about_a_stream(silo), false),
        ],
        // Calls that the silo has not made.
        FrameKind::Response => vec![attack("an answer", false, |out, n| {
            encode_failure(out, n, FailureCode::Codec, true, "unasked");
        })],
        FrameKind::Credit => vec![attack("credit", false, |out, _| {
            encode_credit(out, 0);
        })],
        FrameKind::Cancel => vec![attack("cancellations", false, |out, n| {
            encode_cancel(out, n);
        })],
        // Each of them ends the connection.
        FrameKind::Hello => vec![attack("hello", false, |out, _| {
            encode_hello(out, &hello());
        })],
        FrameKind::Welcome => vec![attack("welcome", false, |out, _| {
            let silo = silo.address();
            encode_welcome(out, &Welcome { version: 1, silo, limits, options: 0, seal: None });
        })],
        FrameKind::Refuse => vec![attack("refuse", false, |out, _| {
            let (code, reason) = (RefuseCode::VersionMismatch, "x".to_owned());
            encode_refuse(out, &Refuse { code, silo: None, reason });
        })],
        FrameKind::Goodbye => vec![attack("goodbye", false, |out, _| {
            encode_goodbye(out, GoodbyeCode::Idle, "x");
        })],
    }
}

/// A question on the channel of operators.
#[derive(Serialize)]
enum Asks {
    #[serde(rename = "q")]
    Ask { i: u64, b: bytes::Bytes },
}

fn asks(question: &impl Serialize) -> Asks {
    let mut encoded = BytesMut::new();
    emmer_wire::codec::encode_into(&mut encoded, question).unwrap();
    Asks::Ask { i: 1, b: encoded.freeze() }
}

/// Each channel that the protocol has, as its page lists them.
fn channels() -> Vec<u8> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/wire.md");
    let page = std::fs::read_to_string(page).unwrap();
    let row = page.lines().find_map(|line| line.strip_prefix("| `u8` | channel: ")).unwrap();
    let (listed, _) = row.split_once(';').unwrap();
    listed.split(", ").map(|of| of.split(' ').next().unwrap().parse().unwrap()).collect()
}

/// Sends the same frame again and again, until the silo reads no longer or ends the connection.
async fn send_all((mut stream, _): Connected, attack: &Attack) {
    let mut sent = 0;
    let Attack { name, bytes, is_answered } = attack;
    while let Ok(Ok(())) = tokio::time::timeout(millis(500), stream.write_all(bytes)).await {
        sent += bytes.len();
        if !is_answered && sent > SENT_ENOUGH {
            break;
        }
        assert!(sent < SENT_MAX, "{name}: the silo takes {sent} bytes and none is read");
    }
    // It still reads nothing.
    tokio::time::sleep(millis(100)).await;
}

async fn a_client_that_reads_nothing_is_not_read_from(tls: bool) {
    let store = if tls { "unread-tls" } else { "unread" };
    let authority = Authority::new("a");
    let silo = match tls {
        true => builder(store).tls(authority.tls("silo")),
        false => builder(store),
    };
    let silo = silo.start().await.unwrap();
    let honest = Client::builder().gateways([silo.gateway().unwrap().to_string()]);
    let honest = honest.cluster_id("dev");
    let honest = match tls {
        true => honest.tls(authority.tls("client")),
        false => honest,
    };
    let honest = honest.connect().await.unwrap();
    let grain = honest.grain::<dyn Desk>("honest");
    let shows = tls.then_some((&authority, "client"));
    let kinds = (1..=u8::MAX).map_while(|kind| FrameKind::try_from(kind).ok());
    for attack in kinds.flat_map(|kind| attacks(kind, &silo)).map(std::sync::Arc::new) {
        let name = &attack.name;
        let mut senders = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let (deaf, attack) = (deaf(&silo, shows).await, attack.clone());
            senders.spawn(async move { send_all(deaf, &attack).await });
        }
        while !senders.is_empty() {
            let ended = tokio::time::timeout(millis(20), senders.join_next()).await;
            ended.into_iter().flatten().for_each(|sent| sent.unwrap());
            let held = usize::try_from(silo.statistics().client_bytes).unwrap();
            assert!(held <= MAX + 4 * OF_ONE + OF_THREADS, "{name}: {held} bytes are held");
            grain.ask().timeout(secs(5)).await.unwrap();
        }
    }
    honest.close().await;
    silo.stop_now().await;
}

#[test]
fn whatever_a_client_sends_that_reads_nothing_is_counted() {
    run(2, 300, a_client_that_reads_nothing_is_not_read_from(false));
}

#[test]
fn whatever_a_client_sends_over_tls_that_reads_nothing_is_counted() {
    run(2, 300, a_client_that_reads_nothing_is_not_read_from(true));
}

/// The list above has a message for each channel.
#[test]
fn every_channel_has_its_attack() {
    run(2, 60, async {
        let silo = builder("unread-channels").start().await.unwrap();
        let tried = attacks(FrameKind::System, &silo);
        for channel in channels() {
            let name = format!("a message on channel {channel}");
            assert!(tried.iter().any(|attack| attack.name == name), "{name} is not tried");
        }
        silo.stop_now().await;
    });
}
