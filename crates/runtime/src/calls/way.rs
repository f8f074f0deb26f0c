//! A call on its way: it runs the turn itself where it can.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use emmer_net::transport::{Correlation, KEPT_BODY_BYTES_MAX};
use emmer_store::BoxFuture;
use tokio::task::coop;
use tracing::Span;

use crate::calls::invoke::Finished;
use crate::calls::outset::{Caller, LocalTurn, Step, after_wait, set_out};
use crate::calls::path::Met;
use crate::calls::remote::{self};
use crate::calls::travel::{finish_local, travel};
use crate::calls::{AnyCall, CallHead, Lane, Node, fated, filtered};
use crate::hosting::{Has, Slot, TurnContext};
use crate::trace;
use crate::turn::{Failure, contain};

/// A call on its way, whatever its method: arguments and output stay in a [`Slot`] that its owner
/// lends at every poll.
pub(crate) struct Way {
    state: State,
    /// True once its filters have passed it on.
    is_passed: bool,
}

enum State {
    New(Option<CallHead>),
    /// It has the span that it shall have, or none.
    Ready(Option<CallHead>),
    /// The grain is on this silo and busy.
    Waiting(LocalTurn),
    /// Sent to another process.
    Sent(Sent),
    /// Whatever needs more than that. It has what was in the slot.
    Slow(BoxFuture<'static, Finished>),
    Over,
}

impl Way {
    pub(crate) const fn new(head: CallHead) -> Self {
        Self { state: State::New(Some(head)), is_passed: false }
    }

    pub(crate) const fn passed(head: CallHead) -> Self {
        Self { state: State::New(Some(head)), is_passed: true }
    }

    pub(crate) const fn without_span(head: CallHead) -> Self {
        Self { state: State::Ready(Some(head)), is_passed: true }
    }

    /// Goes to its end, past its filters.
    fn go_on(call: AnyCall) -> BoxFuture<'static, Finished> {
        Box::pin(Self::passed(call.head).finish(call.slot))
    }

    /// Goes to its end with a slot of its own.
    pub(super) async fn finish(mut self, mut slot: Box<dyn Slot>) -> Finished {
        poll_fn(|cx| self.poll(&mut *slot, cx)).await.map(|()| slot)
    }

    /// Polls the call. After `Ok` the output is in the slot.
    pub(crate) fn poll(
        &mut self,
        slot: &mut dyn Slot,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Box<Failure>>> {
        let mut next = match &mut self.state {
            State::New(head) => {
                if is_counted() {
                    ready!(coop::poll_proceed(cx)).made_progress();
                }
                let Some(head) = head.take() else { return polled_after_its_end() };
                if head.target.0.is_filtered && !self.is_passed {
                    Next::slow(filtered::awaited(head.with_slot(slot), Self::go_on))
                } else {
                    let span = trace::of_call(TurnContext::is_in_turn, || {
                        trace::call("client", head.method.interface, head.method.name, &head.target)
                    });
                    match span {
                        None => Next::after(set_out(head, slot, cx), slot),
                        Some(span) => in_span(head.with_slot(slot), span),
                    }
                }
            }
            State::Ready(head) => match head.take() {
                Some(head) => Next::after(set_out(head, slot, cx), slot),
                None => return polled_after_its_end(),
            },
            State::Waiting(local) => match local.poll(slot, cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(begun) => match std::mem::replace(&mut self.state, State::Over) {
                    State::Waiting(local) => Next::after(after_wait(local, slot, begun), slot),
                    _ => return Poll::Pending,
                },
            },
            State::Sent(sent) => match sent.poll(slot, cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) => Next::Ready(sent.over(slot)),
                Poll::Ready(Err(met)) => match std::mem::replace(&mut self.state, State::Over) {
                    State::Sent(sent) => sent.again(slot, met),
                    _ => return Poll::Pending,
                },
            },
            State::Slow(_) => Next::Pending,
            State::Over => return polled_after_its_end(),
        };
        if let Next::State(state) = next {
            self.state = state;
            next = Next::Pending;
        }
        if let State::Slow(future) = &mut self.state
            && let Poll::Ready(finished) = future.as_mut().poll(cx)
        {
            next = Next::Ready(finished.map(|mut moved| slot.take(&mut *moved)));
        }
        match next {
            Next::Ready(finished) => {
                self.state = State::Over;
                Poll::Ready(finished.map_err(|failure| without_args(slot, failure)))
            }
            Next::Pending | Next::State(_) => Poll::Pending,
        }
    }
}

/// A call fails that may have its arguments still: its caller's task does not drop them.
#[cold]
fn without_args(slot: &mut dyn Slot, failure: Box<Failure>) -> Box<Failure> {
    match contain(|| slot.drop_args()) {
        Ok(()) => failure,
        Err(panic) => Box::new(failure.and_panicked(panic)),
    }
}

/// A fault of the caller, and nothing that a call could come to.
#[cold]
fn polled_after_its_end<T>() -> Poll<T> {
    debug_assert!(false, "a call was polled after its end");
    Poll::Pending
}

/// One call in so many counts on the task's budget: looking at it takes a tenth of a call. A power
/// of two.
const COUNTED_EVERY: u8 = 16;

thread_local! {
    static CALLS: Cell<u8> = const { Cell::new(0) };
}

/// Whether this call counts: a task that makes call after call and never has to wait lets others
/// run now and then.
#[inline]
fn is_counted() -> bool {
    let calls = CALLS.get().wrapping_add(1);
    CALLS.set(calls);
    calls.is_multiple_of(COUNTED_EVERY)
}

/// What a poll leads to.
enum Next {
    Ready(Result<(), Box<Failure>>),
    State(State),
    Pending,
}

impl Next {
    #[inline]
    fn after(step: Step, slot: &mut dyn Slot) -> Self {
        match step {
            Step::Over(finished) => Self::Ready(finished),
            step => Self::goes_on(step, slot),
        }
    }

    fn goes_on(step: Step, slot: &mut dyn Slot) -> Self {
        match step {
            Step::Over(finished) => Self::Ready(finished),
            Step::Waits(local) => Self::State(State::Waiting(local)),
            Step::Goes(local, begun) => Self::slow(finish_local(local, slot.boxed(), begun)),
            Step::Sent(head, caller, lane, correlation) => {
                let (call, correlation) = (Some((head, caller)), Some(correlation));
                Self::State(State::Sent(Sent { call, lane, correlation }))
            }
            Step::Travels(head, caller, met) => {
                Self::slow(travel(head.with_slot(slot), caller, met))
            }
            Step::Fated(head, caller, fate) => {
                Self::slow(fated::fated(head.with_slot(slot), caller, fate))
            }
        }
    }

    fn slow(future: impl Future<Output = Finished> + Send + 'static) -> Self {
        Self::State(State::Slow(Box::pin(future)))
    }
}

/// The call within its span.
#[cold]
fn in_span(call: AnyCall, span: Span) -> Next {
    let AnyCall { head, slot } = call;
    let own = span.clone();
    let traced = async move {
        let finished = Way::without_span(head).finish(slot).await;
        match &finished {
            Err(failure) => trace::failed(&own, &**failure),
            Ok(slot) if slot.has() == Has::OwnError => {
                trace::failed(&own, &"the method returned its own error");
            }
            Ok(_) => {}
        }
        finished
    };
    Next::slow(trace::within(span, traced))
}

/// A call on its way to another process. Dropping it gives the call up.
struct Sent {
    /// Kept, should it turn out that it did not run.
    call: Option<(CallHead, Caller)>,
    lane: Arc<Lane>,
    correlation: Option<Correlation>,
}

thread_local! {
    /// Where answers are decoded from: its room goes to the slot the answer came from, and that
    /// slot's comes here.
    static BODY: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl Sent {
    fn poll(&mut self, slot: &mut dyn Slot, cx: &mut Context<'_>) -> Poll<Result<(), Met>> {
        let Some(correlation) = self.correlation else { return polled_after_its_end() };
        let mut body = BODY.take();
        let Poll::Ready(answer) =
            self.lane.connection.poll_answer(correlation, cx.waker(), &mut body)
        else {
            BODY.set(body);
            return Poll::Pending;
        };
        self.correlation = None;
        let peer = self.lane.connection.silo();
        let node = self.call.as_ref().map_or(&Node::Nowhere, |(head, _)| &head.target.0.node);
        let read = match answer {
            Ok(answer) => remote::read_answer(node, peer, answer, &body, slot)
                .map_err(|failure| Met::Answered { peer, failure }),
            Err(why) => Err(Met::Lost { peer, why }),
        };
        body.clear();
        if body.capacity() <= KEPT_BODY_BYTES_MAX {
            BODY.set(body);
        }
        Poll::Ready(read.map(|location| {
            if let (Some(at), Some((head, _))) =
                (location.filter(|at| Some(*at) != peer), &self.call)
            {
                head.target.0.learn(at);
            }
        }))
    }

    /// The call has its output. Its arguments stayed here.
    fn over(&self, slot: &mut dyn Slot) -> Result<(), Box<Failure>> {
        contain(|| slot.drop_args()).map_err(|panic| match &self.call {
            Some((head, _)) => head.failed(Failure::panicked(panic)),
            None => Box::new(Failure::panicked(panic)),
        })
    }

    /// The call has no output: its path says what follows.
    #[cold]
    fn again(mut self, slot: &mut dyn Slot, met: Met) -> Next {
        match self.call.take() {
            Some((head, caller)) => Next::after(Step::Travels(head, caller, Some(met)), slot),
            None => Next::Pending,
        }
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        if let Some(correlation) = self.correlation {
            self.lane.connection.give_up(correlation);
        }
    }
}
