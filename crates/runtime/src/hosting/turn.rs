//! One call being executed: a turn.
//!
//! A turn is a future over the activation. It first waits for admission (the activation's lock:
//! `&mut self` alone, `&self` together) and then runs the method. The task that brought the call
//! polls it: the caller's own task, or the connection's read loop. It moves to a task of its own
//! only when it has begun and suspends. So a call to an idle grain costs no task, no channel and no
//! hand-over.
//!
//! A turn that has begun and suspends is polled again only while the silo's fence is open. A turn
//! whose fence is shut for good is dropped.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use emmer_net::clock::{Clock, CoarseInstant};
use emmer_net::warn_seldom;
use emmer_store::BoxFuture;
use pin_project_lite::pin_project;
use tracing::Span;

use super::Host;
use super::context::TurnContext;
use super::ends::{TurnEnd, TurnOutcome};
use super::slot::{Sink, Slot};
use crate::cluster::Shut;
use crate::metrics::{Ended, Outer};
use crate::trace;
use crate::turn::{Asker, contain, let_go_by};
use crate::waits::Listing;

/// State of a turn after a poll that was pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Waiting for admission: dropping the turn now cancels the call without effect.
    Waiting,
    /// The method (or the activation before it) has begun: the turn must be polled to its end.
    Running,
}

/// The grain's own code in a turn. It alone knows the types of its method: all that runs a turn is
/// compiled once.
pub trait Work: Send {
    /// Polls the method. A panic is the grain's; the poll that ends the future drops it.
    fn poll_work(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<TurnOutcome>;

    /// The slot with the turn's output after its end, or with its arguments when it did not run.
    fn slot(self: Pin<&mut Self>) -> Option<&mut dyn Slot>;

    /// Drops whatever is left. May panic, once.
    fn clear(self: Pin<&mut Self>);
}

/// A turn in a box: the one allocation of a call.
pub type BoxTurn = Pin<Box<Turn>>;

pin_project! {
    /// A turn: the grain's own code, and all that runs it.
    pub struct Turn<W = dyn Work>
    where
        W: Work,
        W: ?Sized,
    {
        // It holds the grain and waits for something else.
        suspended: bool,
        // The wait for the fence, of a turn that was to continue and found it closed.
        held: Option<BoxFuture<'static, ()>>,
        // True if the turn that made the call still waits, where it may have stopped.
        asker: Option<Arc<Asker>>,
        // Its place among the turns that have made calls and wait.
        listing: Option<Listing>,
        // Its span, if it is traced.
        span: Option<Box<Span>>,
        // In the thread's hands during every poll, so that calls made by the method know who makes
        // them. Dropped after the work, which may have a lock: it may hold a worker, which the next
        // call then has.
        context: Option<TurnContext>,
        #[pin]
        work: W,
    }

    impl<W> PinnedDrop for Turn<W>
    where
        W: Work,
        W: ?Sized,
    {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            // Its context goes with its end.
            if let Some(context) = this.context
                && let Err(words) = end_half_way(context, &mut || this.work.as_mut().clear())
            {
                warn_seldom!(panic = words, "a grain's code panicked while it was dropped");
            }
        }
    }
}

/// Lets a turn go that has not ended: it leaves its grain half way.
///
/// # Errors
/// The words of a panic of its own code.
fn end_half_way(context: &TurnContext, clear: &mut dyn FnMut()) -> Result<(), String> {
    if context.has_begun() {
        context.break_activation("a turn was dropped half way");
    }
    contain(clear)
}

/// Makes a turn of `work`.
#[inline]
pub(crate) fn turn<W: Work + 'static>(
    context: TurnContext,
    span: Option<Box<Span>>,
    work: W,
) -> BoxTurn {
    Box::pin(Turn {
        suspended: false,
        held: None,
        asker: None,
        listing: None,
        span,
        context: Some(context),
        work,
    })
}

impl Turn {
    /// Drives the turn; its result goes to `sink` in the poll that ends it.
    pub(crate) fn poll_turn(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        sink: &mut Sink<'_>,
    ) -> Poll<TurnEnd> {
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
        // activation before it is given back: no turn sees a broken one.
        let span = this.span.as_deref();
        let mut work = this.work;
        let run = || {
            let _in_span = span.map(trace::enter);
            contain(|| work.as_mut().poll_work(cx))
        };
        let polled = match this.asker {
            None => TurnContext::scope(this.context, run),
            Some(asker) => TurnContext::scope_asked(this.context, asker, run),
        };
        this.context.as_ref().inspect(|context| context.poll_ends(outer));
        let (end, ended) = match polled {
            Ok(Poll::Pending) => match suspend(this.context, this.asker.as_ref(), this.listing) {
                Some(doomed) => {
                    let_go_by(&mut || work.as_mut().clear());
                    (doomed, Ended::Failed)
                }
                None => {
                    *this.suspended = this.context.as_ref().is_some_and(TurnContext::has_begun);
                    return Poll::Pending;
                }
            },
            Ok(Poll::Ready(outcome)) => match (outcome, work.slot()) {
                (TurnOutcome::Done { is_error }, Some(slot)) => sink.deliver(slot, is_error),
                (TurnOutcome::Done { .. }, None) => (TurnEnd::Closed(None), Ended::Closed),
                (TurnOutcome::Closed(closed), slot) => {
                    if let Some(slot) = slot {
                        sink.give_back(slot);
                    }
                    closed.into_end()
                }
                (TurnOutcome::Refused(why), _) => (TurnEnd::Refused(why), Ended::Failed),
            },
            Err(text) => {
                // Once for the rest of the future, and once for an outcome behind it.
                let _ = contain(|| work.as_mut().clear());
                let _ = contain(|| work.as_mut().clear());
                if let Some(context) = this.context {
                    context.break_activation(&text);
                }
                (TurnEnd::Panicked(text), Ended::Failed)
            }
        };
        if let Some(context) = this.context.take() {
            if ended == Ended::Failed {
                context.note_failure(&end);
            }
            context.note_end(ended);
        }
        if let Some(span) = this.span.take() {
            end_span(&span, ended, &end);
        }
        Poll::Ready(end)
    }

    /// Lets go of a turn that shall not begin.
    ///
    /// # Errors
    /// The words of an argument's panic.
    #[cold]
    pub(crate) fn give_up(self: Pin<&mut Self>) -> Result<(), String> {
        let mut this = self.project();
        match this.context.take() {
            Some(context) => end_half_way(&context, &mut || this.work.as_mut().clear()),
            None => Ok(()),
        }
    }

    /// Ends a turn that an operator has dropped: it leaves its grain half way.
    #[cold]
    fn end_dropped(self: Pin<&mut Self>, words: String) -> TurnEnd {
        let mut this = self.project();
        let_go_by(&mut || this.work.as_mut().clear());
        let end = TurnEnd::Dropped(words);
        if let Some(context) = this.context.take() {
            if context.has_begun() {
                context.break_activation("an operator had a turn dropped");
            }
            context.note_failure(&end);
            context.note_end(Ended::Failed);
        }
        if let Some(span) = this.span.take() {
            end_span(&span, Ended::Failed, &end);
        }
        end
    }

    /// State of the turn.
    pub(crate) fn progress(&self) -> Progress {
        match &self.context {
            Some(context) if context.has_begun() => Progress::Running,
            _ => Progress::Waiting,
        }
    }

    /// Returns true if later calls find the activation: it is registered, or a worker. A turn that
    /// was polled and waits is then in the queue of its grain.
    pub(crate) fn is_settled(&self) -> bool {
        self.context.as_ref().is_some_and(TurnContext::is_settled)
    }

    /// Says that a task of the runtime polls the turn, as soon as it waits.
    pub(crate) fn set_driven(self: Pin<&mut Self>) {
        if let Some(context) = self.project().context {
            context.set_driven();
        }
    }

    /// Returns true if a turn made the call.
    pub(crate) fn has_caller(&self) -> bool {
        self.context.as_ref().is_some_and(TurnContext::has_caller)
    }

    /// Says how to know whether that turn still waits.
    pub(crate) fn asked_by(self: Pin<&mut Self>, asker: Arc<Asker>) {
        let this = self.project();
        if let Some(listing) = this.listing {
            listing.asked_by(asker.clone());
        }
        *this.asker = Some(asker);
    }

    /// The turn's deadline in milliseconds of the silo's clock; one that was given as a span counts
    /// from `now`, once and for all.
    pub(crate) fn settle(self: Pin<&mut Self>, now: u64) -> u64 {
        let now = CoarseInstant::from_millis(now);
        self.project()
            .context
            .as_mut()
            .map_or(CoarseInstant::LAST, |context| context.settle(now))
            .as_millis()
    }
}

/// A turn suspends, unless it waits for itself. A turn that has made a call is listed with those
/// that wait.
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
        | TurnEnd::Dropped(why)
        | TurnEnd::Refused(why) => trace::failed(span, why),
    }
}

/// End of the wait for a turn's beginning.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// The turn is over already.
    Over(TurnEnd),
    /// The turn has begun and suspends: it must be driven to its end.
    Running,
    /// The deadline passed first. Dropping the turn gives it up without effect.
    Overdue,
    /// The silo ended first: its waiters are no longer called. Dropping the turn gives it up
    /// without effect.
    Ended,
}

/// Polls a turn that may still be waiting for admission. The queue or the fence wakes it when its
/// deadline has passed.
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

/// State of a turn after a poll that was pending.
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

/// Drives a turn to its end in a task of its own. Runs `settled`, once, as soon as the turn
/// [is settled](Turn::is_settled).
///
/// # Errors
/// [`Shut`] when the silo ended first. The turn is dropped half way.
pub(crate) async fn run_to_end(
    mut turn: BoxTurn,
    host: &Host,
    sink: &mut Sink<'_>,
    mut settled: Option<&mut (dyn FnMut() + Send)>,
) -> Result<TurnEnd, Shut> {
    let mut note = |turn: &BoxTurn| {
        if settled.is_some()
            && turn.is_settled()
            && let Some(settled) = settled.take()
        {
            settled();
        }
    };
    note(&turn);
    // None if it has ended, or is no turn of a grain.
    let listed = turn.context.as_ref().and_then(|context| context.list_standing(host));
    let end = std::future::poll_fn(|cx| {
        let mut poll = |cx: &mut Context<'_>| {
            let polled = turn.as_mut().poll_turn(cx, sink);
            note(&turn);
            polled
        };
        match &listed {
            Some(listed) => listed.poll(cx, poll),
            None => poll(cx).map(Ok),
        }
    });
    let end = host.fence.unless_shut(end).await?;
    Ok(end.unwrap_or_else(|words| turn.as_mut().end_dropped(words)))
}
