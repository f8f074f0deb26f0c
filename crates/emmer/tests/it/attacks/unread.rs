//! Clients that read nothing: whatever they send, a silo holds no more of it than it says, and
//! serves others meanwhile.

use bytes::BytesMut;
use emmer::prelude::*;
use emmer::{Access, GrainId, Limits, Silo};
use emmer_wire::{
    CallChain, ConnectionLimits, Hello, PeerKind, RequestFlags, RequestHeader, channel,
    encode_hello, encode_request, encode_system,
};
use serde::Serialize;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::imp::run;

/// All that clients may hold.
const MAX: usize = 4 << 20;
/// Bytes that one connection may always hold: of calls, of answers that wait, and of what is being
/// written.
const OF_ONE: usize = 3 * (64 << 10);
/// The answers of one go of each thread, which are counted when it is over.
const OF_THREADS: usize = 2 * (1 << 20);
/// More than any buffer on the way takes.
const SENT_MAX: usize = 256 << 20;

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

/// As gateways read it.
#[derive(Serialize)]
enum Query {
    #[serde(rename = "q")]
    Statistics,
    #[serde(rename = "w")]
    Gateways,
}

async fn silo(store: &str) -> Silo {
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
        .start()
        .await
        .unwrap()
}

/// A connection that has said hello and will read nothing.
async fn deaf(silo: &Silo) -> TcpStream {
    let mut stream = TcpStream::connect(silo.gateway().unwrap()).await.unwrap();
    let mut out = BytesMut::new();
    let limits = ConnectionLimits::new(&Limits::default(), 1 << 20);
    let cluster = ClusterId::new("dev").unwrap();
    encode_hello(&mut out, &Hello::new(cluster, PeerKind::Client(7), None, limits));
    stream.write_all(&out).await.unwrap();
    stream
}

/// A thousand calls of one method.
fn calls(target: &GrainId, method: &str) -> BytesMut {
    let mut out = BytesMut::new();
    for correlation in 1..=1_000 {
        let header = RequestHeader {
            correlation,
            target: target.clone(),
            method: emmer::__rt::name32(method),
            flags: RequestFlags::NONE,
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
        encode_request(&mut out, &header, no_arguments).unwrap();
    }
    out
}

fn queries(query: &Query) -> BytesMut {
    let mut out = BytesMut::new();
    for _ in 0..1_000 {
        encode_system(&mut out, channel::GATEWAY, query).unwrap();
    }
    out
}

/// Sends the same again and again, until the silo takes no more or ends the connection.
async fn send_all(mut stream: TcpStream, bytes: BytesMut) {
    let mut sent = 0;
    while let Ok(Ok(())) = tokio::time::timeout(secs(1), stream.write_all(&bytes)).await {
        sent += bytes.len();
        assert!(sent < SENT_MAX, "the silo takes {sent} bytes of a client that reads nothing");
    }
    // It still reads nothing.
    tokio::time::sleep(millis(500)).await;
}

/// Refusals, by the silo itself and by the application's rules; statistics; lists of gateways;
/// calls that wait.
#[test]
fn a_client_that_reads_nothing_is_not_read_from() {
    run(2, 300, async {
        let silo = silo("unread").await;
        let id = |key: &str| silo.client().grain::<dyn Desk>(key).grain_id().clone();
        let vault = silo.client().grain::<dyn Vault>("a").grain_id().clone();
        let attacks = [
            ("internal", calls(&vault, "Vault.open")),
            ("refused", calls(&id("refused"), "Desk.ask")),
            ("answered", calls(&id("a"), "Desk.ask")),
            ("unknown", calls(&id("a"), "Desk.unknown")),
            ("statistics", queries(&Query::Statistics)),
            ("gateways", queries(&Query::Gateways)),
            ("waiting", calls(&id("busy"), "Desk.rest")),
        ];
        let honest = Client::builder().gateways([silo.gateway().unwrap().to_string()]);
        let honest = honest.cluster_id("dev").connect().await.unwrap();
        let grain = honest.grain::<dyn Desk>("honest");
        for (name, bytes) in attacks {
            let mut senders = tokio::task::JoinSet::new();
            for _ in 0..4 {
                senders.spawn(send_all(deaf(&silo).await, bytes.clone()));
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
    });
}
