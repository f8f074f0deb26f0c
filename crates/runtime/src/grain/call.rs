//! A call on its way: a builder until it is awaited, then a future that runs the turn itself where it can.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::activation::{LocalSlot, Progress, Sink, TurnEnd};
use crate::grain::error::Failure;
use crate::grain::reference::Node;
use crate::grain::{CallError, Method, NoError, RawRef, TurnContext};
use crate::invoke::{self, Caller, Finished, LocalTurn};

/// A call that was not made yet: await it, or [`send`](Self::send) it.
///
/// ```ignore (needs the facade, whose tests compile it)
/// let total = counter.add(1).timeout(secs(2)).await?;
/// counter.add(1).send()?;
/// ```
#[must_use = "a call does nothing until it is awaited or sent"]
pub struct Call<M: Method> {
    pub(crate) target: RawRef,
    pub(crate) args: M,
    pub(crate) timeout: Option<Duration>,
    pub(crate) cancel: Option<CancellationToken>,
}

impl<M: Method> Call<M> {
    pub(crate) const fn new(target: RawRef, args: M) -> Self {
        Self { target, args, timeout: None, cancel: None }
    }

    /// Fails the call with [`CallError::Timeout`] after `timeout`. Without it the call inherits what is left of
    /// the deadline of the turn that makes it, or takes the silo's or client's `response_timeout`.
    /// Exact to about 10 ms.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Fails the call with [`CallError::Cancelled`] when `token` fires. A turn that has begun runs to its end all
    /// the same: a grain is never left half way.
    pub fn cancel_on(mut self, token: CancellationToken) -> Self {
        self.cancel = Some(token);
        self
    }

    /// Makes the call one-way: nobody waits for its end, nobody learns of its failure. Returns as soon as it is
    /// handed over.
    ///
    /// # Errors
    /// What can be known at once: `Overloaded`, `ShuttingDown`, a key that is too long.
    pub fn send(self) -> Result<(), CallError<NoError>> {
        invoke::send_one_way(self)
    }
}

impl<M: Method> fmt::Debug for Call<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Call({:?}.{})", self.target, M::NAME)
    }
}

impl<M: Method> IntoFuture for Call<M> {
    type Output = Result<M::Ok, CallError<M::Err>>;
    type IntoFuture = CallFuture<M>;

    fn into_future(self) -> Self::IntoFuture {
        CallFuture { state: State::New(Some(self)) }
    }
}

/// A call being made. Dropping it cancels a call that has not begun.
#[must_use = "futures do nothing unless polled"]
pub struct CallFuture<M: Method> {
    state: State<M>,
}

type Boxed<M> = Pin<Box<dyn Future<Output = Finished<M>> + Send>>;

enum State<M: Method> {
    New(Option<Call<M>>),
    /// Whatever could not be done in the first poll.
    Slow(Boxed<M>),
    Over,
}

// No field is ever pinned in place: the boxed future is pinned in its box.
impl<M: Method> Unpin for CallFuture<M> {}

impl<M: Method> Future for CallFuture<M> {
    type Output = Result<M::Ok, CallError<M::Err>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::New(call) = &mut self.state {
            let Some(call) = call.take() else { return Poll::Pending };
            match first_poll(call, cx) {
                First::Ready(result) => {
                    self.state = State::Over;
                    return Poll::Ready(result);
                }
                First::Slow(future) => self.state = State::Slow(future),
            }
        }
        let State::Slow(future) = &mut self.state else {
            return Poll::Pending;
        };
        match future.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(finished) => {
                self.state = State::Over;
                Poll::Ready(conclude::<M>(finished))
            }
        }
    }
}

fn conclude<M: Method>(finished: Finished<M>) -> Result<M::Ok, CallError<M::Err>> {
    match finished {
        Ok(output) => M::split(output).map_err(CallError::App),
        Err(failure) => Err(failure.into_call_error()),
    }
}

enum First<M: Method> {
    Ready(Result<M::Ok, CallError<M::Err>>),
    Slow(Boxed<M>),
}

/// The hot path: the grain is on this silo and idle, so its turn runs here and now, on the caller's task.
fn first_poll<M: Method>(call: Call<M>, cx: &mut Context<'_>) -> First<M> {
    let checked = TurnContext::caller()
        .map_err(|too_long| CallError::Rejected(too_long.to_string()))
        .and_then(|(chain, inherited)| Caller::check::<M>(&call, chain, inherited));
    let caller = match checked {
        Ok(caller) => caller,
        Err(failure) => return First::Ready(Err(failure.into_call_error())),
    };
    let Node::Silo(silo) = &call.target.node else {
        return First::Slow(Box::pin(invoke::through_gateway(call, caller)));
    };
    let found = silo.catalog.get(&call.target.id);
    let (Some(activation), Some(_depth)) = (found, invoke::InlineDepth::enter()) else {
        return First::Slow(Box::pin(invoke::from_silo(call, caller)));
    };
    let Call { target, args, timeout, cancel } = call;
    let mut slot = LocalSlot { args: Some(args), output: None };
    let mut turn = match caller.start::<M>(activation, &mut slot) {
        Ok(turn) => turn,
        Err(failure) => return First::Ready(Err(failure.into_call_error())),
    };
    match turn.as_mut().poll_turn(cx, &mut Sink::Local(&mut slot)) {
        Poll::Ready(TurnEnd::Done) => match slot.output {
            Some(output) => First::Ready(M::split(output).map_err(CallError::App)),
            None => First::Ready(Err(no_output::<M>().into_call_error())),
        },
        Poll::Ready(TurnEnd::Closed(_)) => match slot.args {
            Some(args) => {
                let call = Call { target, args, timeout, cancel };
                First::Slow(Box::pin(invoke::from_silo(call, caller)))
            }
            None => First::Ready(Err(no_output::<M>().into_call_error())),
        },
        Poll::Ready(end) => First::Ready(Err(invoke::failure_of(end).into_call_error())),
        Poll::Pending => {
            debug_assert!(matches!(turn.progress(), Progress::Waiting | Progress::Running));
            let local = LocalTurn { target, turn, slot, timeout, cancel };
            First::Slow(Box::pin(invoke::finish_local_or_retry(local, caller)))
        }
    }
}

fn no_output<M: Method>() -> Failure {
    Failure::Codec { maybe_executed: true, detail: format!("{} ended without its output", M::NAME) }
}
