//! The end of a connection: with a word, without one, or bit by bit.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

use bytes::BytesMut;
use emmer_wire::{GoodbyeCode, PeerKind, channel, encode_goodbye};
use parking_lot::MutexGuard;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::connection::{Connection, Draining, Shared};
use super::driver::Handler;
use super::lost::Lost;

/// Message between the two ends of a connection about calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum CallsMessage {
    /// The sender has answered every call that it has begun, and begins no other.
    #[serde(rename = "d")]
    Drained,
    /// "Say something": nothing has come from the receiver while calls wait for it.
    #[serde(rename = "p")]
    Ping,
    /// The answer to it.
    #[serde(rename = "a")]
    Pong,
    /// "Use this connection for what you have to say to me, and none from before": those have
    /// fallen silent.
    #[serde(rename = "i")]
    Instead,
}

/// Wakes the driver, if it sleeps.
pub(super) fn wake_driver(mut shared: MutexGuard<'_, Shared>) {
    shared.driver_idle = false;
    let driver = shared.driver.take();
    drop(shared);
    if let Some(driver) = driver {
        driver.wake();
    }
}

impl Connection {
    /// Ends the connection after the queue is written, with a reason.
    pub fn goodbye(&self, code: GoodbyeCode, text: &str) {
        self.say_goodbye(self.shared.lock(), code, text);
    }

    /// As [`goodbye`](Self::goodbye), unless calls of this side wait for their answer; then false.
    pub fn goodbye_if_idle(&self, code: GoodbyeCode, text: &str) -> bool {
        let shared = self.shared.lock();
        let idle = shared.pending.live() == 0;
        if idle {
            self.say_goodbye(shared, code, text);
        }
        idle
    }

    fn say_goodbye(&self, mut shared: MutexGuard<'_, Shared>, code: GoodbyeCode, text: &str) {
        if shared.lost.is_none() && !shared.closing {
            shared.closing = true;
            encode_goodbye(&mut shared.out, code, text);
            self.flush(shared, true);
        }
    }

    /// The peer is dead in the view. Every call that waits for it fails now, and new ones are
    /// refused. Messages of the runtimes still go out, and its last words come in, until the
    /// connection is ended.
    pub fn part(&self) {
        self.is_parting.store(true, Ordering::Relaxed);
        self.take_no_calls(Lost::PeerDead);
    }

    /// The peer says that it serves no further calls, and that it has answered all that it has
    /// begun.
    pub fn drained(&self) {
        self.take_no_calls(Lost::Drained);
    }

    /// Another connection takes the place of this one: no new call goes out here, and messages of
    /// the peer's runtime are no longer read here. Calls that wait may still be answered.
    pub(crate) fn retire(&self) {
        self.shared.lock().retired = true;
        self.is_retired.store(true, Ordering::Relaxed);
    }

    /// Returns true if another connection has taken its place.
    pub fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::Relaxed)
    }

    fn take_no_calls(&self, why: Lost) {
        let mut wake = Vec::new();
        let mut shared = self.shared.lock();
        // That nothing has run is known for certain, and stays so.
        if shared.parting != Some(Lost::Drained) {
            shared.parting = Some(why);
        }
        shared.pending.drain_wakers(&mut wake);
        drop(shared);
        wake.into_iter().for_each(Waker::wake);
    }

    /// This side stops serving calls of the peer: it answers those that it has begun. Then the
    /// driver tells the peer that no other call has run or will run.
    pub fn stop_serving(&self) {
        let mut shared = self.shared.lock();
        if shared.draining == Draining::No {
            shared.draining = Draining::Wanted;
            self.is_draining.store(true, Ordering::Relaxed);
            wake_driver(shared);
        }
    }

    /// Returns true if the peer heard that this side serves no further calls, or if the peer is
    /// gone.
    pub fn has_stopped_serving(&self) -> bool {
        let shared = self.shared.lock();
        shared.draining == Draining::Told || shared.lost.is_some()
    }

    /// Returns true if the peer has read that this side serves no further calls, and sends none
    /// that could still arrive; or if the peer is gone.
    pub(crate) fn knows_of_the_end(&self) -> bool {
        let shared = self.shared.lock();
        let heard = shared.draining == Draining::Told && shared.said >= shared.asked_when_drained;
        // No calls travel over a lifeline or to a dead silo.
        let is_silent = matches!(self.peer, PeerKind::Watch(_)) || self.is_parting();
        heard || is_silent || shared.closing || shared.lost.is_some()
    }

    /// This side has dialled the connection to take the place of another one, and tells the peer.
    pub(crate) fn propose(&self) {
        self.is_proposed.store(true, Ordering::Relaxed);
        let _ = self.system(channel::CALLS, &CallsMessage::Instead);
    }

    /// The peer has dialled it for that. Returns false if it has said so before.
    pub(crate) fn hear_proposal(&self) -> bool {
        !self.is_proposed.swap(true, Ordering::Relaxed)
    }

    /// Bytes have come.
    pub(super) fn has_received(&self, bytes: usize) {
        let before = self.bytes_received.fetch_add(bytes as u64, Ordering::Relaxed);
        if before == 0 && bytes > 0 {
            let _ = self.first_word.set(Instant::now());
        }
    }

    /// Returns true if the peer was told to use this connection instead of another one, and had
    /// said nothing over it when `other` was made.
    pub(crate) fn is_crossed_by(&self, other: &Self) -> bool {
        let is_later = |word: &Instant| other.made > *word;
        self.is_proposed.load(Ordering::Relaxed) && !self.first_word.get().is_some_and(is_later)
    }

    /// Lets the peer know that it was heard over this connection, and asks it for a word.
    pub(crate) fn answer_proposal(&self) {
        let mut shared = self.shared.lock();
        if shared.lost.is_none() && !shared.closing {
            shared.ask();
            self.flush(shared, false);
        }
    }

    /// Tells the peer once all calls are answered. Only the driver calls it, so no call begins
    /// between its check and the message. Returns true if the peer was told, now or before.
    pub(super) fn tell_drained(&self) -> bool {
        if !self.is_draining.load(Ordering::Relaxed) {
            return false;
        }
        let mut shared = self.shared.lock();
        if shared.draining == Draining::Wanted && self.serving() == 0 {
            shared.tell_drained();
        }
        shared.draining == Draining::Told
    }

    /// Returns true if the peer is dead in the view.
    pub fn is_parting(&self) -> bool {
        self.is_parting.load(Ordering::Relaxed)
    }

    /// Ends the connection now, like a dying process. All waiting callers learn the reason.
    pub fn lose(&self, why: Lost) {
        self.cut(why, false);
    }

    /// As [`lose`](Self::lose), when the peer could not be told why. Its host gets a reset, not the
    /// orderly end which only a process that has said goodbye or is gone may leave behind.
    pub fn reset(&self, why: Lost) {
        self.cut(why, true);
    }

    fn cut(&self, why: Lost, reset: bool) {
        let mut wake = Vec::new();
        let mut shared = self.shared.lock();
        if shared.lost.is_none() {
            // A peer that stopped serving has read all calls. So has a peer of which this side
            // takes leave.
            let is_over = matches!(why, Lost::Closed | Lost::Replaced);
            if !is_over && shared.parting != Some(Lost::Drained) {
                shared.unread.end();
            }
            shared.lost = Some(why);
            if let Some(stream) = shared.stream.take()
                && reset
            {
                stream.reset();
            }
            shared.out = BytesMut::new();
            self.count_queued(&shared);
            self.note_room();
            shared.pending.drain_wakers(&mut wake);
            wake.extend(shared.driver.take());
        }
        drop(shared);
        wake.into_iter().for_each(Waker::wake);
        // No caller reads the answers.
        let askers = std::mem::take(&mut *self.askers.lock());
        askers.into_values().for_each(|asker| asker.give_up());
    }
}

/// Handles the peer's words about calls.
pub(super) fn handle_word<H: Handler>(
    connection: &Arc<Connection>,
    handler: &Arc<H>,
    word: CallsMessage,
) {
    match word {
        CallsMessage::Drained => {
            connection.drained();
            handler.drained(connection);
        }
        CallsMessage::Ping => {
            // Without room the peer hears it later, when it reads again.
            let _ = connection.system(channel::CALLS, &CallsMessage::Pong);
        }
        CallsMessage::Pong => {
            let shared = &mut *connection.shared.lock();
            shared.said += 1;
            shared.unread.said(shared.said);
        }
        CallsMessage::Instead => handler.prefer(connection),
    }
}
