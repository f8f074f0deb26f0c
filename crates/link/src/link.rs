//! The state of a connection that all its users share, and what they send.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use bytes::BytesMut;
use emmer_wire::{
    ConnectionLimits, GoodbyeCode, PeerKind, channel, encode_credit, encode_goodbye, encode_system,
    frame_fits,
};
use serde::Serialize;

use crate::account::{Account, FrameRoom, FrameRooms};
use crate::intake::{Event, Frames};
use crate::life::{Life, Phase};
use crate::lost::{Lost, SendError};
use crate::outbox::{Outbox, frame_bytes};
use crate::pending::{Budget, Correlation, Pending};
use crate::renewal::Renewal;
use crate::serving::Served;
use crate::silence::Silence;
use crate::timeouts::Waits;
use crate::unread::Unread;
use crate::words::{CallsMessage, Words};

/// Limits and accounts of a connection, as its handshake has settled them.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The other side.
    pub peer: PeerKind,
    /// Limits of this side.
    pub limits: ConnectionLimits,
    /// Limits of the peer.
    pub peer_limits: ConnectionLimits,
    /// Number of bytes that may wait to be sent: more refuse calls.
    pub outgoing_bytes_max: usize,
    /// Room for calls in flight, shared by all connections of this process.
    pub budget: Arc<Budget>,
    /// The connection's account.
    pub account: Arc<Account>,
    /// Room for large frames that have begun and not ended.
    pub frame_rooms: Arc<FrameRooms>,
}

/// The traffic of a connection since its handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames that were queued.
    pub messages_sent: u64,
    /// Frames that were handled.
    pub messages_received: u64,
    /// Bytes that the socket took.
    pub bytes_sent: u64,
    /// Bytes that the socket gave.
    pub bytes_received: u64,
    /// Frames that wait to be written.
    pub messages_waiting: u64,
    /// Bytes that wait to be written.
    pub bytes_waiting: u64,
    /// One-way calls that the peer had perhaps not read when the connection broke.
    pub one_ways_lost: u64,
}

/// One end of a connection. See [the crate's page](crate).
pub struct Link {
    pub(crate) peer: PeerKind,
    pub(crate) limits: ConnectionLimits,
    pub(crate) peer_limits: ConnectionLimits,
    pub(crate) outgoing_bytes_max: usize,
    pub(crate) account: Arc<Account>,
    pub(crate) life: Life,
    pub(crate) pending: Pending,
    pub(crate) out: Outbox,
    /// Bytes of calls sent.
    pub(crate) sent: u64,
    /// Bytes of them that the peer has processed.
    pub(crate) acknowledged: u64,
    pub(crate) served: Served,
    pub(crate) words: Words,
    pub(crate) silence: Silence,
    pub(crate) unread: Unread,
    pub(crate) waits: Waits,
    pub(crate) renewal: Renewal,
    pub(crate) counts: Counts,
    /// `messages_sent` at the last moment at which nothing waited.
    messages_gone: u64,
    pub(crate) frames: Frames,
    pub(crate) frame_room: Arc<FrameRoom>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) wakers: Vec<Waker>,
}

impl Link {
    /// One end after its handshake.
    pub fn new(setup: Setup) -> Self {
        let Setup { peer, limits, peer_limits, outgoing_bytes_max, .. } = setup;
        let calls = peer_limits.calls_in_flight_max.min(limits.calls_in_flight_max);
        Self {
            peer,
            limits,
            peer_limits,
            outgoing_bytes_max,
            account: setup.account,
            life: Life::new(),
            pending: Pending::new(calls, setup.budget),
            out: Outbox::default(),
            sent: 0,
            acknowledged: 0,
            served: Served::default(),
            words: Words::default(),
            silence: Silence::default(),
            unread: Unread::default(),
            waits: Waits::default(),
            renewal: Renewal::default(),
            counts: Counts::default(),
            messages_gone: 0,
            frames: Frames::default(),
            frame_room: setup.frame_rooms.of(peer),
            events: VecDeque::new(),
            wakers: Vec::new(),
        }
    }

    /// The phase that the connection is in.
    pub fn phase(&self) -> Phase {
        self.life.phase()
    }

    /// The reason of the connection's end, once it has ended.
    pub const fn lost(&self) -> Option<&Lost> {
        self.life.lost()
    }

    /// Returns true if calls can be sent.
    pub fn takes_calls(&self) -> bool {
        self.life.admit().is_ok()
    }

    /// Returns true if the peer says nothing although it was asked for a word.
    pub const fn is_silent(&self) -> bool {
        self.silence.is_silent() && !self.frames.came
    }

    /// Returns true if the peer is dead in the view.
    pub const fn is_parting(&self) -> bool {
        self.life.is_dead()
    }

    /// Returns true if another connection has taken its place.
    pub const fn is_retired(&self) -> bool {
        self.life.is_replaced()
    }

    /// The connection's account.
    pub const fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// The traffic so far, and what waits to be sent.
    pub fn counts(&self) -> Counts {
        Counts {
            messages_waiting: self.counts.messages_sent - self.messages_gone,
            bytes_waiting: self.out.len() as u64,
            one_ways_lost: self.unread.lost(),
            ..self.counts
        }
    }

    /// Queues a message between runtimes.
    ///
    /// # Errors
    /// The connection has ended, the peer does not drain it, or the message does not encode or is
    /// larger than the peer takes. Nothing is queued then.
    pub fn system<T: Serialize>(&mut self, channel: u8, message: &T) -> Result<(), SendError> {
        if let Some(lost) = self.lost() {
            return Err(SendError::Lost(lost.clone()));
        }
        if self.out.len() >= self.outgoing_bytes_max.saturating_mul(2) {
            return Err(SendError::Overloaded(
                "too many bytes wait to be sent to this peer (outgoing_bytes_max)",
            ));
        }
        // It keeps silos alive, and never waits behind calls.
        let is_urgent = channel == channel::MEMBERSHIP;
        let out = if is_urgent { self.out.urgent() } else { self.out.end() };
        let appended =
            encode_system(out, channel, message).map_err(|e| SendError::Codec(e.to_string()))?;
        if !frame_fits(appended, self.peer_limits.frame_bytes_max) {
            out.truncate(out.len() - appended);
            return Err(SendError::TooLarge(appended));
        }
        self.counts.messages_sent += 1;
        // The membership machine looks after its own messages.
        if channel == channel::DIRECTORY || channel == channel::STREAMS {
            self.silence.expect();
        }
        Ok(())
    }

    /// Queues whole frames, but those that are larger than the peer takes: they would end the
    /// connection.
    ///
    /// # Errors
    /// [`SendError::TooLarge`] when there is such a one. The others are queued.
    pub fn put_frames(&mut self, mut frames: &[u8]) -> Result<(), SendError> {
        let mut left_out = None;
        while !frames.is_empty() {
            let bytes = frame_bytes(frames);
            let (frame, rest) = frames.split_at(bytes);
            if !frame_fits(bytes, self.peer_limits.frame_bytes_max) {
                left_out = Some(SendError::TooLarge(bytes));
            } else if self.lost().is_none() {
                self.out.end().extend_from_slice(frame);
                self.counts.messages_sent += 1;
            }
            frames = rest;
        }
        left_out.map_or(Ok(()), Err)
    }

    /// Queues bytes as they are: for tests of peers that break the protocol.
    pub fn put_raw(&mut self, bytes: &[u8]) {
        self.out.end().extend_from_slice(bytes);
    }

    /// Counts the queued bytes, which the socket does not take now. If they are many, further
    /// answers wait.
    pub fn note_waiting(&self) {
        if !self.out.is_empty() {
            self.account.note_queued(self.out.len());
        }
    }

    /// The bytes to be sent next. [`transmitted`](Self::transmitted) takes them off.
    pub fn poll_transmit(&mut self) -> Option<&[u8]> {
        self.out.poll()
    }

    /// Returns true if bytes wait to be sent.
    pub fn has_transmit(&self) -> bool {
        !self.out.is_empty()
    }

    /// The socket has taken `bytes` of them.
    pub fn transmitted(&mut self, bytes: usize) {
        self.out.transmitted(bytes);
        if self.out.is_empty() {
            self.messages_gone = self.counts.messages_sent;
        }
        self.counts.bytes_sent += bytes as u64;
    }

    /// Swaps the bytes to be sent next for the empty buffer `into`; false if there are none. Their
    /// owner [says](Self::note_written) when the socket has taken them.
    pub fn take_transmit(&mut self, into: &mut BytesMut) -> bool {
        // The bytes that a client has to read are counted together.
        let whole = !matches!(self.peer, PeerKind::Silo(_));
        if !self.out.take(into, whole) {
            return false;
        }
        if self.out.is_empty() {
            self.messages_gone = self.counts.messages_sent;
        }
        self.account.count_queued(self.out.len());
        true
    }

    /// Returns true if answers need not wait for what is queued.
    pub fn has_queue_room(&self) -> bool {
        self.out.len() < self.account.queue_max()
    }

    /// The socket has taken `bytes` that were [taken](Self::take_transmit) before.
    pub const fn note_written(&mut self, bytes: u64) {
        self.counts.bytes_sent += bytes;
    }

    /// The oldest news for the rest of the process.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Appends the callers that have something to look at to `into`.
    pub fn take_wakers(&mut self, into: &mut Vec<Waker>) {
        into.append(&mut self.wakers);
    }

    /// Tells the peer that a call was given up.
    pub(crate) fn cancel(&mut self, call: Correlation) {
        if self.lost().is_none() && !self.life.has_said_goodbye() && self.life.refusal().is_none() {
            self.out.cancel(call);
        }
    }

    /// Asks the peer for a word. It follows everything that was sent before.
    pub(crate) fn ask(&mut self) {
        self.words.asked += 1;
        self.unread.asked(self.words.asked);
        self.say(CallsMessage::Ping);
    }

    /// Queues a word to the other end.
    pub(crate) fn say(&mut self, word: CallsMessage) {
        // It always encodes.
        let _ = encode_system(self.out.end(), channel::CALLS, &word);
    }

    /// Gives the peer credit back, in steps of a quarter.
    pub(crate) fn note_processed(&mut self, bytes: u64) {
        if let Some(total) = self.served.processed(bytes, self.limits.credit_bytes / 4) {
            encode_credit(self.out.urgent(), total);
        }
    }

    /// Ends the connection after the queue is written, with a reason. Nothing happens if this side
    /// has said goodbye before.
    pub fn goodbye(&mut self, code: GoodbyeCode, text: &str) {
        if self.phase() != Phase::Closed {
            self.life.say_goodbye();
            encode_goodbye(self.out.end(), code, text);
        }
    }

    /// Returns true if the connection ends as soon as nothing waits to be sent.
    pub fn is_closing(&self) -> bool {
        self.life.has_said_goodbye()
    }

    /// Returns true if the reader writes what is sent, and no other thread: it has to see when all
    /// is written.
    pub fn is_ending(&self) -> bool {
        self.is_closing() || self.waits.is_half_closed()
    }

    /// The peer is dead in the view. Every call that waits for it fails now, and new ones are
    /// refused. Messages of the runtimes still go out, and its last words come in, until the
    /// connection is ended.
    pub fn part(&mut self) {
        self.life.part();
        self.pending.drain_wakers(&mut self.wakers);
    }

    /// Another connection takes the place of this one: no new call goes out here, and messages of
    /// the peer's runtime are no longer read here. Calls that wait may still be answered.
    pub const fn retire(&mut self) {
        self.life.replace();
    }

    /// The connection has ended. All callers that wait learn the reason; the first one stays.
    pub fn lose(&mut self, why: Lost) {
        // A peer that stopped serving has read all calls. So has a peer of which this side takes
        // leave.
        let is_over = matches!(why, Lost::Closed | Lost::Replaced);
        if !self.life.end(why) {
            return;
        }
        if !is_over && self.life.refusal() != Some(Lost::Drained) {
            self.unread.end();
        }
        self.out.clear();
        self.account.count_queued(0);
        self.frames.room = None;
        self.pending.drain_wakers(&mut self.wakers);
    }
}
