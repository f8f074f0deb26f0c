//! Calls of the peer, and their answers.

use bytes::BytesMut;
use emmer_wire::{FailureCode, PeerKind, encode_failure, frame_fits};

use crate::life::{Phase, Serving};
use crate::link::Link;
use crate::lost::Lost;
use crate::outbox::frame_bytes;
use crate::words::CallsMessage;

/// Counts of the peer's calls.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Served {
    /// Calls that are not answered yet.
    under_way: u32,
    /// Bytes of calls that are not over.
    unprocessed: u64,
    /// Bytes of calls that are over.
    processed: u64,
    /// Bytes of them that the peer was told of.
    told: u64,
    /// An answer was sent since the peer was last asked for a word for its sake.
    has_answered: bool,
    /// Bytes that had come at the last look at answers.
    received_at_look: u64,
}

impl Served {
    /// Notes bytes whose calls are over. Returns the sum if the peer has to hear of it: they are
    /// more than `step`.
    pub(crate) const fn processed(&mut self, bytes: u64, step: u64) -> Option<u64> {
        self.processed += bytes;
        if self.processed - self.told <= step {
            return None;
        }
        self.told = self.processed;
        Some(self.processed)
    }
}

/// Replaces an answer of `appended` bytes at the end of `out` by a failure, if it is too large for
/// the peer.
pub fn fit_reply(out: &mut BytesMut, correlation: u64, appended: usize, max: u32) {
    if !frame_fits(appended, max) {
        out.truncate(out.len() - appended);
        let why = "the answer is larger than the caller's largest frame";
        encode_failure(out, correlation, FailureCode::Codec, true, why);
    }
}

impl Link {
    /// Number of calls of the peer that are under way here.
    pub const fn serving(&self) -> u32 {
        self.served.under_way
    }

    /// Counts a call of the peer that could not be answered at once; [`reply`](Self::reply) ends
    /// it.
    ///
    /// # Errors
    /// The peer has sent more than its credit. A peer looks at its credit before each frame.
    pub fn begin_serving(&mut self, cost: u64) -> Result<(), Lost> {
        self.served.under_way += 1;
        self.served.unprocessed += cost;
        if self.served.unprocessed
            > self.limits.credit_bytes + u64::from(self.limits.frame_bytes_max)
        {
            return Err(Lost::Protocol("more bytes of calls than the credit allows".to_owned()));
        }
        Ok(())
    }

    /// Returns true if the peer reads its answers; else answers have to wait from now on.
    pub fn has_reply_room(&self) -> bool {
        let room = self.lost().is_some() || self.has_queue_room() && !self.account.owes();
        if !room {
            self.account.note_full();
        }
        room
    }

    /// Ends a call counted by [`begin_serving`](Self::begin_serving): queues the response frame
    /// that `write` appends (nothing for a one-way call, whose correlation is 0). `processed` is
    /// the size of the call's frame.
    pub fn reply(
        &mut self,
        correlation: u64,
        processed: u64,
        write: impl FnOnce(&mut BytesMut) -> usize,
    ) {
        self.served.unprocessed -= processed;
        self.served.under_way -= 1;
        if self.lost().is_some() {
            return;
        }
        if correlation != 0 {
            let appended = write(self.out.end());
            self.account.note_answer(appended);
            let max = self.peer_limits.frame_bytes_max;
            fit_reply(self.out.end(), correlation, appended, max);
            self.served.has_answered = true;
            self.counts.messages_sent += 1;
        }
        self.note_processed(processed);
        self.tell_drained();
    }

    /// Puts answers of calls that ended while their frames were read behind what others queued;
    /// `replies` is empty afterwards.
    pub(crate) fn put_replies(&mut self, replies: &mut BytesMut) {
        if replies.is_empty() {
            return;
        }
        self.served.has_answered = true;
        self.counts.messages_sent += frames_in(replies);
        self.out.append(replies);
        self.note_waiting();
    }

    /// A check every half second: asks the peer for a word if an answer was sent to it and it has
    /// been silent since the last check. A connection that only answers has no calls whose silence
    /// would be noticed.
    pub fn look_at_answers(&mut self) {
        let received = self.counts.bytes_received;
        let before = std::mem::replace(&mut self.served.received_at_look, received);
        if received == before && std::mem::take(&mut self.served.has_answered) {
            self.doubt();
        }
    }

    /// This side stops serving calls of the peer: it answers those that it has begun. Then the peer
    /// hears that no other call has run or will run.
    pub fn stop_serving(&mut self) {
        if self.life.serving() == Serving::Yes {
            self.life.set_serving(Serving::Finishing);
            self.tell_drained();
        }
    }

    /// Returns true if the peer's calls are no longer begun.
    pub(crate) const fn is_deaf(&self) -> bool {
        matches!(self.life.serving(), Serving::Stopped { .. })
    }

    /// Tells the peer once all its calls are answered. Not while its frames are read: calls among
    /// them may begin, and their answers come later.
    pub(crate) fn tell_drained(&mut self) {
        if self.life.serving() == Serving::Finishing
            && self.served.under_way == 0
            && !self.frames.is_reading
            && self.lost().is_none()
        {
            self.say(CallsMessage::Drained);
            self.ask();
            self.life.set_serving(Serving::Stopped { asked: self.words.asked });
        }
    }

    /// Returns true if the peer heard that this side serves no further calls, or if the peer is
    /// gone.
    pub const fn has_stopped_serving(&self) -> bool {
        self.is_deaf() || self.lost().is_some()
    }

    /// Returns true if the peer has read that this side serves no further calls, and sends none
    /// that could still arrive; or if the peer is gone.
    pub fn knows_of_the_end(&self) -> bool {
        let heard = match self.life.serving() {
            Serving::Stopped { asked } => self.words.said >= asked,
            Serving::Yes | Serving::Finishing => false,
        };
        // No calls travel over a lifeline or to a dead silo.
        let is_silent = matches!(self.peer, PeerKind::Watch(_)) || self.is_parting();
        heard || is_silent || self.phase() == Phase::Closed
    }
}

/// The number of frames in whole frames.
fn frames_in(mut bytes: &[u8]) -> u64 {
    let mut frames = 0;
    while !bytes.is_empty() {
        frames += 1;
        bytes = &bytes[frame_bytes(bytes)..];
    }
    frames
}
