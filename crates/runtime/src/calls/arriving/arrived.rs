//! A call that came over a connection: the room it takes, and its answer.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{BufMut, Bytes, BytesMut};
use emmer_net::clock::{Clock, CoarseInstant, Due};
use emmer_net::transport::Connection;
use emmer_wire::{
    PeerKind, RequestFlags, RequestHeader, ResponseHeader, ResponseStatus, encode_failure,
    encode_response,
};

use super::inline::start;
use crate::calls::Calls;
use crate::calls::remote::failure_parts;
use crate::cluster::Sought;
use crate::hosting::{BoxTurn, Held, StartError};
use crate::turn::{Asker, Failure};

/// A call that came over a connection and is not answered yet.
pub(super) struct Arrived {
    pub(super) connection: Arc<Connection>,
    pub(super) header: RequestHeader,
    pub(super) body: Bytes,
    /// The size of the whole frame, to be given back as credit.
    pub(super) cost: u64,
    /// The bytes it is counted with.
    pub(super) held: usize,
    pub(super) deadline: CoarseInstant,
    /// True if a caller waits for it.
    pub(super) asker: Arc<Asker>,
    /// True once the caller knows that the turn has begun, and waits for nothing else.
    pub(super) told: AtomicBool,
    pub(super) _room: Serving,
}

/// Room for one call of others that is not answered at once.
pub(super) struct Serving(Arc<Calls>);

impl Serving {
    /// None when the limit of calls under way is reached. `surely` ignores the limit.
    pub(super) fn begin(silo: &Arc<Calls>, surely: bool) -> Option<Self> {
        let under_way = silo.serving.fetch_add(1, Ordering::Relaxed);
        let room = Self(silo.clone());
        (surely || under_way < silo.limits.silo_calls_in_flight_max).then_some(room)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.serving.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Failure of a call that its caller has given up; no caller hears of it.
pub(super) fn given_up() -> Failure {
    Failure::cancelled(false)
}

impl Drop for Arrived {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // No code should get here. The caller and the connection must not suffer if some does.
            self.fail(&Failure::panicked("a panic outside of the turn".to_owned()));
        }
        self.connection.give_arguments(self.held);
        self.connection.forget(self.header.correlation);
    }
}

impl Arrived {
    /// Waits for `work` as long as a caller waits for the call. `work` is not polled after that.
    pub(super) async fn unless_given_up<T>(
        &self,
        work: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        tokio::select! {
            biased;
            () = self.asker.gone() => Err(given_up()),
            done = work => Ok(done),
        }
    }

    /// Returns true if a client makes it, and this silo is its gateway.
    pub(super) fn is_of_client(&self) -> bool {
        matches!(self.connection.peer, PeerKind::Client(_))
    }

    /// Returns true if the caller waits for an answer.
    fn waits(&self) -> bool {
        self.asker.waits() && !self.told.load(Ordering::Relaxed)
    }

    /// Returns the call as the search for its grain sees it.
    pub(super) const fn seeks(&self) -> Sought<'_> {
        let RequestHeader { target, method, chain, .. } = &self.header;
        Sought { grain: target, method: *method, chain }
    }

    pub(super) fn start(&self, activation: Held) -> Result<BoxTurn, StartError> {
        start(activation, &self.header, &self.body, Due::at(self.deadline))
    }

    /// Returns true if the caller waits until the turn has begun, and not for its end.
    pub(super) const fn is_until_begun(&self) -> bool {
        self.header.correlation != 0 && self.header.flags.contains(RequestFlags::ONE_WAY)
    }

    /// Answers that the turn has begun, if the peer reads its answers; else its end is answered.
    pub(super) fn tell_begun(&self) {
        let (correlation, status) = (self.header.correlation, ResponseStatus::Ok);
        let header = ResponseHeader { correlation, status, location: None };
        let write = |out: &mut BytesMut| {
            let no_body = |_: &mut BytesMut| Ok::<(), std::convert::Infallible>(());
            encode_response(out, &header, no_body).unwrap_or_else(|never| match never {})
        };
        if self.asker.waits() && self.connection.try_reply(correlation, self.cost, write) {
            self.told.store(true, Ordering::Relaxed);
        }
    }

    /// Answers, when the peer reads its answers; within the call's time.
    pub(super) async fn answer(&self, clock: &Clock, header: &ResponseHeader, body: &[u8]) {
        let write = |out: &mut BytesMut| {
            let put = |out: &mut BytesMut| {
                out.put_slice(body);
                Ok::<(), std::convert::Infallible>(())
            };
            encode_response(out, header, put).unwrap_or_else(|never| match never {})
        };
        if header.correlation != 0 && !self.waits() {
            return self.over();
        }
        let unread = || {
            let detail = "the caller does not read its answers".to_owned();
            self.fail(&Failure::timeout(true, detail));
        };
        if self.connection.try_reply(header.correlation, self.cost, write) {
            return;
        }
        let Some(_kept) = self.connection.keep_answer(body.len()) else { return unread() };
        while !self.connection.try_reply(header.correlation, self.cost, write) {
            let due = clock.tokio_at_coarse(self.deadline);
            if tokio::time::timeout_at(due, self.connection.until_read()).await.is_err() {
                return unread();
            }
        }
    }

    pub(super) fn fail(&self, failure: &Failure) {
        if !self.waits() {
            return self.over();
        }
        let (code, maybe, detail) = failure_parts(failure);
        let correlation = self.header.correlation;
        self.connection.reply(correlation, self.cost, |out| {
            encode_failure(out, correlation, code, maybe, &detail)
        });
    }

    /// A one-way call is out of this silo's hands.
    pub(super) fn over(&self) {
        if self.told.load(Ordering::Relaxed) {
            return;
        }
        self.connection.reply(0, self.cost, |_| 0);
    }
}
