//! Connections to other silos, and messages between runtimes that wait for one: in order, bounded,
//! one dial per peer.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use emmer_core::SiloAddress;
use emmer_membership::DialOutcome;
use emmer_net::transport::{Connection, DialError, Greeting, Lost, Pool, SendError, dial_probe};
use emmer_net::warn_seldom;
use emmer_wire::channel::MEMBERSHIP;
use emmer_wire::encode_system;
use parking_lot::Mutex;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

/// Maximum bytes that wait for one peer's connection. More is dropped; the protocols repeat it.
const OUTBOX_BYTES_MAX: usize = 4 << 20;

/// A silent silo may take this long to answer a dial. The next dial is due a little later.
const SILENT_DIAL: Duration = Duration::from_millis(900);

/// The way from one silo to all others.
pub(crate) struct Peers {
    /// The connections, those of clients included.
    pub(crate) pool: Arc<Pool>,
    /// Per peer, whole frames in the order in which they were posted.
    waiting: Mutex<HashMap<SiloAddress, BytesMut>>,
    /// Fires when the silo has ended.
    pub(super) stopped: CancellationToken,
}

impl Peers {
    pub(crate) fn new(pool: Arc<Pool>, stopped: CancellationToken) -> Arc<Self> {
        Arc::new(Self { pool, waiting: Mutex::default(), stopped })
    }

    /// The connection to `peer` for calls, made if there is none.
    pub(crate) async fn connect(&self, peer: SiloAddress) -> Result<Arc<Connection>, DialError> {
        self.pool.connect(peer).await
    }

    /// Sends a message to another silo's runtime, in order, connecting if need be: now if there is
    /// a connection and nothing waits, otherwise behind waiting messages. Best effort.
    pub(crate) fn post<T: Serialize>(self: &Arc<Self>, to: SiloAddress, channel: u8, message: &T) {
        // Messages of the membership tell a silo that the view declares it dead. There is nothing
        // else to say to it.
        if self.stopped.is_cancelled() || (channel != MEMBERSHIP && self.pool.is_dead(to)) {
            return;
        }
        let mut waiting = self.waiting.lock();
        if let Some(queue) = waiting.get_mut(&to) {
            if queue.len() < OUTBOX_BYTES_MAX {
                let _ = encode_system(queue, channel, message);
            }
            return;
        }
        if let Some(connection) = self.pool.get_for_runtime(to) {
            if let Err(e) = connection.system(channel, message) {
                not_sent(to, &e);
            }
            return;
        }
        let mut queue = BytesMut::new();
        if encode_system(&mut queue, channel, message).is_ok() {
            waiting.insert(to, queue);
            drop(waiting);
            let peers = self.clone();
            emmer_net::world::spawn(async move { peers.connect_and_flush(to).await });
        }
    }

    /// The connection to `silo` is silent although its process answers dials. A new connection
    /// takes its place, on both sides.
    pub(crate) fn renew(self: &Arc<Self>, silo: SiloAddress) {
        let peers = self.clone();
        emmer_net::world::spawn(async move {
            if let Err(error) = peers.pool.renew(silo).await {
                tracing::debug!(%silo, %error, "the connection was not renewed");
            }
        });
    }

    /// A connection answers nothing. If its silo answers a dial, another connection takes its
    /// place, on both sides. A client cannot be dialled: its connection ends at once, and the
    /// client makes another.
    pub(crate) fn fell_silent(&self, connection: Arc<Connection>, greeting: Greeting) {
        let Some(silo) = connection.silo() else {
            if connection.is_silent() {
                tracing::debug!(peer = ?connection.peer, "a client is silent: its connection is \
                                                          closed");
                connection.reset(Lost::Silent);
            }
            return;
        };
        let pool = self.pool.clone();
        emmer_net::world::spawn(async move {
            let answers = if connection.is_retired() {
                dial_probe(silo, &greeting, SILENT_DIAL).await == DialOutcome::Answered
            } else {
                let renewed = tokio::time::timeout(SILENT_DIAL, pool.renew(silo)).await;
                renewed.is_ok_and(|renewed| renewed.is_ok())
            };
            if answers && connection.is_silent() {
                warn_seldom!(%silo, "a silo is silent on its connection and answers a new one: \
                                     calls that wait on the old one are given up");
                connection.reset(Lost::Silent);
            }
        });
    }

    async fn connect_and_flush(&self, to: SiloAddress) {
        let connected = self.pool.connect_for_runtime(to).await;
        // Under the lock: no message may be sent directly before those that wait.
        let mut waiting = self.waiting.lock();
        let Some(queue) = waiting.remove(&to) else { return };
        match connected {
            Ok(connection) => {
                if let Err(e) = connection.frames(&queue) {
                    not_sent(to, &e);
                }
            }
            Err(e) => tracing::debug!(%to, error = %e, "messages between runtimes were not sent"),
        }
    }
}

/// The protocols bear that a message is lost, but not that it never arrives.
fn not_sent(to: SiloAddress, error: &SendError) {
    match error {
        SendError::TooLarge(bytes) => warn_seldom!(
            %to, bytes, "a message between runtimes is larger than the largest frame of its \
                receiver: raise its limits.frame_bytes_max"
        ),
        error => tracing::debug!(%to, ?error, "a message between runtimes was not sent"),
    }
}
