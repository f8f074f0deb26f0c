//! A call on its way. It runs the turn itself where it can.

use std::cell::Cell;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use emmer_net::transport::{Correlation, KEPT_BODY_BYTES_MAX};
use emmer_store::BoxFuture;
use tokio::task::coop;
use tracing::Span;

use crate::calls::invoke::Finished;
use crate::calls::outset::{Caller, LocalTurn, Step, after_wait, set_out};
use crate::calls::path::Met;
use crate::calls::remote;
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
    /// The call has its final span, or none.
    Ready(Option<CallHead>),
    /// The grain is on this silo and busy.
    Waiting(LocalTurn),
    /// Sent to another process.
    Sent(Sent),
    /// Slower work. It owns what was in the slot.
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

    /// Runs the call to its end, without its filters.
    fn go_on(call: AnyCall) -> BoxFuture<'static, Finished> {
        Box::pin(Self::passed(call.head).finish(call.slot))
    }

    /// Runs the call to its end with a slot of its own.
    pub(super) async fn finish(mut self, mut slot: Box<dyn Slot>) -> Finished {
        poll_fn(|cx| self.poll(&mut *slot, cx)).await.map(|()| slot)
    }

    /// Polls the call. After `Ok` the output is in the slot.
    pub(crate) fn poll(
        &mut self,
        slot: &mut dyn Slot,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Box<Failure>>> {
        match &mut self.state {
            State::New(head) => {
                if is_counted() {
                    ready!(coop::poll_proceed(cx)).made_progress();
                }
                // Taken out before anything runs: a call is never made twice.
                let Some(head) = head.take() else { return polled_after_its_end() };
                if head.target.0.is_filtered && !self.is_passed {
                    let filtered = filtered::awaited(head.with_slot(slot), Self::go_on);
                    return self.goes_slowly(Box::pin(filtered), slot, cx);
                }
                let span = trace::of_call(TurnContext::is_in_turn, || {
                    trace::call("client", head.method.interface, head.method.name, &head.target)
                });
                match span {
                    None => {
                        let step = set_out(&head, slot, cx);
                        self.after(step, head, slot, cx)
                    }
                    Some(span) => self.goes_slowly(in_span(head.with_slot(slot), span), slot, cx),
                }
            }
            State::Ready(head) => match head.take() {
                Some(head) => {
                    let step = set_out(&head, slot, cx);
                    self.after(step, head, slot, cx)
                }
                None => polled_after_its_end(),
            },
            State::Waiting(local) => {
                let begun = ready!(local.poll(slot, cx));
                match std::mem::replace(&mut self.state, State::Over) {
                    State::Waiting(LocalTurn { head, turn, caller }) => {
                        let step = after_wait(&head, turn, caller, slot, begun);
                        self.after(step, head, slot, cx)
                    }
                    _ => Poll::Pending,
                }
            }
            State::Sent(sent) => match ready!(sent.poll(slot, cx)) {
                Ok(()) => {
                    let finished = sent.over(slot);
                    self.state = State::Over;
                    over(finished, slot)
                }
                // The call has no output: its path says what follows.
                Err(met) => match sent.call.take() {
                    Some((head, caller)) => {
                        self.after(Step::Travels(caller, Some(met)), head, slot, cx)
                    }
                    None => Poll::Pending,
                },
            },
            State::Slow(_) => self.poll_slow(slot, cx),
            State::Over => polled_after_its_end(),
        }
    }

    /// Continues after a step. A finished call has already left its state.
    #[inline(always)]
    fn after(
        &mut self,
        step: Step,
        head: CallHead,
        slot: &mut dyn Slot,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Box<Failure>>> {
        match step {
            Step::Over(finished) => over(finished, slot),
            step => self.goes_on(step, head, slot, cx),
        }
    }

    #[inline(never)]
    fn goes_on(
        &mut self,
        step: Step,
        head: CallHead,
        slot: &mut dyn Slot,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Box<Failure>>> {
        let future: BoxFuture<'static, Finished> = match step {
            Step::Over(finished) => return over(finished, slot),
            Step::Waits(turn, caller) => {
                self.state = State::Waiting(LocalTurn { head, turn, caller });
                return Poll::Pending;
            }
            Step::Sent(caller, lane, correlation) => {
                let (call, correlation) = (Some((head, caller)), Some(correlation));
                self.state = State::Sent(Sent { call, lane, correlation });
                return Poll::Pending;
            }
            Step::Goes(turn, caller, begun) => {
                let local = LocalTurn { head, turn, caller };
                Box::pin(finish_local(local, slot.boxed(), begun))
            }
            Step::Travels(caller, met) => Box::pin(travel(head.with_slot(slot), caller, met)),
            Step::Fated(caller, fate) => Box::pin(fated::fated(head.with_slot(slot), caller, fate)),
        };
        self.goes_slowly(future, slot, cx)
    }

    /// Continues as a boxed future, which owns the arguments.
    fn goes_slowly(
        &mut self,
        future: BoxFuture<'static, Finished>,
        slot: &mut dyn Slot,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Box<Failure>>> {
        self.state = State::Slow(future);
        self.poll_slow(slot, cx)
    }

    fn poll_slow(
        &mut self,
        slot: &mut dyn Slot,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Box<Failure>>> {
        let State::Slow(future) = &mut self.state else { return Poll::Pending };
        let finished = ready!(future.as_mut().poll(cx)).map(|mut moved| slot.take(&mut *moved));
        self.state = State::Over;
        over(finished, slot)
    }
}

/// The call is over.
#[inline]
fn over(finished: Result<(), Box<Failure>>, slot: &mut dyn Slot) -> Poll<Result<(), Box<Failure>>> {
    Poll::Ready(finished.map_err(|failure| without_args(slot, failure)))
}

/// Fails a call that may still have its arguments. The caller's task does not drop them.
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

/// One in this many calls counts on the task's budget: a look at the budget takes a tenth of a
/// call. A power of two.
const COUNTED_EVERY: u8 = 16;

thread_local! {
    static CALLS: Cell<u8> = const { Cell::new(0) };
}

/// Returns true if this call counts: a task that makes call after call and never has to wait lets
/// others run now and then.
#[inline]
fn is_counted() -> bool {
    let calls = CALLS.get().wrapping_add(1);
    CALLS.set(calls);
    calls.is_multiple_of(COUNTED_EVERY)
}

/// The call within its span.
#[cold]
fn in_span(call: AnyCall, span: Span) -> BoxFuture<'static, Finished> {
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
    Box::pin(trace::within(span, traced))
}

/// A call on its way to another process. Dropping it gives the call up.
struct Sent {
    /// Kept, should it turn out that it did not run.
    call: Option<(CallHead, Caller)>,
    lane: Arc<Lane>,
    correlation: Option<Correlation>,
}

thread_local! {
    /// Buffer that answers are decoded from. It changes places with the buffer of the slot.
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
            let at = if self.lane.placed { location.or(peer) } else { location };
            let is_news = self.lane.placed || at != peer;
            if let (Some(at), Some((head, _))) = (at.filter(|_| is_news), &self.call) {
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
}

impl Drop for Sent {
    fn drop(&mut self) {
        if let Some(correlation) = self.correlation {
            self.lane.connection.give_up(correlation);
        }
    }
}
