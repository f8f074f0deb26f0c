//! One call being executed: a turn.
//!
//! A turn is a future over the activation that first waits for admission (the activation's lock:
//! `&mut self` alone, `&self` beside other `&self`) and then runs the method. It is polled by
//! whoever brought the call (the caller's own task, or the connection's read loop) and moved to a
//! task of its own only when it has begun and suspends: an idle grain costs no task and no channel,
//! and a call to it no hand-over.
//!
//! A turn that has begun and suspends is polled again only while the silo's fence is open. One
//! whose fence was shut for good is dropped where it stands.

use std::any::Any;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use emmer_core::SiloAddress;
use emmer_store::BoxFuture;
use emmer_wire::codec;
use pin_project_lite::pin_project;
use tracing::Span;

use super::Closed;
use super::contain::{Contained, contain, contained, let_go};
use crate::calls::waits::{Asker, Listing};
use crate::clock::{Clock, CoarseInstant};
use crate::cluster::{Fence, Shut};
use crate::grain::{Interface, Method, TurnContext};
use crate::metrics::{Ended, Outer};
use crate::trace;

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
                .ok_or_else(|| {
                    format!(
                        "this process calls {} by another version of its interface than the one \
                         that it hosts",
                        M::NAME
                    )
                }),
            Self::Wire(body) => {
                contain(|| codec::decode(body)).and_then(|args| args.map_err(|e| e.to_string()))
            }
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

/// A local call's two ends: arguments on the way in (and back, when the activation was closed
/// first), the output on the way out.
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
    /// The activation closed before the method began, or is registered elsewhere. The arguments are
    /// back in a local slot; the call must be resolved again. Not executed.
    Closed(Option<SiloAddress>),
    /// The activation could not be activated: the text says why. Not executed.
    ActivationFailed(String),
    /// The method panicked with this text.
    Panicked(String),
    /// The output could not be encoded.
    Unencodable(String),
    /// The turn waited in a circle of waiting calls, which the text names. Not executed.
    Deadlock(String),
    /// A filter refused the call, in these words. Not executed.
    Refused(String),
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
    /// A filter refused the call, in these words.
    Refused(String),
}

/// A turn whose method is not known by type.
pub trait Turn: Send {
    /// Drives the turn; its result goes to `sink` in the poll that ends it.
    fn poll_turn(self: Pin<&mut Self>, cx: &mut Context<'_>, sink: &mut Sink<'_>) -> Poll<TurnEnd>;

    /// Where the turn stands.
    fn progress(&self) -> Progress;

    /// The turn's deadline in milliseconds of the silo's clock; one that was given as a span counts
    /// from `now`, once and for all.
    #[doc(hidden)]
    fn settle(self: Pin<&mut Self>, now: u64) -> u64;

    /// Says that a task of the runtime polls the turn, as soon as it waits.
    #[doc(hidden)]
    fn set_driven(self: Pin<&mut Self>);

    /// Whether a turn made the call.
    #[doc(hidden)]
    fn has_caller(&self) -> bool;

    /// Says how to know whether that turn still waits.
    #[doc(hidden)]
    fn asked_by(self: Pin<&mut Self>, asker: Arc<Asker>);
}

/// A boxed turn: the one allocation of a call.
pub type BoxTurn = Pin<Box<dyn Turn>>;

pin_project! {
    /// The turn around the generated code's future.
    struct TypedTurn<M, F> {
        // It holds the grain and waits for something else.
        suspended: bool,
        // The wait for the fence, of a turn that was to go on and found it closed.
        held: Option<BoxFuture<'static, ()>>,
        // Whether the turn that made the call still waits, where it may have stopped.
        asker: Option<Arc<Asker>>,
        // Its place among the turns that have made calls and wait.
        listing: Option<Listing>,
        // Its span, if it is traced.
        span: Option<Box<Span>>,
        #[pin]
        future: Contained<F>,
        // In the thread's hands during every poll, so that calls made by the method know who makes
        // them. Dropped after the future, which may have a lock: it may hold a worker, which the
        // next call then has.
        context: Option<TurnContext>,
        method: PhantomData<fn() -> M>,
    }

    impl<M, F> PinnedDrop for TypedTurn<M, F> {
        fn drop(this: Pin<&mut Self>) {
            // Its context goes with its end. What is dropped here half way leaves its grain so.
            if let Some(context) = this.project().context.as_ref().filter(|c| c.has_begun()) {
                context.break_activation("a turn was dropped half way");
            }
        }
    }
}

/// Makes a turn of the generated code's future.
pub fn boxed<M, F>(context: TurnContext, future: F) -> BoxTurn
where
    M: Method,
    F: Future<Output = TurnOutcome<M>> + Send + 'static,
{
    let span = context.span(M::Interface::NAME, M::NAME);
    Box::pin(TypedTurn::<M, F> {
        suspended: false,
        held: None,
        asker: None,
        listing: None,
        span,
        future: contained(future),
        context: Some(context),
        method: PhantomData,
    })
}

impl<M, F> Turn for TypedTurn<M, F>
where
    M: Method,
    F: Future<Output = TurnOutcome<M>> + Send,
{
    fn poll_turn(self: Pin<&mut Self>, cx: &mut Context<'_>, sink: &mut Sink<'_>) -> Poll<TurnEnd> {
        let this = self.project();
        let outer = loop {
            let Some(context) = this.context.as_ref() else { break Outer::default() };
            if let Some(outer) = context.poll_begins(*this.suspended) {
                break outer;
            }
            ready!(this.held.get_or_insert_with(|| context.reopened()).as_mut().poll(cx));
            *this.held = None;
        };
        if *this.suspended {
            *this.suspended = false;
            *this.held = None;
            this.context.as_ref().inspect(|context| context.note_suspended(false));
        }
        // A panic unwinds through the method's own values, and through the lock, which breaks the
        // activation before it is given back: nobody observes a broken one.
        let span = this.span.as_deref();
        let run = || {
            let _in_span = span.map(trace::enter);
            this.future.poll(cx)
        };
        let polled = match this.asker {
            None => TurnContext::scope(this.context, run),
            Some(asker) => TurnContext::scope_asked(this.context, asker, run),
        };
        this.context.as_ref().inspect(|context| context.poll_ends(outer));
        let (end, ended) = match polled {
            Poll::Pending => match suspend(this.context, this.asker.as_ref(), this.listing) {
                Some(doomed) => (doomed, Ended::Failed),
                None => {
                    *this.suspended = this.context.as_ref().is_some_and(TurnContext::has_begun);
                    return Poll::Pending;
                }
            },
            Poll::Ready(Ok(TurnOutcome::Done(output))) => {
                let own = if M::is_error(&output) { Ended::OwnError } else { Ended::Done };
                match deliver::<M>(output, sink) {
                    unencodable @ TurnEnd::Unencodable(_) => (unencodable, Ended::Failed),
                    end => (end, own),
                }
            }
            Poll::Ready(Ok(TurnOutcome::Closed(args, closed))) => {
                closed_end::<M>(args, closed, sink)
            }
            Poll::Ready(Ok(TurnOutcome::Refused(why))) => (TurnEnd::Refused(why), Ended::Failed),
            Poll::Ready(Err(text)) => {
                if let Some(context) = this.context {
                    context.break_activation(&text);
                }
                (TurnEnd::Panicked(text), Ended::Failed)
            }
        };
        if let Some(context) = this.context.take() {
            context.note_end(ended);
        }
        if let Some(span) = this.span.take() {
            end_span(&span, ended, &end);
        }
        Poll::Ready(end)
    }

    fn progress(&self) -> Progress {
        match &self.context {
            Some(context) if context.has_begun() => Progress::Running,
            _ => Progress::Waiting,
        }
    }

    fn set_driven(self: Pin<&mut Self>) {
        if let Some(context) = self.project().context {
            context.set_driven();
        }
    }

    fn has_caller(&self) -> bool {
        self.context.as_ref().is_some_and(TurnContext::has_caller)
    }

    fn asked_by(self: Pin<&mut Self>, asker: Arc<Asker>) {
        let this = self.project();
        if let Some(listing) = this.listing {
            listing.asked_by(asker.clone());
        }
        *this.asker = Some(asker);
    }

    fn settle(self: Pin<&mut Self>, now: u64) -> u64 {
        let now = CoarseInstant::from_millis(now);
        self.project()
            .context
            .as_mut()
            .map_or(CoarseInstant::LAST, |context| context.settle(now))
            .as_millis()
    }
}

/// A turn suspends, unless it was found to wait for itself. One that has made a call is listed with
/// those that wait.
pub(super) fn suspend(
    context: &mut Option<TurnContext>,
    asker: Option<&Arc<Asker>>,
    listing: &mut Option<Listing>,
) -> Option<TurnEnd> {
    let turn = context.as_mut()?;
    if let Some(circle) = turn.take_doom() {
        return Some(TurnEnd::Deadlock(circle));
    }
    if turn.has_begun() {
        turn.note_suspended(true);
    }
    if turn.has_called() && listing.is_none() {
        *listing = turn.list(asker);
    }
    None
}

/// Ends the span of a turn with the words of its end.
#[cold]
fn end_span(span: &Span, ended: Ended, end: &TurnEnd) {
    match end {
        TurnEnd::Done if ended == Ended::OwnError => {
            trace::failed(span, &"the method returned its own error");
        }
        TurnEnd::Done => {}
        TurnEnd::Closed(_) => trace::failed(span, &"the activation was closed first"),
        TurnEnd::ActivationFailed(why)
        | TurnEnd::Panicked(why)
        | TurnEnd::Unencodable(why)
        | TurnEnd::Deadlock(why)
        | TurnEnd::Refused(why) => trace::failed(span, why),
    }
}

/// Gives the arguments back to a local caller.
#[cold]
fn closed_end<M: Method>(args: M, closed: Closed, sink: &mut Sink<'_>) -> (TurnEnd, Ended) {
    match sink {
        Sink::Local(slot) => {
            if let Some(slot) = slot.downcast_mut::<LocalSlot<M>>() {
                slot.args = Some(args);
            }
        }
        Sink::Wire(_) | Sink::Discard => let_go(args),
    }
    match closed {
        Closed::Gone => (TurnEnd::Closed(None), Ended::Closed),
        Closed::Elsewhere(silo) => (TurnEnd::Closed(Some(silo)), Ended::Closed),
        Closed::Failed(why) => (TurnEnd::ActivationFailed(why), Ended::Failed),
    }
}

/// Hands the output to the caller, or encodes it behind what the response already holds.
pub(super) fn deliver<M: Method>(output: M::Output, sink: &mut Sink<'_>) -> TurnEnd {
    match sink {
        Sink::Local(slot) => {
            if let Some(slot) = slot.downcast_mut::<LocalSlot<M>>() {
                slot.output = Some(output);
            }
            TurnEnd::Done
        }
        Sink::Wire(out) => {
            let end = match contain(|| codec::encode_into(out, &output)) {
                Ok(Ok(())) => TurnEnd::Done,
                Ok(Err(e)) => TurnEnd::Unencodable(e.to_string()),
                Err(panic) => TurnEnd::Unencodable(format!("a panic: {panic}")),
            };
            // The turn is over and its answer stands, whatever its `Drop` does.
            let_go(output);
            end
        }
        Sink::Discard => {
            let_go(output);
            TurnEnd::Done
        }
    }
}

/// How the wait for a turn's beginning ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// The turn is over already.
    Over(TurnEnd),
    /// The turn has begun and suspends: it must be driven to its end.
    Running,
    /// The deadline passed first. Dropping the turn gives it up without effect.
    Overdue,
    /// The silo ended first: nobody calls those who wait any more. Dropping the turn gives it up
    /// without effect.
    Ended,
}

/// Polls a turn that may still be waiting for admission. Whoever makes it wait (the activation's
/// queue, the fence) wakes it when its deadline has passed.
pub(crate) fn poll_begun(
    turn: &mut BoxTurn,
    clock: &Clock,
    cx: &mut Context<'_>,
    sink: &mut Sink<'_>,
) -> Poll<Begun> {
    match turn.as_mut().poll_turn(cx, sink) {
        Poll::Ready(end) => Poll::Ready(Begun::Over(end)),
        Poll::Pending => standing(turn, clock),
    }
}

/// Where a turn stands after a poll that was pending.
pub(crate) fn standing(turn: &mut BoxTurn, clock: &Clock) -> Poll<Begun> {
    if turn.progress() == Progress::Running {
        return Poll::Ready(Begun::Running);
    }
    let now = clock.now().as_millis();
    if turn.as_mut().settle(now) <= now { Poll::Ready(Begun::Overdue) } else { Poll::Pending }
}

/// Drives a turn while it waits for admission.
pub(crate) async fn until_begun(turn: &mut BoxTurn, clock: &Clock, sink: &mut Sink<'_>) -> Begun {
    std::future::poll_fn(|cx| poll_begun(turn, clock, cx, sink)).await
}

/// Drives a turn to its end in a task of its own.
///
/// # Errors
/// [`Shut`] when the silo ended first. The turn is dropped half way.
pub(crate) async fn run_to_end(
    mut turn: BoxTurn,
    fence: &Fence,
    sink: &mut Sink<'_>,
) -> Result<TurnEnd, Shut> {
    fence.unless_shut(std::future::poll_fn(|cx| turn.as_mut().poll_turn(cx, sink))).await
}
