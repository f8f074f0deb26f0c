//! One connection. Callers encode their frames, copy them into its outgoing buffer, and wait in its
//! slab of pending calls. No message is handed from task to task.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Waker};

use bytes::{Buf, BytesMut};
use emmer_core::SiloAddress;
use emmer_wire::{
    ConnectionLimits, PeerKind, channel, encode_credit, encode_system, extend_cancel, frame_fits,
};
use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::account::{FrameRoom, HeldBytes, Holds, REPLIES_BYTES_MAX};
use super::driving::is_driven_here;
use super::ending::CallsMessage;
use super::handshake::Greeting;
use super::lost::{Lost, SendError};
use super::pending::{Correlation, Pending};
use super::silence::{Look, Silence};
use super::ticking::Ticking;
use super::traffic::{Gone, Traffic};
use super::unread::Unread;
use crate::asker::Asker;
use crate::clock::CoarseInstant;
use crate::credentials::Admitted;
use crate::numbers::NumberMap;
use crate::world::{ReadHalf, TcpStream, WriteHalf};

/// Bytes that come within this many milliseconds are no news.
const HEARD_EVERY_MS: u64 = 50;

pub(super) struct Shared {
    /// Gone when the connection is lost, so that a holder of the connection holds no socket.
    pub(super) stream: Option<WriteHalf>,
    pub(super) pending: Pending,
    /// Frames waiting for the driver.
    pub(super) out: BytesMut,
    /// The last Cancel frame in the buffer: its length and its end. Both 0 when it may have been
    /// sent.
    pub(super) last_cancel: (usize, usize),
    /// The driver, when it waits for something to write.
    pub(super) driver: Option<Waker>,
    pub(super) driver_idle: bool,
    pub(super) lost: Option<Lost>,
    /// This side asked for an end: write the queue, then close.
    pub(super) closing: bool,
    /// The peer is dead in the view, or serves no longer. No call goes out or is awaited; messages
    /// of the runtimes still go out.
    pub(super) parting: Option<Lost>,
    /// Another connection has taken its place.
    pub(super) retired: bool,
    /// Notes when the peer last said something while calls wait.
    pub(super) silence: Silence,
    /// One-way calls that the peer has perhaps not read.
    pub(super) unread: Unread,
    /// True if it is in the list of connections that each tick checks.
    is_ticking: bool,
    /// Progress of this side towards serving no further calls of the peer.
    pub(super) draining: Draining,
    /// Bytes of calls sent, and how many of them the peer has processed.
    pub(super) sent: u64,
    /// Frames sent.
    pub(super) messages_sent: u64,
    /// `messages_sent` at the last moment at which nothing waited.
    pub(super) messages_gone: u64,
    pub(super) acknowledged: u64,
    /// Words that the peer was asked for, and those that it has said.
    asked: u64,
    pub(super) said: u64,
    /// `asked` when the peer heard that this side serves no further calls.
    pub(super) asked_when_drained: u64,
    /// Bytes of the peer's calls processed here, and how many the peer was told of.
    processed: u64,
    told: u64,
}

/// Progress of one side of a connection towards serving no further calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Draining {
    /// It serves.
    No,
    /// It shall stop when every call that it has begun is answered.
    Wanted,
    /// The peer was told.
    Told,
}

/// The result of a tick of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ticked {
    /// There is nothing more to look at.
    Over,
    /// There is.
    GoesOn,
    /// There is, and the peer is asked for a word: calls wait, and nothing comes.
    Asked,
    /// The peer exists, and is silent although it was asked.
    Silent,
}

impl Shared {
    const fn takes_calls(&self) -> bool {
        self.lost.is_none() && self.parting.is_none() && !self.closing && !self.retired
    }

    /// Tells the peer that a call was given up. Calls that are given up one after the other share a
    /// frame.
    pub(super) fn cancel(&mut self, call: Correlation) {
        if self.lost.is_none() && self.parting.is_none() && !self.closing {
            let (bytes, end) = self.last_cancel;
            let open = if end == self.out.len() { bytes } else { 0 };
            let bytes = extend_cancel(&mut self.out, open, call.as_u64());
            self.last_cancel = (bytes, self.out.len());
        }
    }

    /// Leaves the driver's waker.
    pub(super) fn leave_driver(&mut self, cx: &Context<'_>) {
        if !self.driver.as_ref().is_some_and(|driver| driver.will_wake(cx.waker())) {
            self.driver = Some(cx.waker().clone());
        }
    }

    /// Asks the peer for a word. It follows everything that was sent before.
    pub(super) fn ask(&mut self) {
        self.asked += 1;
        self.unread.asked(self.asked);
        // It always encodes.
        let _ = encode_system(&mut self.out, channel::CALLS, &CallsMessage::Ping);
    }

    /// Notes that this side serves no further calls, and tells the peer so.
    pub(super) fn tell_drained(&mut self) {
        self.draining = Draining::Told;
        // It always encodes.
        let _ = encode_system(&mut self.out, channel::CALLS, &CallsMessage::Drained);
        self.ask();
        self.asked_when_drained = self.asked;
    }

    pub(super) fn queue_request(&mut self, frame: &[u8]) {
        self.out.extend_from_slice(frame);
        self.sent += frame.len() as u64;
        self.messages_sent += 1;
    }
}

/// A connection to a silo or a client.
pub struct Connection {
    /// The other side.
    pub peer: PeerKind,
    /// The digest of the peer's options; 0 when it did not say.
    pub(super) peer_options: u64,
    /// The other half, until the driver takes it.
    pub(super) reading: Mutex<Option<ReadHalf>>,
    pub(super) shared: Mutex<Shared>,
    /// Set by the driver when bytes come, taken back at every tick of the clock.
    pub(super) active: AtomicBool,
    /// Set when an answer is sent, taken back when the peer is asked for a word for its sake.
    pub(super) has_answered: AtomicBool,
    /// `bytes_received` at the last look at answers.
    received_at_look: AtomicU64,
    /// Mirrors `parting`, for arriving frames.
    pub(super) is_parting: AtomicBool,
    /// Mirrors `retired`, for arriving frames.
    pub(super) is_retired: AtomicBool,
    /// The end of the handshake.
    pub(super) made: Instant,
    /// Time at which the peer first said something after it.
    pub(super) first_word: OnceLock<Instant>,
    /// One side has dialled it to replace another connection, and this side has said or heard so.
    pub(super) is_proposed: AtomicBool,
    /// Mirrors `draining`, for the driver.
    pub(super) is_draining: AtomicBool,
    /// The driver holds large buffers; set by the driver.
    pub(super) roomy: AtomicBool,
    /// The driver shall free them. Set at a tick without bytes since the one before.
    pub(super) rest: AtomicBool,
    /// Number of calls whose answer their caller has not taken yet; changed under the lock.
    pub(super) answered: AtomicU32,
    /// Limits of the peer.
    pub(super) peer_limits: ConnectionLimits,
    /// Limits of this side.
    pub(super) limits: ConnectionLimits,
    pub(super) outgoing_bytes_max: usize,
    /// After this many bytes of answers in one go of the driver, calls begin in tasks of their own.
    pub(super) replies_bytes_max: usize,
    /// True if as many bytes wait for the peer that answers have to wait; changed under the lock.
    pub(super) full: AtomicBool,
    /// They no longer need to.
    pub(super) room: Notify,
    /// The bytes that all clients hold together; none for the connection of a silo.
    pub(super) held: Option<Arc<HeldBytes>>,
    pub(super) holds: Holds,
    /// Bytes of the peer's calls that are not over.
    pub(super) unprocessed: AtomicU64,
    /// Room for frames of the peer that have begun and not ended.
    pub(super) frame_room: Arc<FrameRoom>,
    /// Itself, once it is driven.
    pub(super) me: OnceLock<Weak<Self>>,
    ticking: Arc<Ticking>,
    /// Calls of the peer that are not answered yet.
    pub(super) serving: AtomicU32,
    /// Callers that wait for them, by correlation.
    pub(super) askers: Mutex<NumberMap<u64, Arc<Asker>>>,
    /// Time at which the membership protocol was last told that the peer was heard, in coarse
    /// milliseconds.
    heard: AtomicU64,
    /// The identity of a client that has one.
    pub admitted: Option<Admitted>,
    /// The address of this end.
    pub local: Option<SocketAddr>,
    /// The address that the peer has connected from; none if this side has dialled.
    pub from: Option<SocketAddr>,
    pub(super) gone: Arc<Gone>,
    /// For metrics.
    pub messages_received: AtomicU64,
    /// Bytes that were sent.
    pub bytes_sent: AtomicU64,
    /// Bytes that were received.
    pub bytes_received: AtomicU64,
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
        let (limits, budget) = (greeting.connection_limits(), greeting.budget.clone());
        let calls = peer_limits.calls_in_flight_max.min(limits.calls_in_flight_max);
        let held = greeting.held.of(peer);
        let outgoing_bytes_max = greeting.limits.outgoing_bytes_max;
        let replies_bytes_max =
            held.as_ref().map_or(outgoing_bytes_max, |_| REPLIES_BYTES_MAX.min(outgoing_bytes_max));
        Self {
            peer,
            peer_options,
            reading: Mutex::new(Some(reading)),
            shared: Mutex::new(Shared {
                stream: Some(stream),
                pending: Pending::new(calls, budget),
                out: BytesMut::new(),
                last_cancel: (0, 0),
                driver: None,
                driver_idle: false,
                lost: None,
                closing: false,
                parting: None,
                retired: false,
                silence: Silence::default(),
                unread: Unread::default(),
                is_ticking: false,
                draining: Draining::No,
                sent: 0,
                messages_sent: 0,
                messages_gone: 0,
                acknowledged: 0,
                asked: 0,
                said: 0,
                asked_when_drained: 0,
                processed: 0,
                told: 0,
            }),
            active: AtomicBool::new(false),
            has_answered: AtomicBool::new(false),
            received_at_look: AtomicU64::new(0),
            is_parting: AtomicBool::new(false),
            is_retired: AtomicBool::new(false),
            made: Instant::now(),
            first_word: OnceLock::new(),
            is_proposed: AtomicBool::new(false),
            is_draining: AtomicBool::new(false),
            roomy: AtomicBool::new(false),
            rest: AtomicBool::new(false),
            answered: AtomicU32::new(0),
            peer_limits,
            limits,
            outgoing_bytes_max,
            replies_bytes_max,
            full: AtomicBool::new(false),
            room: Notify::new(),
            held,
            holds: Holds::default(),
            unprocessed: AtomicU64::new(0),
            frame_room: greeting.frame_rooms.of(peer),
            me: OnceLock::new(),
            ticking: greeting.ticking.clone(),
            serving: AtomicU32::new(0),
            askers: Mutex::default(),
            heard: AtomicU64::new(0),
            admitted: None,
            local,
            from: None,
            gone: greeting.gone.clone(),
            messages_received: AtomicU64::new(0),
            bytes_sent: AtomicU64::new(0),
            bytes_received: AtomicU64::new(0),
        }
    }

    /// The traffic over it, and the bytes that wait.
    /// The traffic so far, and what waits to be sent.
    pub fn traffic(&self) -> Traffic {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let shared = self.shared.lock();
        Traffic {
            messages_sent: shared.messages_sent,
            messages_received: get(&self.messages_received),
            bytes_sent: get(&self.bytes_sent),
            bytes_received: get(&self.bytes_received),
            messages_waiting: shared.messages_sent - shared.messages_gone,
            bytes_waiting: shared.out.len() as u64,
            one_ways_lost: shared.unread.lost(),
            silos: u64::from(matches!(self.peer, PeerKind::Silo(_))),
            clients: u64::from(matches!(self.peer, PeerKind::Client(_))),
        }
    }

    /// The silo at the other end; None for a client.
    pub const fn silo(&self) -> Option<SiloAddress> {
        match self.peer {
            PeerKind::Silo(silo) => Some(silo),
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
    pub fn frames(&self, mut frames: &[u8]) -> Result<(), SendError> {
        let mut shared = self.shared.lock();
        let mut left_out = None;
        while let Some(prefix) = frames.first_chunk::<4>() {
            let bytes = (prefix.len() + u32::from_le_bytes(*prefix) as usize).min(frames.len());
            let (frame, rest) = frames.split_at(bytes);
            if !frame_fits(bytes, self.peer_limits.frame_bytes_max) {
                left_out = Some(SendError::TooLarge(bytes));
            } else if shared.lost.is_none() {
                shared.out.extend_from_slice(frame);
                shared.messages_sent += 1;
            }
            frames = rest;
        }
        self.flush(shared, true);
        left_out.map_or(Ok(()), Err)
    }

    /// Queues bytes as they are.
    #[cfg(test)]
    pub(super) fn raw(&self, bytes: &[u8]) {
        let mut shared = self.shared.lock();
        shared.out.extend_from_slice(bytes);
        self.flush(shared, true);
    }

    /// Returns true if the connection has ended.
    pub fn is_lost(&self) -> bool {
        self.shared.lock().lost.is_some()
    }

    /// Returns true if calls can be sent.
    pub fn takes_calls(&self) -> bool {
        self.shared.lock().takes_calls()
    }

    /// Returns true if calls can be sent and the connection is not silent.
    pub fn speaks(&self) -> bool {
        let shared = self.shared.lock();
        shared.takes_calls() && !self.is_silent_now(&shared)
    }

    /// Returns true if the peer says nothing although it was asked for a word.
    pub fn is_silent(&self) -> bool {
        self.is_silent_now(&self.shared.lock())
    }

    fn is_silent_now(&self, shared: &Shared) -> bool {
        shared.silence.is_silent() && !self.active.load(Ordering::Relaxed)
    }

    /// Sends a message between runtimes. Dropped when the peer does not drain its connection.
    pub fn system<T: Serialize>(&self, channel: u8, message: &T) -> Result<(), SendError> {
        let mut shared = self.shared.lock();
        if let Some(lost) = &shared.lost {
            return Err(SendError::Lost(lost.clone()));
        }
        if shared.out.len() >= self.outgoing_bytes_max.saturating_mul(2) {
            return Err(SendError::Overloaded(
                "too many bytes wait to be sent to this peer (outgoing_bytes_max)",
            ));
        }
        let appended = encode_system(&mut shared.out, channel, message)
            .map_err(|e| SendError::Codec(e.to_string()))?;
        if !frame_fits(appended, self.peer_limits.frame_bytes_max) {
            let kept = shared.out.len() - appended;
            shared.out.truncate(kept);
            return Err(SendError::TooLarge(appended));
        }
        shared.messages_sent += 1;
        // The membership machine looks after its own messages.
        if channel == channel::DIRECTORY || channel == channel::STREAMS {
            shared.silence.expect();
            self.look_at_ticks(&mut shared);
        }
        if channel == channel::STREAMS && is_driven_here(self) {
            // The turn that sends the value runs in the driver, which writes it together with what
            // else the turn sends. What keeps a silo alive never waits for a turn.
            self.note_full(&shared);
        } else {
            self.flush(shared, true);
        }
        Ok(())
    }

    /// Gives the peer credit back, in steps of a quarter.
    pub(super) fn note_processed(&self, shared: &mut Shared, bytes: u64) {
        shared.processed += bytes;
        if shared.processed - shared.told > self.limits.credit_bytes / 4 {
            shared.told = shared.processed;
            let total = shared.processed;
            encode_credit(&mut shared.out, total);
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

    /// A tick of the clock: ends calls whose deadline has passed, asks a silent peer for a word
    /// while calls wait, and lets an idle connection give its memory back.
    pub(super) fn expire(&self, now: CoarseInstant) -> Ticked {
        let (mut wake, mut over) = (Vec::new(), Vec::new());
        let mut shared = self.shared.lock();
        shared.pending.expire(now, &mut wake, &mut over);
        over.iter().for_each(|call| shared.cancel(*call));
        let came = self.active.swap(false, Ordering::Relaxed);
        if !came && self.roomy.swap(false, Ordering::Relaxed) {
            self.rest.store(true, Ordering::Relaxed);
            wake.extend(shared.driver.clone());
        }
        let doubted = shared.silence.is_doubted();
        let calls = shared.pending.live() > 0;
        let look = shared.silence.look(now, came, calls);
        let waits = calls || shared.silence.waits() || shared.unread.waits();
        let asks = look == Look::Ask || shared.unread.is_due(now);
        if asks {
            shared.ask();
        }
        shared.is_ticking = (waits || self.roomy.load(Ordering::Relaxed)) && shared.lost.is_none();
        let ticked = match look {
            Look::Silent => Ticked::Silent,
            Look::Ask if !doubted => Ticked::Asked,
            _ if shared.is_ticking => Ticked::GoesOn,
            _ => Ticked::Over,
        };
        if over.is_empty() && !asks {
            drop(shared);
        } else {
            self.flush(shared, false);
        }
        wake.into_iter().for_each(Waker::wake);
        ticked
    }

    /// A check every half second: asks the peer for a word if an answer was sent to it and it has
    /// been silent since the last check. A connection that only answers has no calls whose silence
    /// would be noticed.
    pub fn look_at_answers(&self) {
        let received = self.bytes_received.load(Ordering::Relaxed);
        let before = self.received_at_look.swap(received, Ordering::Relaxed);
        if received == before && self.has_answered.swap(false, Ordering::Relaxed) {
            self.doubt();
        }
    }

    /// Asks the peer for a word: a connection that goes the same way says nothing.
    pub fn doubt(&self) {
        let mut shared = self.shared.lock();
        if shared.lost.is_none() {
            shared.silence.doubt();
            self.look_at_ticks(&mut shared);
        }
    }

    /// Sends what is queued: writes it here when `direct` and the driver is asleep, else wakes the
    /// driver.
    pub(super) fn flush(&self, mut shared: MutexGuard<'_, Shared>, direct: bool) {
        let direct = direct && shared.driver_idle && !shared.closing;
        let Shared { stream, out, last_cancel, messages_sent, messages_gone, .. } = &mut *shared;
        let mut is_unsent = false;
        if let Some(stream) = stream.as_ref().filter(|_| direct) {
            // An error shows up in the driver's next read; unwritten bytes stay queued.
            if let Ok(n) = stream.try_write(out) {
                out.advance(n);
                *last_cancel = (0, 0);
                if out.is_empty() {
                    *messages_gone = *messages_sent;
                }
                self.bytes_sent.fetch_add(n as u64, Ordering::Relaxed);
                is_unsent = stream.is_unsent();
            }
        }
        if !shared.out.is_empty() {
            // All that is queued is counted here, but the driver's own answers, which it counts.
            self.note_full(&shared);
        }
        if (is_unsent || !shared.out.is_empty()) && shared.driver_idle {
            shared.driver_idle = false;
            let driver = shared.driver.take();
            drop(shared);
            if let Some(driver) = driver {
                driver.wake();
            }
        }
    }
}
