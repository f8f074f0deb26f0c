//! Answers to the peer's calls, and how they wait for a peer that does not read.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::BytesMut;
use emmer_wire::{FailureCode, encode_failure, frame_fits};
use parking_lot::MutexGuard;

use super::account::FREE_BYTES;
use super::connection::{Connection, Draining, Shared};
use super::ending::wake_driver;
use super::lost::Lost;
use crate::asker::Asker;

impl Connection {
    /// Number of calls of the peer that are under way here.
    pub fn serving(&self) -> u32 {
        self.serving.load(Ordering::Relaxed)
    }

    /// Counts a call of the peer that could not be answered at once; [`reply`](Self::reply) ends
    /// it, and [`forget`](Self::forget) comes last. The caller waits as long as the asker says so.
    pub fn begin_serving(&self, correlation: u64, cost: u64) -> Arc<Asker> {
        self.serving.fetch_add(1, Ordering::Relaxed);
        let unprocessed = self.unprocessed.fetch_add(cost, Ordering::Relaxed) + cost;
        // A peer looks at its credit before each frame.
        if unprocessed > self.limits.credit_bytes + u64::from(self.limits.frame_bytes_max) {
            self.reset(Lost::Protocol("more bytes of calls than the credit allows".to_owned()));
        }
        let asker = Arc::<Asker>::default();
        if correlation != 0 {
            self.askers.lock().insert(correlation, asker.clone());
        }
        asker
    }

    /// The call is answered, or will not be.
    pub fn forget(&self, correlation: u64) {
        if correlation != 0 {
            self.askers.lock().remove(&correlation);
        }
    }

    /// The peer has given a call up.
    pub(super) fn given_up(&self, correlation: u64) {
        let asker = self.askers.lock().remove(&correlation);
        if let Some(asker) = asker {
            asker.give_up();
        }
    }

    /// Ends a call counted by [`begin_serving`](Self::begin_serving): queues the response frame
    /// that `write` appends (nothing for a one-way call, whose correlation is 0). `processed` is
    /// the size of the call's frame.
    pub fn reply(
        &self,
        correlation: u64,
        processed: u64,
        write: impl FnOnce(&mut BytesMut) -> usize,
    ) {
        self.put_reply(self.shared.lock(), correlation, processed, write);
    }

    /// As [`reply`](Self::reply), if the peer reads its answers; else false, and nothing has
    /// changed: [`until_room`](Self::until_room).
    pub fn try_reply(
        &self,
        correlation: u64,
        processed: u64,
        write: impl FnOnce(&mut BytesMut) -> usize,
    ) -> bool {
        let shared = self.shared.lock();
        let room = shared.lost.is_some() || shared.out.len() < self.queue_max() && !self.owes();
        if room {
            self.put_reply(shared, correlation, processed, write);
        } else {
            self.full.store(true, Ordering::Release);
        }
        room
    }

    fn put_reply(
        &self,
        mut shared: MutexGuard<'_, Shared>,
        correlation: u64,
        processed: u64,
        write: impl FnOnce(&mut BytesMut) -> usize,
    ) {
        self.unprocessed.fetch_sub(processed, Ordering::Relaxed);
        // The answer is queued before the end of the call is visible.
        let lone = self.serving() == 1;
        if shared.lost.is_some() {
            self.serving.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        if correlation != 0 {
            let appended = write(&mut shared.out);
            self.fit_reply(&mut shared.out, correlation, appended);
            self.has_answered.store(true, Ordering::Relaxed);
            shared.messages_sent += 1;
        }
        self.note_processed(&mut shared, processed);
        self.serving.fetch_sub(1, Ordering::Relaxed);
        if shared.draining == Draining::Wanted {
            self.note_full(&shared);
            // It may be the last one: the driver tells the peer, behind the answer.
            wake_driver(shared);
        } else {
            self.flush(shared, lone);
        }
    }

    /// Replaces an answer that is too large for the peer by a failure.
    pub fn fit_reply(&self, out: &mut BytesMut, correlation: u64, appended: usize) {
        self.note_answer(appended);
        if !frame_fits(appended, self.peer_limits.frame_bytes_max) {
            out.truncate(out.len() - appended);
            let why = "the answer is larger than the caller's largest frame";
            encode_failure(out, correlation, FailureCode::Codec, true, why);
        }
    }

    /// Makes answers wait if too many bytes are queued for the peer.
    pub(super) fn note_full(&self, shared: &Shared) {
        self.count_queued(shared);
        if shared.out.len() >= self.queue_max() {
            self.full.store(true, Ordering::Release);
        }
    }

    /// The driver has taken what waited, or it has ended.
    pub(super) fn note_room(&self) {
        if self.full.swap(false, Ordering::AcqRel) {
            self.room.notify_waiters();
        }
    }

    /// Returns true if a client has to read its waiting answers, `queued` more bytes among them,
    /// before this side takes another frame from it. A silo is always heard: if two silos waited
    /// for each other like this, neither would read again.
    #[inline]
    pub(super) fn must_read(&self, queued: usize) -> bool {
        let is_full = || queued >= FREE_BYTES && queued >= self.queue_max();
        self.held.is_some() && (!self.has_room(queued) || is_full() || self.owes())
    }

    /// Returns true if the peer reads its answers, `queued` more bytes of which wait.
    #[inline]
    pub fn has_room(&self, queued: usize) -> bool {
        !self.full.load(Ordering::Acquire) && queued < self.replies_bytes_max
    }
}
