//! One connection: its [`Link`] behind a lock, and the socket under it.
//!
//! Callers encode their frames, copy them into its outgoing buffer, and wait in its slab of pending
//! calls. No message is handed from task to task.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Waker};

use emmer_core::{CoarseInstant, SiloAddress};
use emmer_link::account::{Account, Cut};
use emmer_link::{Link, Lost, Place, Rank, SendError, Setup};
use emmer_wire::{ConnectionLimits, GoodbyeCode, PeerKind, channel};
use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use tokio::sync::Notify;

use super::driving::is_driven_here;
use super::handshake::Greeting;
use super::ticking::{Tick, Ticking};
use super::traffic::{Gone, Traffic};
use crate::asker::Asker;
use crate::credentials::Admitted;
use crate::numbers::NumberMap;
use crate::world::{ReadHalf, TcpStream, WriteHalf};

/// Bytes that come within this many milliseconds are no news.
const HEARD_EVERY_MS: u64 = 50;

pub(super) struct Shared {
    pub(super) link: Link,
    /// Gone when the connection is lost, so that a holder of the connection holds no socket.
    stream: Option<WriteHalf>,
    /// The driver, when it waits for something to write.
    driver: Option<Waker>,
    pub(super) driver_idle: bool,
    /// True if it is in the list of connections that each tick checks.
    is_ticking: bool,
}

impl Shared {
    /// Leaves the driver's waker.
    pub(super) fn leave_driver(&mut self, cx: &Context<'_>) {
        if !self.driver.as_ref().is_some_and(|driver| driver.will_wake(cx.waker())) {
            self.driver = Some(cx.waker().clone());
        }
    }
}

/// A connection to a silo or a client.
pub struct Connection {
    /// The other side.
    pub peer: PeerKind,
    /// The digest of the peer's options; 0 when it did not say.
    pub(super) peer_options: u64,
    /// Limits of the peer.
    pub(super) peer_limits: ConnectionLimits,
    /// The other half, until the driver takes it.
    pub(super) reading: Mutex<Option<ReadHalf>>,
    pub(super) shared: Mutex<Shared>,
    pub(super) account: Arc<Account>,
    /// Answers no longer need to wait.
    pub(super) room: Notify,
    /// Itself, once it is driven.
    pub(super) me: OnceLock<Weak<Self>>,
    pub(super) ticking: Arc<Ticking>,
    /// Callers that wait for the peer's calls, by correlation.
    pub(super) askers: Mutex<NumberMap<u64, Arc<Asker>>>,
    /// Time at which the membership protocol last heard of the peer, in coarse milliseconds.
    heard: AtomicU64,
    /// The identity of a client that has one.
    pub admitted: Option<Admitted>,
    /// The address of this end.
    pub local: Option<SocketAddr>,
    /// The address that the peer has connected from; none if this side has dialled.
    pub from: Option<SocketAddr>,
    gone: Arc<Gone>,
}

impl Connection {
    pub(super) fn new(
        peer: PeerKind,
        peer_options: u64,
        stream: TcpStream,
        peer_limits: ConnectionLimits,
        greeting: &Greeting,
    ) -> Self {
        let local = stream.local_addr();
        let (reading, stream) = stream.into_split();
        let outgoing_bytes_max = greeting.limits.outgoing_bytes_max;
        let account = Account::new(peer, &greeting.held, outgoing_bytes_max);
        let link = Link::new(Setup {
            peer,
            limits: greeting.connection_limits(),
            peer_limits,
            outgoing_bytes_max,
            budget: greeting.budget.clone(),
            account: account.clone(),
            frame_rooms: greeting.frame_rooms.clone(),
        });
        Self {
            peer,
            peer_options,
            peer_limits,
            reading: Mutex::new(Some(reading)),
            shared: Mutex::new(Shared {
                link,
                stream: Some(stream),
                driver: None,
                driver_idle: false,
                is_ticking: false,
            }),
            account,
            room: Notify::new(),
            me: OnceLock::new(),
            ticking: greeting.ticking.clone(),
            askers: Mutex::default(),
            heard: AtomicU64::new(0),
            admitted: None,
            local,
            from: None,
            gone: greeting.gone.clone(),
        }
    }

    /// The traffic so far, and what waits to be sent.
    pub fn traffic(&self) -> Traffic {
        let counts = self.shared.lock().link.counts();
        Traffic {
            messages_sent: counts.messages_sent,
            messages_received: counts.messages_received,
            bytes_sent: counts.bytes_sent,
            bytes_received: counts.bytes_received,
            messages_waiting: counts.messages_waiting,
            bytes_waiting: counts.bytes_waiting,
            one_ways_lost: counts.one_ways_lost,
            silos: u64::from(matches!(self.peer, PeerKind::Silo(_))),
            clients: u64::from(matches!(self.peer, PeerKind::Client(_))),
        }
    }

    /// The silo at the other end; None for a client.
    pub const fn silo(&self) -> Option<SiloAddress> {
        match self.peer {
            PeerKind::Silo(silo) | PeerKind::Pulse(silo) => Some(silo),
            _ => None,
        }
    }

    /// Notes that bytes came; true when that is news again.
    pub fn note_heard(&self, now: CoarseInstant) -> bool {
        let news =
            now.as_millis().saturating_sub(self.heard.load(Ordering::Relaxed)) >= HEARD_EVERY_MS;
        if news {
            self.heard.store(now.as_millis(), Ordering::Relaxed);
        }
        news
    }

    /// Queues whole frames, but those that are larger than the peer takes: they would end the
    /// connection.
    ///
    /// # Errors
    /// [`SendError::TooLarge`] when there is such a one. The others are on their way.
    pub fn frames(&self, frames: &[u8]) -> Result<(), SendError> {
        let mut shared = self.shared.lock();
        let queued = shared.link.put_frames(frames);
        self.flush(shared, true);
        queued
    }

    /// Takes the socket and what is queued away.
    #[cfg(test)]
    pub(super) fn take_stream(&self) -> (WriteHalf, Vec<u8>) {
        let mut shared = self.shared.lock();
        let queued = shared.link.poll_transmit().unwrap_or_default().to_vec();
        (shared.stream.take().unwrap(), queued)
    }

    /// Queues bytes as they are.
    #[cfg(test)]
    pub(super) fn raw(&self, bytes: &[u8]) {
        let mut shared = self.shared.lock();
        shared.link.put_raw(bytes);
        self.flush(shared, true);
    }

    /// Returns true if the connection has ended.
    pub fn is_lost(&self) -> bool {
        self.shared.lock().link.lost().is_some()
    }

    /// Returns true if calls can be sent.
    pub fn takes_calls(&self) -> bool {
        self.shared.lock().link.takes_calls()
    }

    /// Returns true if calls can be sent and the connection is not silent.
    pub fn speaks(&self) -> bool {
        let shared = self.shared.lock();
        shared.link.takes_calls() && !shared.link.is_silent()
    }

    /// Returns true if the peer says nothing although it was asked for a word.
    pub fn is_silent(&self) -> bool {
        self.shared.lock().link.is_silent()
    }

    /// Returns true if the peer is dead in the view.
    pub fn is_parting(&self) -> bool {
        self.shared.lock().link.is_parting()
    }

    /// Returns true if another connection has taken its place.
    pub fn is_retired(&self) -> bool {
        self.shared.lock().link.is_retired()
    }

    /// Sends a message between runtimes. Dropped when the peer does not drain its connection.
    ///
    /// # Errors
    /// As [`Link::system`].
    pub fn system<T: Serialize>(&self, channel: u8, message: &T) -> Result<(), SendError> {
        let mut shared = self.shared.lock();
        shared.link.system(channel, message)?;
        if channel == channel::DIRECTORY || channel == channel::STREAMS {
            self.look_at_ticks(&mut shared);
        }
        // The turn that sends a stream's value runs in the driver, which writes it together with
        // what else the turn sends. What keeps a silo alive never waits for a turn.
        if channel == channel::STREAMS && is_driven_here(self) {
            shared.link.note_waiting();
        } else {
            self.flush(shared, true);
        }
        Ok(())
    }

    /// A check every half second: [`Link::look_at_answers`].
    pub fn look_at_answers(&self) {
        let mut shared = self.shared.lock();
        shared.link.look_at_answers();
        self.look_if_it_waits(shared);
    }

    /// Asks the peer for a word: a connection that goes the same way says nothing.
    pub fn doubt(&self) {
        let mut shared = self.shared.lock();
        shared.link.doubt();
        self.look_if_it_waits(shared);
    }

    fn look_if_it_waits(&self, mut shared: MutexGuard<'_, Shared>) {
        if shared.link.poll_timeout().is_some() {
            self.look_at_ticks(&mut shared);
        }
    }

    /// Asks for a look at every tick of the clock, until there is nothing to look at.
    #[inline]
    pub(super) fn look_at_ticks(&self, shared: &mut Shared) {
        if !shared.is_ticking
            && let Some(me) = self.me.get().and_then(Weak::upgrade)
        {
            shared.is_ticking = true;
            self.ticking.add(me);
        }
    }

    /// A tick of the clock: [`Link::handle_timeout`].
    pub(super) fn tick(&self, now: CoarseInstant) -> Tick {
        let mut shared = self.shared.lock();
        let ticked = shared.link.handle_timeout(now);
        shared.is_ticking = shared.link.poll_timeout().is_some();
        let tick = if ticked.silent {
            Tick::Silent
        } else if ticked.asked {
            Tick::Asked
        } else if shared.is_ticking {
            Tick::Waits
        } else {
            Tick::Over
        };
        let mut wake = Vec::new();
        shared.link.take_wakers(&mut wake);
        if ticked.wake {
            wake.extend(shared.driver.clone());
        }
        if ticked.queued {
            self.flush(shared, false);
        } else {
            drop(shared);
        }
        wake.into_iter().for_each(Waker::wake);
        tick
    }

    /// Ends the connection after the queue is written, with a reason.
    pub fn goodbye(&self, code: GoodbyeCode, text: &str) {
        let mut shared = self.shared.lock();
        shared.link.goodbye(code, text);
        self.flush(shared, true);
    }

    /// As [`goodbye`](Self::goodbye), unless calls of this side wait for their answer; then false.
    pub fn goodbye_if_idle(&self, code: GoodbyeCode, text: &str) -> bool {
        let mut shared = self.shared.lock();
        let idle = shared.link.waiting() == 0;
        if idle {
            shared.link.goodbye(code, text);
            self.flush(shared, true);
        }
        idle
    }

    /// The peer is dead in the view: [`Link::part`].
    pub fn part(&self) {
        let mut shared = self.shared.lock();
        shared.link.part();
        let mut wake = Vec::new();
        shared.link.take_wakers(&mut wake);
        drop(shared);
        wake.into_iter().for_each(Waker::wake);
    }

    /// Another connection takes the place of this one: [`Link::retire`].
    pub(super) fn retire(&self) {
        self.shared.lock().link.retire();
    }

    /// The connection's rank among those to its silo.
    pub(super) fn rank(&self) -> Rank {
        self.shared.lock().link.rank()
    }

    /// This side has dialled the connection to take the place of another one: [`Link::propose`].
    pub(super) fn propose(&self, before: Rank, is_lower: bool) {
        let mut shared = self.shared.lock();
        shared.link.propose(before, is_lower);
        self.flush(shared, true);
    }

    /// The peer has dialled it for that: [`Link::hear_proposal`].
    pub(super) fn hear_proposal(&self, current: Option<Rank>, is_lower: bool) -> Option<Place> {
        let mut shared = self.shared.lock();
        let place = shared.link.hear_proposal(current, is_lower);
        self.flush(shared, false);
        place
    }

    /// This side stops serving calls of the peer: [`Link::stop_serving`].
    pub fn stop_serving(&self) {
        let mut shared = self.shared.lock();
        shared.link.stop_serving();
        self.flush(shared, false);
    }

    /// Returns true if the peer heard that this side serves no further calls, or if the peer is
    /// gone.
    pub fn has_stopped_serving(&self) -> bool {
        self.shared.lock().link.has_stopped_serving()
    }

    /// Returns true if the peer has read that, or is gone: [`Link::knows_of_the_end`].
    pub(super) fn knows_of_the_end(&self) -> bool {
        self.shared.lock().link.knows_of_the_end()
    }

    /// Ends the connection now, like a dying process. All waiting callers learn the reason.
    pub fn lose(&self, why: Lost) {
        self.end(why, false);
    }

    /// As [`lose`](Self::lose), when the peer could not be told why. Its host gets a reset, not the
    /// orderly end which only a process that has said goodbye or is gone may leave behind.
    pub fn reset(&self, why: Lost) {
        self.end(why, true);
    }

    fn end(&self, why: Lost, reset: bool) {
        let mut wake = Vec::new();
        let mut shared = self.shared.lock();
        if shared.link.lost().is_none() {
            shared.link.lose(why);
            if let Some(stream) = shared.stream.take()
                && reset
            {
                stream.reset();
            }
            shared.link.take_wakers(&mut wake);
            wake.extend(shared.driver.take());
        }
        drop(shared);
        self.note_room();
        wake.into_iter().for_each(Waker::wake);
        // No caller reads the answers.
        let askers = std::mem::take(&mut *self.askers.lock());
        askers.into_values().for_each(|asker| asker.give_up());
    }

    /// Sends what is queued: writes it here when `direct` and the driver is asleep, else wakes the
    /// driver.
    pub(super) fn flush(&self, mut shared: MutexGuard<'_, Shared>, direct: bool) {
        if !shared.driver_idle {
            shared.link.note_waiting();
            return;
        }
        let Shared { link, stream, .. } = &mut *shared;
        let mut is_unsent = false;
        if let Some(stream) = stream.as_ref().filter(|_| direct && !link.is_ending())
            && let Some(bytes) = link.poll_transmit()
            // An error shows up in the driver's next read; unwritten bytes stay queued.
            && let Ok(n) = stream.try_write(bytes)
        {
            link.transmitted(n);
            is_unsent = stream.is_unsent();
        }
        shared.link.note_waiting();
        if is_unsent || shared.link.has_transmit() {
            shared.driver_idle = false;
            let driver = shared.driver.take();
            drop(shared);
            if let Some(driver) = driver {
                driver.wake();
            }
        }
    }
}

impl Cut for Connection {
    fn cut(&self, why: Lost) {
        self.reset(why);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.gone.add(&self.traffic());
    }
}
