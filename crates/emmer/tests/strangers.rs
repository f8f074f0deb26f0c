//! A process that speaks the protocol and is in no view has no say.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

mod common;

use bytes::BytesMut;
use common::Counter;
use emmer::prelude::*;
use emmer::{GrainId, Limits};
use emmer_wire::{ConnectionLimits, Hello, PeerKind, channel, encode_hello, encode_system};
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What a directory says to the host of an activation that has lost its grain.
#[derive(Serialize)]
enum Message<'a> {
    #[serde(rename = "x")]
    Evict {
        #[serde(rename = "g")]
        grain: &'a GrainId,
        #[serde(rename = "a")]
        activation: u64,
    },
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silo_that_no_view_names_cannot_end_activations() {
    let (_store, silos) = common::cluster(1).await;
    let counter = silos[0].client().grain::<dyn Counter>("here");
    counter.add(1).await.unwrap();
    let mut stranger = TcpStream::connect(silos[0].address().endpoint()).await.unwrap();
    let mut out = BytesMut::new();
    let me = PeerKind::Silo("127.0.0.1:9:9".parse().unwrap());
    let limits = ConnectionLimits::new(&Limits::default(), 1 << 20);
    encode_hello(&mut out, &Hello::new(ClusterId::new("dev").unwrap(), me, None, limits));
    for activation in 0..100 {
        let evict = Message::Evict { grain: counter.grain_id(), activation };
        encode_system(&mut out, channel::DIRECTORY, &evict).unwrap();
    }
    // No frame at all: the silo ends the connection when it has read all before it.
    out.extend_from_slice(&[0; 4]);
    stranger.write_all(&out).await.unwrap();
    let mut heard = Vec::new();
    let _ = stranger.read_to_end(&mut heard).await;
    assert!(!heard.is_empty(), "it was welcomed");
    assert_eq!(counter.add(1).await.unwrap(), 2);
    assert_eq!(silos[0].statistics().activated, 1);
}
