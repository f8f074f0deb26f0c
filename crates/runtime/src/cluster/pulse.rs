//! The membership's own way: a thread, and connections to the silos that this silo probes. Probes
//! and their answers do not wait for calls, turns or a busy runtime.
//!
//! The silo that probes another one dials it. The other one answers over the same connection, from
//! a thread of its own. To silos without such a connection messages go as all others do.

use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use emmer_core::SiloAddress;
use emmer_membership::Message;
use emmer_net::clock::{COARSE_TICK, Clock};
use emmer_net::transport::{Connection, Greeting, Handler, Lost, Pool, Quiet};
use emmer_net::world::{OwnThread, Spawner};
use emmer_wire::{GoodbyeCode, PeerKind, RequestHeader, channel};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The pause before a connection that ended, or was not made, is made again; doubles each time.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// The longest of them.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Receiver of the peers' messages.
pub(crate) trait Hears: Send + Sync {
    /// A message of the membership came from `silo`.
    fn message(&self, silo: SiloAddress, payload: &Bytes);

    /// Bytes came from `silo`.
    fn heard(&self, connection: &Connection, silo: SiloAddress);
}

/// The way of its own.
pub(crate) struct Pulse {
    thread: OwnThread,
    pool: Arc<Pool>,
    clock: Clock,
    stopped: CancellationToken,
    ear: Mutex<Option<Arc<Ear>>>,
    /// A connection has ended.
    lost: Arc<Notify>,
}

impl Pulse {
    /// `greeting` is that of the silo's other connections.
    pub(crate) fn new(
        me: SiloAddress,
        thread: OwnThread,
        greeting: &Greeting,
        clock: Clock,
        stopped: CancellationToken,
    ) -> Self {
        let greeting = Greeting {
            me: PeerKind::Pulse(me),
            // Their clock is looked at on their thread.
            ticking: Arc::default(),
            options: 0,
            ..greeting.clone()
        };
        let (pool, lost) = (Arc::new(Pool::new(greeting)), Arc::default());
        Self { thread, pool, clock, stopped, ear: Mutex::default(), lost }
    }

    /// The way to start tasks on the thread.
    pub(crate) const fn spawner(&self) -> &Spawner {
        self.thread.spawner()
    }

    /// Its connections.
    pub(crate) const fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Sets the receiver of messages, once. The pool dials and accepts nothing before.
    pub(crate) fn heard_by(&self, hears: Arc<dyn Hears>) {
        let ear = Arc::new(Ear { hears, pool: self.pool.clone(), lost: self.lost.clone() });
        self.pool.handled_by(&ear);
        *self.ear.lock() = Some(ear);
        let (pool, clock, stopped) = (self.pool.clone(), self.clock.clone(), self.stopped.clone());
        self.spawner().spawn(async move {
            tokio::select! {
                biased;
                () = stopped.cancelled() => {}
                () = look_at_the_clock(&pool, &clock) => {}
            }
        });
    }

    /// Sends a message to `silo`; false if there is no connection to it.
    pub(crate) fn say(&self, silo: SiloAddress, message: &Message) -> bool {
        let connection = self.pool.get(silo).filter(|connection| connection.speaks());
        connection.is_some_and(|to| to.system(channel::MEMBERSHIP, message).is_ok())
    }

    /// Keeps a connection to `silo` until this is dropped.
    pub(crate) async fn keep(&self, silo: SiloAddress) {
        let mut pause = PAUSE_MIN;
        loop {
            let lost = self.lost.notified();
            if self.pool.get(silo).is_some() || self.pool.connect(silo).await.is_ok() {
                pause = PAUSE_MIN;
                lost.await;
            }
            // A silo that ends, or knows no such connections, is not dialled again and again.
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// The connection to `silo` may be silent: another one is made.
    pub(crate) fn renew(&self, silo: SiloAddress) {
        if let Some(connection) = self.pool.get(silo) {
            connection.reset(Lost::Silent);
        }
    }

    /// Ends the connections with a word.
    pub(crate) fn goodbye(&self, text: &str) {
        self.pool.goodbye(GoodbyeCode::Stopping, text);
    }

    /// Ends the connections as a dying process does.
    pub(crate) fn crash(&self) {
        self.pool.open().iter().for_each(|connection| connection.lose(Lost::Closed));
    }
}

/// Looks for connections on which nothing comes; never ends.
async fn look_at_the_clock(pool: &Pool, clock: &Clock) {
    let ticking = &pool.greeting().ticking;
    loop {
        if ticking.is_calm() {
            ticking.begun().await;
        }
        tokio::time::sleep(COARSE_TICK).await;
        for quiet in ticking.tick(clock.now()) {
            if let Quiet::Silent(connection) = quiet {
                connection.reset(Lost::Silent);
            }
        }
    }
}

/// Handler of the connections.
struct Ear {
    hears: Arc<dyn Hears>,
    pool: Arc<Pool>,
    lost: Arc<Notify>,
}

impl Handler for Ear {
    /// No calls travel here.
    fn request(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        _: RequestHeader,
        _: &[u8],
        cost: u64,
        _: &mut BytesMut,
        _: &mut Context<'_>,
    ) -> u64 {
        connection.reset(Lost::Protocol("a call on a connection of the membership".to_owned()));
        cost
    }

    fn system(self: &Arc<Self>, connection: &Arc<Connection>, channel: u8, payload: Bytes) {
        if let Some(silo) = connection.silo().filter(|_| channel == channel::MEMBERSHIP) {
            self.hears.message(silo, &payload);
        }
    }

    fn heard(self: &Arc<Self>, connection: &Arc<Connection>) {
        if let Some(silo) = connection.silo() {
            self.hears.heard(connection, silo);
        }
    }

    fn lost(self: &Arc<Self>, connection: &Arc<Connection>, why: &Lost) {
        tracing::debug!(peer = ?connection.peer, %why, "a connection of the membership ended");
        self.pool.forget(connection);
        self.lost.notify_waiters();
    }
}
