//! The serving sides of the floors.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::frames::{BUFFER, READ_ROOM, put, take};
use super::mux::write_batches;
use crate::job::Served;
use crate::lock;

/// Number of actors, or of shards of the map of grains.
const ACTORS: u64 = 16;
const SHARDS: usize = 64;
/// Number of grains of the `turn` server.
const GRAINS: u64 = 1024;

type Turn = Arc<dyn Fn(Bytes) -> Pin<Box<dyn Future<Output = Bytes> + Send>> + Send + Sync>;

/// Grains by identity, as many maps as shards.
pub struct Grains(Vec<Mutex<HashMap<u128, Turn>>>);

impl Grains {
    fn new() -> Self {
        let shards: Vec<Mutex<HashMap<u128, Turn>>> =
            (0..SHARDS).map(|_| Mutex::default()).collect();
        let grains = Self(shards);
        for number in 0..GRAINS {
            let turn: Turn = Arc::new(|body| Box::pin(async move { body }));
            lock(grains.shard(number)).insert(u128::from(number), turn);
        }
        grains
    }

    fn shard(&self, number: u64) -> &Mutex<HashMap<u128, Turn>> {
        &self.0[usize::try_from(number).unwrap_or(0) % SHARDS]
    }

    fn get(&self, number: u64) -> Option<Turn> {
        lock(self.shard(number)).get(&u128::from(number)).cloned()
    }
}

/// Accepts connections on `listener`; never ends.
pub async fn accept(listener: TcpListener, what: Served) {
    let grains = Arc::new(Grains::new());
    while let Ok((stream, _)) = listener.accept().await {
        // A stream that refuses the option works without it, slower.
        let _ = stream.set_nodelay(true);
        let grains = grains.clone();
        match what {
            Served::Actors => tokio::spawn(hand_on(stream)),
            Served::Turns => tokio::spawn(async move { answer(stream, Some(&grains)).await }),
            Served::Echo => tokio::spawn(async move { answer(stream, None).await }),
        };
    }
}

/// Answers every frame from the loop that read it; with `grains`, by a turn of one of them, polled
/// in place.
async fn answer(mut stream: TcpStream, grains: Option<&Grains>) {
    let (mut incoming, mut outgoing) =
        (BytesMut::with_capacity(BUFFER), BytesMut::with_capacity(BUFFER));
    loop {
        incoming.reserve(READ_ROOM);
        if stream.read_buf(&mut incoming).await.unwrap_or(0) == 0 {
            return;
        }
        while let Some((number, body)) = take(&mut incoming) {
            match grains {
                None => put(&mut outgoing, number, &body),
                Some(grains) => {
                    let Some(turn) = grains.get(number % GRAINS) else { return };
                    put(&mut outgoing, number, &turn(body).await);
                }
            }
        }
        if stream.write_all_buf(&mut outgoing).await.is_err() {
            return;
        }
        outgoing.clear();
    }
}

type Reply = (u64, Bytes);

/// Gives every frame to one of a few actors, which give their answers to the writing task.
#[expect(
    clippy::disallowed_methods,
    reason = "the floor is what the peers do; no caller has two calls under way"
)]
async fn hand_on(stream: TcpStream) {
    let (mut reading, writing) = stream.into_split();
    let (replies, written) = mpsc::unbounded_channel::<Reply>();
    tokio::spawn(write_batches(writing, written));
    let actors: Vec<mpsc::UnboundedSender<(Reply, mpsc::UnboundedSender<Reply>)>> = (0..ACTORS)
        .map(|_| {
            let (actor, mut inbox) =
                mpsc::unbounded_channel::<(Reply, mpsc::UnboundedSender<Reply>)>();
            tokio::spawn(async move {
                while let Some((reply, to)) = inbox.recv().await {
                    // The writer is gone when the connection is.
                    let _ = to.send(reply);
                }
            });
            actor
        })
        .collect();
    let mut incoming = BytesMut::with_capacity(BUFFER);
    loop {
        incoming.reserve(READ_ROOM);
        if reading.read_buf(&mut incoming).await.unwrap_or(0) == 0 {
            return;
        }
        while let Some(frame) = take(&mut incoming) {
            let actor = &actors[usize::try_from(frame.0 % ACTORS).unwrap_or(0)];
            let _ = actor.send((frame, replies.clone()));
        }
    }
}
