//! `floor-mux`: the best of most RPC libraries. One connection for many callers. Each call puts a
//! oneshot into a map and its frame into a channel. One task writes whatever has gathered, another
//! reads and answers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};

use super::frames::{BUFFER, READ_ROOM, put, take};
use crate::drive::Exchange;
use crate::lock;

/// See the module.
pub struct Mux {
    frames: mpsc::UnboundedSender<(u64, Bytes)>,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Bytes>>>,
    next: AtomicU64,
}

impl Mux {
    /// Connects.
    ///
    /// # Errors
    /// The operating system's error.
    #[expect(
        clippy::disallowed_methods,
        reason = "the floor is what the peers do; no caller has two calls under way"
    )]
    pub async fn connect(address: &str) -> crate::Result<Arc<Self>> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (reading, writing) = stream.into_split();
        let (frames, written) = mpsc::unbounded_channel();
        let mux = Arc::new(Self { frames, waiting: Mutex::default(), next: AtomicU64::new(0) });
        tokio::spawn(write_batches(writing, written));
        tokio::spawn(read_answers(reading, mux.clone()));
        Ok(mux)
    }
}

impl Exchange for Arc<Mux> {
    async fn exchange(&self, body: &Bytes, _: u64) -> crate::Result<usize> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, wait) = oneshot::channel();
        lock(&self.waiting).insert(number, answer);
        self.frames.send((number, body.clone()))?;
        Ok(wait.await?.len())
    }
}

async fn read_answers(mut reading: OwnedReadHalf, mux: Arc<Mux>) {
    let mut incoming = BytesMut::with_capacity(BUFFER);
    loop {
        incoming.reserve(READ_ROOM);
        if reading.read_buf(&mut incoming).await.unwrap_or(0) == 0 {
            return;
        }
        let mut waiting = lock(&mux.waiting);
        while let Some((number, body)) = take(&mut incoming) {
            if let Some(answer) = waiting.remove(&number) {
                // A caller that has gone away needs no answer.
                let _ = answer.send(body);
            }
        }
    }
}

/// Writes frames, as many at once as have gathered.
pub(super) async fn write_batches(
    mut writing: OwnedWriteHalf,
    mut frames: mpsc::UnboundedReceiver<(u64, Bytes)>,
) {
    let mut outgoing = BytesMut::with_capacity(BUFFER);
    while let Some((number, body)) = frames.recv().await {
        put(&mut outgoing, number, &body);
        while outgoing.len() <= BUFFER {
            let Ok((number, body)) = frames.try_recv() else { break };
            put(&mut outgoing, number, &body);
        }
        if writing.write_all_buf(&mut outgoing).await.is_err() {
            return;
        }
        outgoing.clear();
    }
}
