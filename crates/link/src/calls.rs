//! Calls of this side.

use std::task::{Poll, Waker};

use emmer_core::CoarseInstant;
use emmer_wire::set_correlation;

use crate::link::Link;
use crate::lost::{Lost, SendError};
use crate::pending::{Answer, Correlation};

impl Link {
    /// Queues a call, `frame`, whose answer [`poll_answer`](Self::poll_answer) gives; `waker` is
    /// woken when it is there. The frame's correlation is filled in. `caller` is the turn that
    /// makes the call, or 0.
    ///
    /// # Errors
    /// No call goes out, or as many wait as may. Nothing is queued then.
    pub fn call(
        &mut self,
        frame: &mut [u8],
        waker: Waker,
        deadline: CoarseInstant,
        caller: u64,
    ) -> Result<Correlation, SendError> {
        self.admit()?;
        let correlation = self.pending.begin(waker, deadline, caller).map_err(SendError::Full)?;
        set_correlation(frame, correlation.as_u64());
        self.queue_request(frame);
        Ok(correlation)
    }

    /// Queues a call that has no answer, if `is_way` is true then. Returns false if it is not.
    ///
    /// # Errors
    /// No call goes out. Nothing is queued then.
    pub fn one_way(
        &mut self,
        frame: &[u8],
        is_way: impl FnOnce() -> bool,
    ) -> Result<bool, SendError> {
        self.admit()?;
        let goes = is_way();
        if goes {
            self.silence.expect();
            self.unread.send();
            self.queue_request(frame);
        }
        Ok(goes)
    }

    /// The answer to a call, its body in `body`; else `waker` is remembered. After `Ready` the call
    /// is over.
    pub fn poll_answer(
        &mut self,
        call: Correlation,
        waker: &Waker,
        body: &mut Vec<u8>,
    ) -> Poll<Result<Answer, Lost>> {
        if let Some(answer) = self.pending.poll(call, waker, body) {
            return Poll::Ready(Ok(answer));
        }
        // The peer's words about its calls tell more than the way in which the connection ended
        // afterwards.
        let lost = self.life.refusal().or_else(|| self.lost().cloned());
        let Some(lost) = lost else { return Poll::Pending };
        self.pending.give_up(call);
        Poll::Ready(Err(lost))
    }

    /// Gives a call up: the peer hears of it if it may still be at the call, and a late answer is
    /// ignored. Returns true if a word to the peer was queued.
    pub fn give_up(&mut self, call: Correlation) -> bool {
        let unanswered = self.pending.give_up(call);
        if unanswered {
            self.cancel(call);
        }
        unanswered
    }

    /// Number of calls of this side that wait for their answer, or whose caller has not taken it.
    pub const fn waiting(&self) -> u32 {
        self.pending.live()
    }

    /// Number of calls whose answer their caller has not taken yet.
    pub const fn answered(&self) -> u32 {
        self.pending.answered()
    }

    /// The turns whose calls wait for an answer, of those that are `wanted`.
    pub fn callers(&self, wanted: impl Fn(u64) -> bool) -> Vec<u64> {
        self.pending.callers(wanted)
    }

    fn admit(&self) -> Result<(), SendError> {
        self.life.admit().map_err(SendError::Lost)?;
        if self.out.len() >= self.outgoing_bytes_max {
            return Err(SendError::Overloaded(
                "too many bytes wait to be sent to this peer (outgoing_bytes_max)",
            ));
        }
        if self.sent - self.acknowledged >= self.peer_limits.credit_bytes {
            return Err(SendError::Overloaded(
                "the peer has too many unprocessed bytes of calls (its credit)",
            ));
        }
        Ok(())
    }

    fn queue_request(&mut self, frame: &[u8]) {
        self.out.end().extend_from_slice(frame);
        self.sent += frame.len() as u64;
        self.counts.messages_sent += 1;
    }
}
