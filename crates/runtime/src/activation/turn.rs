//! One call being executed: a turn.
//!
//! A turn is a future over the activation that first waits for admission (the activation's lock: `&mut self`
//! alone, `&self` beside other `&self`) and then runs the method. It is polled by whoever brought the call (the
//! caller's own task, or the connection's read loop) and moved to a task of its own only when it has begun and
//! suspends: an idle grain costs no task and no channel, and a call to it no hand-over.

use std::any::Any;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::BytesMut;
use emmer_core::SiloAddress;
use emmer_wire::codec;
use pin_project_lite::pin_project;

use super::Closed;
use crate::grain::{Method, TurnContext};

/// Where a turn's arguments come from.
pub enum Input<'a> {
    /// A caller in this process: a [`LocalSlot`] of the method.
    Local(&'a mut dyn Any),
    /// The body of a request frame.
    Wire(&'a [u8]),
}

impl Input<'_> {
    /// The arguments of method `M`.
    ///
    /// # Errors
    /// The codec's words when the body does not decode as `M`.
    pub fn take<M: Method>(self) -> Result<M, String> {
        match self {
            Self::Local(slot) => slot
                .downcast_mut::<LocalSlot<M>>()
                .and_then(|slot| slot.args.take())
                .ok_or_else(|| format!("{} was started without its arguments", M::NAME)),
            Self::Wire(body) => codec::decode(body).map_err(|e| e.to_string()),
        }
    }
}

/// Where a turn's result goes.
pub enum Sink<'a> {
    /// To the caller's [`LocalSlot`] of the method.
    Local(&'a mut (dyn Any + Send)),
    /// Into a response body.
    Wire(&'a mut BytesMut),
    /// Nowhere: a one-way call.
    Discard,
}

/// A local call's two ends: arguments on the way in (and back, when the activation was closed first), the
/// output on the way out.
#[derive(Debug)]
pub struct LocalSlot<M: Method> {
    /// The arguments; none while the turn has them.
    pub args: Option<M>,
    /// The result; some once the turn is done.
    pub output: Option<M::Output>,
}

/// How a turn ended.
#[derive(Debug, PartialEq, Eq)]
pub enum TurnEnd {
    /// The method ran; its output is in the sink.
    Done,
    /// The activation closed before the method began, or is registered elsewhere. The arguments are back in a
    /// local slot; the call must be resolved again. Not executed.
    Closed(Option<SiloAddress>),
    /// The activation could not be activated: the text says why. Not executed.
    ActivationFailed(String),
    /// The method panicked with this text.
    Panicked(String),
    /// The output could not be encoded.
    Unencodable(String),
}

/// Where a turn stands after a poll that was pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Waiting for admission: dropping the turn now cancels the call without effect.
    Waiting,
    /// The method (or the activation before it) has begun: the turn must be polled to its end.
    Running,
}

/// What the generated code's future returns.
pub enum TurnOutcome<M: Method> {
    /// The method's output.
    Done(M::Output),
    /// The arguments, because the activation was not there any more.
    Closed(M, Closed),
}

/// A turn whose method is not known by type.
pub trait Turn: Send {
    /// Drives the turn; its result goes to `sink` in the poll that ends it.
    fn poll_turn(self: Pin<&mut Self>, cx: &mut Context<'_>, sink: &mut Sink<'_>) -> Poll<TurnEnd>;

    /// Where the turn stands.
    fn progress(&self) -> Progress;
}

/// A boxed turn: the one allocation of a call.
pub type BoxTurn = Pin<Box<dyn Turn>>;

pin_project! {
    /// The turn around the generated code's future.
    struct TypedTurn<M, F> {
        // In the thread's hands during every poll, so that calls made by the method know who makes them.
        context: Option<TurnContext>,
        #[pin]
        future: F,
        method: PhantomData<fn() -> M>,
    }
}

/// Makes a turn of the generated code's future.
pub fn boxed<M, F>(context: TurnContext, future: F) -> BoxTurn
where
    M: Method,
    F: Future<Output = TurnOutcome<M>> + Send + 'static,
{
    Box::pin(TypedTurn::<M, F> { context: Some(context), future, method: PhantomData })
}

impl<M, F> Turn for TypedTurn<M, F>
where
    M: Method,
    F: Future<Output = TurnOutcome<M>> + Send,
{
    fn poll_turn(self: Pin<&mut Self>, cx: &mut Context<'_>, sink: &mut Sink<'_>) -> Poll<TurnEnd> {
        let this = self.project();
        let polled = TurnContext::scope(this.context, || {
            // A panic unwinds through the method's own values only; the activation is closed right after, so
            // nobody observes a broken one.
            catch_unwind(AssertUnwindSafe(|| this.future.poll(cx)))
        });
        match polled {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(TurnOutcome::Done(output))) => Poll::Ready(deliver::<M>(output, sink)),
            Ok(Poll::Ready(TurnOutcome::Closed(args, closed))) => {
                if let Sink::Local(slot) = sink
                    && let Some(slot) = slot.downcast_mut::<LocalSlot<M>>()
                {
                    slot.args = Some(args);
                }
                Poll::Ready(match closed {
                    Closed::Gone => TurnEnd::Closed(None),
                    Closed::Elsewhere(silo) => TurnEnd::Closed(Some(silo)),
                    Closed::Failed(why) => TurnEnd::ActivationFailed(why),
                })
            }
            Err(panic) => {
                let text = panic_text(&*panic);
                if let Some(context) = this.context {
                    context.break_activation(&text);
                }
                Poll::Ready(TurnEnd::Panicked(text))
            }
        }
    }

    fn progress(&self) -> Progress {
        match &self.context {
            Some(context) if context.has_begun() => Progress::Running,
            _ => Progress::Waiting,
        }
    }
}

/// Hands the output to the caller, or encodes it behind what the response already holds.
fn deliver<M: Method>(output: M::Output, sink: &mut Sink<'_>) -> TurnEnd {
    match sink {
        Sink::Local(slot) => {
            if let Some(slot) = slot.downcast_mut::<LocalSlot<M>>() {
                slot.output = Some(output);
            }
            TurnEnd::Done
        }
        Sink::Wire(out) => match codec::encode_into(out, &output) {
            Ok(()) => TurnEnd::Done,
            Err(e) => TurnEnd::Unencodable(e.to_string()),
        },
        Sink::Discard => TurnEnd::Done,
    }
}

/// What a panic said, if it said something in words.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|s| (*s).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without words".to_owned())
}

/// Drives a turn while it waits for admission: its end if it ends, none once it has begun and suspends. Dropping this
/// before gives the turn up without effect.
pub(crate) async fn until_begun(turn: &mut BoxTurn, sink: &mut Sink<'_>) -> Option<TurnEnd> {
    std::future::poll_fn(|cx| match turn.as_mut().poll_turn(cx, sink) {
        Poll::Ready(end) => Poll::Ready(Some(end)),
        Poll::Pending if turn.progress() == Progress::Running => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    })
    .await
}

/// Drives a turn to its end in a task of its own.
pub(crate) async fn run_to_end(mut turn: BoxTurn, sink: &mut Sink<'_>) -> TurnEnd {
    std::future::poll_fn(|cx| turn.as_mut().poll_turn(cx, sink)).await
}
