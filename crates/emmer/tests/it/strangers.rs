//! A process that speaks the protocol and is in no view has no say.

use std::net::SocketAddr;

use bytes::BytesMut;
use emmer::metrics::MetricValue;
use emmer::options::Limits;
use emmer::prelude::*;
use emmer::tables::{GrainId, SiloAddress, SiloStatus};
use emmer_wire::{ConnectionLimits, Hello, PeerKind, channel, encode_hello, encode_system};
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::common::{self, Counter};

/// The word of a directory to the host of an activation that has lost its grain.
#[derive(Serialize)]
pub(crate) enum Message<'a> {
    #[serde(rename = "x")]
    Evict {
        #[serde(rename = "g")]
        grain: &'a GrainId,
        #[serde(rename = "a")]
        activation: u64,
    },
}

/// A process that says it is a silo, or is a client.
struct Stranger {
    stream: TcpStream,
    out: BytesMut,
}

impl Stranger {
    async fn dial(silo: SiloAddress) -> Self {
        Self::dial_as(PeerKind::Silo("127.0.0.1:9:9".parse().unwrap()), silo.endpoint()).await
    }

    async fn dial_as(me: PeerKind, endpoint: SocketAddr) -> Self {
        let stream = TcpStream::connect(endpoint).await.unwrap();
        let mut out = BytesMut::new();
        let limits = ConnectionLimits::new(&Limits::default(), 1 << 20);
        encode_hello(&mut out, &Hello::new(ClusterId::new("dev").unwrap(), me, None, limits));
        Self { stream, out }
    }

    fn say<T: Serialize>(&mut self, channel: u8, message: &T) {
        encode_system(&mut self.out, channel, message).unwrap();
    }

    /// Returns when the silo has read everything.
    async fn end(mut self) {
        // No frame at all: the silo ends the connection when it has read all before it.
        self.out.extend_from_slice(&[0; 4]);
        self.stream.write_all(&self.out).await.unwrap();
        let mut heard = Vec::new();
        let _ = self.stream.read_to_end(&mut heard).await;
        assert!(!heard.is_empty(), "it was welcomed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silo_that_no_view_names_cannot_end_activations() {
    let (_store, silos) = common::cluster(1).await;
    let counter = silos[0].grains().grain::<dyn Counter>("here");
    counter.add(1).await.unwrap();
    let mut stranger = Stranger::dial(silos[0].address()).await;
    for activation in 0..100 {
        let evict = Message::Evict { grain: counter.grain_id(), activation };
        stranger.say(channel::DIRECTORY, &evict);
    }
    stranger.end().await;
    assert_eq!(counter.add(1).await.unwrap(), 2);
    assert_eq!(silos[0].statistics().activated, 1);
}

/// Messages about membership that would end a silo, or make it act.
#[derive(Serialize)]
enum Order {
    #[serde(rename = "x")]
    Obituary {
        #[serde(rename = "v")]
        version: u64,
    },
    #[serde(rename = "l")]
    Superseded {
        #[serde(rename = "b")]
        by: SiloAddress,
    },
    #[serde(rename = "u")]
    Hush {
        #[serde(rename = "t")]
        target: SiloAddress,
        #[serde(rename = "b")]
        by: SiloAddress,
        #[serde(rename = "s")]
        stamp: u64,
    },
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silo_that_no_view_names_cannot_end_a_silo() {
    let (_store, silos) = common::cluster(1).await;
    let me = silos[0].address();
    let later = SiloAddress::new(me.endpoint(), me.epoch() + 1);
    let orders = [
        Order::Obituary { version: u64::MAX },
        Order::Superseded { by: later },
        Order::Hush { target: me, by: later, stamp: 1 },
    ];
    let mut stranger = Stranger::dial(me).await;
    orders.iter().for_each(|order| stranger.say(channel::MEMBERSHIP, order));
    stranger.end().await;
    let refused = || silos[0].membership_statistics().counters.refused;
    while refused() < orders.len() as u64 {
        tokio::task::yield_now().await;
    }
    assert_eq!(silos[0].view().status_of(&me), Some(SiloStatus::Active));
    silos[0].grains().grain::<dyn Counter>("here").add(1).await.unwrap();
}

/// Messages of streams, as they travel.
#[derive(Serialize)]
pub(crate) enum Streams {
    #[serde(rename = "p")]
    Parcel {
        #[serde(rename = "t")]
        to: Place,
        #[serde(rename = "f")]
        from: Place,
        #[serde(rename = "p")]
        parts: Vec<Part>,
    },
}

#[derive(Clone, Copy, Serialize)]
pub(crate) struct Place {
    #[serde(rename = "s")]
    pub(crate) silo: SiloAddress,
    #[serde(rename = "c")]
    pub(crate) client: Option<u64>,
}

/// A question to the writer of a stream.
#[derive(Clone, Serialize)]
pub(crate) enum ToWriter {
    #[serde(rename = "q")]
    Check {
        #[serde(rename = "s")]
        stream: u64,
        #[serde(rename = "c")]
        credit: Credit,
    },
}

#[derive(Clone, Serialize)]
pub(crate) struct Credit {
    #[serde(rename = "i")]
    pub(crate) items: u64,
    #[serde(rename = "b")]
    pub(crate) bytes: u64,
}

#[derive(Clone, Serialize)]
pub(crate) enum Part {
    #[serde(rename = "w")]
    ToWriter(ToWriter),
    #[serde(rename = "l")]
    Link(u64),
    #[serde(rename = "x")]
    Forget(u64, u64),
}

/// A place is data: a client may name any address, and any other client.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_makes_no_silo_dial_and_begins_no_link() {
    let (_store, silos) = common::cluster(1).await;
    let gateway = silos[0].gateway().unwrap();
    let trap = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let trapped = SiloAddress::new(trap.local_addr().unwrap(), 1);
    let mut client = Stranger::dial_as(PeerKind::Client(7), gateway).await;
    let here = Place { silo: silos[0].address(), client: Some(7) };
    let silo = Place { silo: silos[0].address(), client: None };
    let parts: Vec<Part> = (0..1_000).flat_map(|n| [Part::Link(n), Part::Forget(n, n)]).collect();
    for (to, from) in [
        (Place { silo: trapped, client: None }, here),
        (Place { silo: trapped, client: Some(1) }, here),
        (silo, here),
        (silo, Place { silo: silos[0].address(), client: Some(8) }),
        (silo, Place { silo: trapped, client: None }),
        (Place { silo: silos[0].address(), client: Some(9) }, here),
    ] {
        client.say(channel::STREAMS, &Streams::Parcel { to, from, parts: parts.clone() });
    }
    client.end().await;
    silos[0].grains().grain::<dyn Counter>("here").add(1).await.unwrap();
    let dialled = tokio::time::timeout(millis(300), trap.accept()).await;
    assert!(dialled.is_err(), "the silo has dialled an address that a client has named");
    let streams = silos[0].metrics();
    let open = streams.iter().filter(|sample| sample.metric.name == "emmer_streams");
    assert!(open.map(|sample| &sample.value).all(|open| *open == MetricValue::Level(0.0)));
}
