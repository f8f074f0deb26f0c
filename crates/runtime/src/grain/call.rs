//! A call that was not made yet: what a method of a reference returns.

use std::fmt::{self, Display};
use std::future::IntoFuture;
use std::time::Duration;

use emmer_wire::HINT_KEY;
use tokio_util::sync::CancellationToken;

use super::{CallFuture, LocalSlot, Method, RawRef};
use crate::calls::{Aim, CallHead, one_way};
use crate::turn::{CallError, ContextKey, NoError};

/// A call that was not made yet: await it, or [`send`](Self::send) it.
///
/// ```ignore (needs the facade, whose tests compile it)
/// let total = counter.add(1).timeout(secs(2)).await?;
/// counter.add(1).send()?;
/// ```
#[must_use = "a call does nothing until it is awaited: write `.await`, or `.send()` for a \
              one-way call"]
pub struct Call<M: Method> {
    pub(crate) head: CallHead,
    pub(crate) args: M,
}

impl<M: Method> Call<M> {
    pub(crate) const fn new(target: Aim, args: M) -> Self {
        // A stream is open for as long as both ends want.
        let timeout = if M::STREAMS { Some(Duration::MAX) } else { None };
        let head = CallHead { target, method: M::INFO, timeout, cancel: None, extra: None };
        Self { head, args }
    }

    /// Fails the call with [`CallError::Timeout`] after `timeout`. Without it the call inherits the
    /// rest of the deadline of the turn that makes it, or takes the `response_timeout` of the silo
    /// or client. Exact to about 10 ms.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.head.timeout = Some(timeout);
        self
    }

    /// Fails the call with [`CallError::Cancelled`] when `token` fires. A turn that has begun runs
    /// to its end all the same: a grain is never left half way.
    pub fn cancel_on(mut self, token: CancellationToken) -> Self {
        self.head.cancel = Some(token);
        self
    }

    /// Sends a value along with this call, and with what follows from it ([`ContextKey`]). A call
    /// that takes along more than it may is `Rejected`.
    pub fn with<T: Display>(mut self, key: &ContextKey<T>, value: impl Into<T>) -> Self {
        let value: T = value.into();
        let value = value.to_string();
        self.head.take(&|context| key.put_text(context, &value));
        self
    }

    /// Says something to the placement director of the grain's class, in case the grain has to be
    /// activated for this call: a zone, say. In-built strategies follow the address of a silo that
    /// can host the grain. What follows from the call does not carry it.
    pub fn hint(mut self, hint: impl Display) -> Self {
        let hint = hint.to_string();
        self.head.take(&|context| context.with(HINT_KEY, &hint));
        self
    }

    /// Makes the call one-way: its caller does not wait for the end, and does not hear of a
    /// failure. Returns as soon as it is handed over.
    ///
    /// # Errors
    /// What can be known at once: `Overloaded`, `ShuttingDown`, a key that is too long.
    pub fn send(self) -> Result<(), CallError<NoError>> {
        one_way::send(self.head, &mut LocalSlot::of(self.args))
    }
}

impl<M: Method> Call<M> {
    /// Makes the call past the filters of outgoing calls.
    pub(crate) fn past_filters(self) -> CallFuture<M> {
        CallFuture::past_filters(self.head, self.args)
    }

    /// Makes the call past the filters of outgoing calls; it begins no trace.
    pub(crate) fn without_span(self) -> CallFuture<M> {
        CallFuture::without_span(self.head, self.args)
    }
}

impl RawRef {
    /// A call of method `M`, to be awaited or sent.
    pub fn call<M: Method>(&self, args: M) -> Call<M> {
        Call::new(self.aim(), args)
    }
}

impl<M: Method> fmt::Debug for Call<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Call({:?}.{})", self.head.target, M::NAME)
    }
}

impl<M: Method> IntoFuture for Call<M> {
    type Output = Result<M::Ok, CallError<M::Err>>;
    type IntoFuture = CallFuture<M>;

    fn into_future(self) -> Self::IntoFuture {
        CallFuture::new(self.head, self.args)
    }
}
