//! Calls of this side: encoded by their caller, queued, and waited for; dropped, they are cancelled
//! on the other side.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use bytes::BytesMut;
use emmer_wire::{
    CodecError, RequestFlags, RequestHead, encode_request_head, frame_fits, set_correlation,
};

use super::connection::{Connection, Shared};
use super::lost::{Lost, SendError};
use super::pending::{Answer, Correlation};
use crate::clock::CoarseInstant;

/// A frame on its way into a connection's buffer, in memory that this thread uses again.
struct Frame(BytesMut);

/// A thread keeps so much room for the next frame.
const KEPT_FRAME_BYTES_MAX: usize = 64 << 10;

thread_local! {
    static FRAME: Cell<BytesMut> = Cell::new(BytesMut::new());
}

impl Frame {
    /// An empty one.
    fn take() -> Self {
        Self(FRAME.take())
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        if self.0.capacity() <= KEPT_FRAME_BYTES_MAX {
            self.0.clear();
            FRAME.set(std::mem::take(&mut self.0));
        }
    }
}

impl Connection {
    /// Number of calls of this side that wait for their answer.
    pub fn waiting(&self) -> u32 {
        self.shared.lock().pending.live()
    }

    /// The turns whose calls wait for an answer, of those that are `wanted`.
    pub fn callers(&self, wanted: impl Fn(u64) -> bool) -> Vec<u64> {
        self.shared.lock().pending.callers(wanted)
    }

    /// Sends a call whose answer [`poll_answer`](Self::poll_answer) gives; `waker` is woken when it
    /// is there. `head.correlation` is filled in.
    pub fn begin_call(
        &self,
        waker: &Waker,
        mut head: RequestHead<'_>,
        deadline: CoarseInstant,
        body: impl FnOnce(&mut BytesMut) -> Result<(), CodecError>,
    ) -> Result<Correlation, SendError> {
        // Until the slot is known; see below.
        head.correlation = 1;
        let mut frame = self.encode(&head, body)?;
        let waker = waker.clone();
        let mut shared = self.shared.lock();
        self.admit(&shared)?;
        let caller = head.chain.last().map_or(0, |link| link.turn);
        let correlation = shared.pending.begin(waker, deadline, caller).map_err(SendError::Full)?;
        self.look_at_ticks(&mut shared);
        set_correlation(&mut frame.0, correlation.as_u64());
        shared.queue_request(&frame.0);
        // Nothing else is on the way: a system call here is cheaper than waking the driver.
        let lone = shared.pending.live() == 1;
        self.flush(shared, lone);
        Ok(correlation)
    }

    /// The answer to a call, its body in `body`; else `waker` is remembered. After `Ready` the call
    /// is over.
    pub fn poll_answer(
        &self,
        call: Correlation,
        waker: &Waker,
        body: &mut Vec<u8>,
    ) -> Poll<Result<Answer, Lost>> {
        let mut shared = self.shared.lock();
        if let Some(answer) = shared.pending.poll(call, waker, body) {
            self.answered.store(shared.pending.answered(), Ordering::Relaxed);
            return Poll::Ready(Ok(answer));
        }
        // The peer's words about its calls tell more than the way in which the connection ended
        // afterwards.
        let lost = shared.parting.clone().or_else(|| shared.lost.clone());
        let Some(lost) = lost else { return Poll::Pending };
        shared.pending.give_up(call);
        Poll::Ready(Err(lost))
    }

    /// Gives a call up: the peer hears of it, and a late answer is ignored.
    pub fn give_up(&self, call: Correlation) {
        let mut shared = self.shared.lock();
        let unanswered = shared.pending.give_up(call);
        self.answered.store(shared.pending.answered(), Ordering::Relaxed);
        if unanswered {
            shared.cancel(call);
            self.flush(shared, false);
        }
    }

    /// As [`begin_call`](Self::begin_call), as a future that owns its connection and its answer.
    pub fn call(
        self: &Arc<Self>,
        head: RequestHead<'_>,
        deadline: CoarseInstant,
        body: impl FnOnce(&mut BytesMut) -> Result<(), CodecError>,
    ) -> Result<Ticket, SendError> {
        let correlation = self.begin_call(Waker::noop(), head, deadline, body)?;
        Ok(Ticket { connection: self.clone(), correlation: Some(correlation) })
    }

    /// Sends a call without waiting for its answer, if `is_way` is true then: no frame gets between
    /// the two. False if it is not sent.
    pub fn one_way(
        &self,
        mut head: RequestHead<'_>,
        body: impl FnOnce(&mut BytesMut) -> Result<(), CodecError>,
        is_way: impl FnOnce() -> bool,
    ) -> Result<bool, SendError> {
        head.correlation = 0;
        head.flags = head.flags | RequestFlags::ONE_WAY;
        let frame = self.encode(&head, body)?;
        let mut shared = self.shared.lock();
        self.admit(&shared)?;
        if !is_way() {
            return Ok(false);
        }
        shared.silence.expect();
        shared.unread.send();
        self.look_at_ticks(&mut shared);
        shared.queue_request(&frame.0);
        self.flush(shared, false);
        Ok(true)
    }

    fn admit(&self, shared: &Shared) -> Result<(), SendError> {
        if let Some(lost) = &shared.lost {
            return Err(SendError::Lost(lost.clone()));
        }
        if let Some(parting) = &shared.parting {
            return Err(SendError::Lost(parting.clone()));
        }
        if shared.closing {
            return Err(SendError::Lost(Lost::Closed));
        }
        if shared.retired {
            return Err(SendError::Lost(Lost::Replaced));
        }
        if shared.out.len() >= self.outgoing_bytes_max {
            return Err(SendError::Overloaded(
                "too many bytes wait to be sent to this peer (outgoing_bytes_max)",
            ));
        }
        if shared.sent - shared.acknowledged >= self.peer_limits.credit_bytes {
            return Err(SendError::Overloaded(
                "the peer has too many unprocessed bytes of calls (its credit)",
            ));
        }
        Ok(())
    }

    /// The call as a frame. Made before the connection is locked: callers on other threads wait for
    /// a copy, not for the `Serialize` of a user's type.
    fn encode(
        &self,
        head: &RequestHead<'_>,
        body: impl FnOnce(&mut BytesMut) -> Result<(), CodecError>,
    ) -> Result<Frame, SendError> {
        let mut frame = Frame::take();
        let bytes = encode_request_head(&mut frame.0, head, body)
            .map_err(|e| SendError::Codec(e.to_string()))?;
        if frame_fits(bytes, self.peer_limits.frame_bytes_max) {
            Ok(frame)
        } else {
            Err(SendError::TooLarge(bytes))
        }
    }
}

/// The wait for one answer. Dropping it gives the call up; a late answer is ignored.
pub struct Ticket {
    connection: Arc<Connection>,
    correlation: Option<Correlation>,
}

impl Future for Ticket {
    type Output = Result<(Answer, Vec<u8>), Lost>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(call) = self.correlation else { return Poll::Pending };
        let mut body = Vec::new();
        let answered = self.connection.poll_answer(call, cx.waker(), &mut body);
        answered.map(|answer| {
            self.correlation = None;
            answer.map(|answer| (answer, body))
        })
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(call) = self.correlation {
            self.connection.give_up(call);
        }
    }
}
