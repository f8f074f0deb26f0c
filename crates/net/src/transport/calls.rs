//! Calls of this side: encoded by their caller, queued, and waited for; dropped, they are cancelled
//! on the other side.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::BytesMut;
use emmer_core::CoarseInstant;
use emmer_link::{Answer, Correlation, Lost, SendError};
use emmer_wire::{CodecError, RequestFlags, RequestHead, encode_request_head, frame_fits};

use super::connection::Connection;

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
        self.shared.lock().link.waiting()
    }

    /// The turns whose calls wait for an answer, of those that are `wanted`.
    pub fn callers(&self, wanted: impl Fn(u64) -> bool) -> Vec<u64> {
        self.shared.lock().link.callers(wanted)
    }

    /// Sends a call whose answer [`poll_answer`](Self::poll_answer) gives; `waker` is woken when it
    /// is there. `head.correlation` is filled in.
    ///
    /// # Errors
    /// The call does not encode, or the connection takes none.
    pub fn begin_call(
        &self,
        waker: &Waker,
        mut head: RequestHead<'_>,
        deadline: CoarseInstant,
        body: impl FnOnce(&mut BytesMut) -> Result<(), CodecError>,
    ) -> Result<Correlation, SendError> {
        // Until the slot is known.
        head.correlation = 1;
        let mut frame = self.encode(&head, body)?;
        let waker = waker.clone();
        let caller = head.chain.last().map_or(0, |link| link.turn);
        let mut shared = self.shared.lock();
        let correlation = shared.link.call(&mut frame.0, waker, deadline, caller)?;
        self.look_at_ticks(&mut shared);
        // Nothing else is on the way: a system call here is cheaper than waking the driver.
        let lone = shared.link.waiting() == 1;
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
        self.shared.lock().link.poll_answer(call, waker, body)
    }

    /// Gives a call up: the peer hears of it, and a late answer is ignored.
    pub fn give_up(&self, call: Correlation) {
        let mut shared = self.shared.lock();
        if shared.link.give_up(call) {
            self.flush(shared, false);
        }
    }

    /// As [`begin_call`](Self::begin_call), as a future that owns its connection and its answer.
    ///
    /// # Errors
    /// As [`begin_call`](Self::begin_call).
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
    ///
    /// # Errors
    /// The call does not encode, or the connection takes none.
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
        let goes = shared.link.one_way(&frame.0, is_way)?;
        if goes {
            self.look_at_ticks(&mut shared);
            self.flush(shared, false);
        }
        Ok(goes)
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
