//! A call on its way: it runs the turn itself where it can.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use emmer_store::BoxFuture;
use tokio::task::coop;
use tracing::Span;

use crate::calls::invoke::{self, Caller, Finished, LocalTurn};
use crate::calls::path::Met;
use crate::calls::remote::{self, no_output};
use crate::calls::travel::{finish_local, travel};
use crate::calls::{AnyCall, CallHead, Found, Lane, Node, Place, fated, filtered};
use crate::hosting::{Begun, Has, Held, Sink, Slot, StartError, TurnContext, TurnEnd};
use crate::trace;
use crate::turn::{Failure, contain};
use emmer_net::transport::{Correlation, KEPT_BODY_BYTES_MAX, SendError};
use emmer_net::world::Spawner;

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
                        None => first_poll(head, slot, cx),
                        Some(span) => in_span(head.with_slot(slot), span),
                    }
                }
            }
            State::Ready(head) => match head.take() {
                Some(head) => first_poll(head, slot, cx),
                None => return polled_after_its_end(),
            },
            State::Waiting(local) => match local.poll(slot, cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(begun) => match std::mem::replace(&mut self.state, State::Over) {
                    State::Waiting(local) => after_wait(local, slot, begun),
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
    /// The call of `target` has failed.
    #[cold]
    fn failed(failure: Failure, head: &CallHead) -> Self {
        Self::Ready(Err(head.failed(failure)))
    }

    fn slow(future: impl Future<Output = Finished> + Send + 'static) -> Self {
        Self::State(State::Slow(Box::pin(future)))
    }

    fn travel(call: AnyCall, caller: Caller, met: Option<Met>) -> Self {
        Self::slow(travel(call, caller, met))
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

/// The hot paths: the grain is on this silo and idle, so its turn runs here and now, on the
/// caller's task; or it is behind a connection that is there, so the call is written into its
/// buffer.
fn first_poll(head: CallHead, slot: &mut dyn Slot, cx: &mut Context<'_>) -> Next {
    let checked = TurnContext::caller()
        .map_err(|chain| invoke::too_deep(&head, &chain))
        .and_then(|(chain, inherited)| Caller::check(&head, chain, inherited));
    let caller = match checked {
        Ok(caller) => caller,
        Err(failure) => return Next::failed(failure, &head),
    };
    if let Some(fate) = fated::fate(&head) {
        return Next::slow(fated::fated(head.with_slot(slot), caller, fate));
    }
    let target = &*head.target.0;
    let met = match &target.node {
        Node::Silo(silo) => match target.route(0) {
            Found::Here(activation) => return run_here(head, slot, caller, activation, cx),
            Found::There(lane) if head.cancel.is_none() => {
                return send(head, slot, caller, lane, cx);
            }
            Found::There(_) => None,
            Found::Nothing => match silo.host.catalog.get(&target.id) {
                Some(activation) => {
                    target.note_here(&activation);
                    return run_here(head, slot, caller, activation, cx);
                }
                None => match silo.place_now(caller.seeks(head.method, target)) {
                    Some(Ok(Place::Here(activation))) => {
                        target.note_here(&activation);
                        return run_here(head, slot, caller, activation, cx);
                    }
                    Some(Ok(Place::There { peer, .. })) => Some(Met::Placed(peer)),
                    // Nobody is asked again for what placement has refused.
                    Some(Err(failure)) => Some(Met::NotFound(failure)),
                    None => None,
                },
            },
        },
        Node::Client(client) => match target.route(client.generation()) {
            Found::There(lane) if head.cancel.is_none() => {
                return send(head, slot, caller, lane, cx);
            }
            _ => None,
        },
        Node::Nowhere => return Next::failed(invoke::unbound(&head.target), &head),
    };
    Next::travel(head.with_slot(slot), caller, met)
}

fn run_here(
    head: CallHead,
    slot: &mut dyn Slot,
    caller: Caller,
    activation: Held,
    cx: &mut Context<'_>,
) -> Next {
    let Some(_depth) = invoke::InlineDepth::enter() else {
        return Next::travel(head.with_slot(slot), caller, None);
    };
    if let Some(ran) = caller.run_instant(head.method, &activation, slot) {
        return match ran {
            Ok(()) => Next::Ready(Ok(())),
            Err(failure) => Next::failed(failure, &head),
        };
    }
    if !head.target.0.node.spawner().is_some_and(Spawner::is_here) {
        return Next::travel(head.with_slot(slot), caller, None);
    }
    let mut turn = match caller.start(head.method, activation, slot) {
        Ok(turn) => turn,
        Err(StartError::NoSuchMethod) => {
            return Next::travel(head.with_slot(slot), caller, Some(Met::Closed(None)));
        }
        Err(why) => return Next::failed(why.into_failure(), &head),
    };
    match turn.as_mut().poll_turn(cx, &mut Sink::Local(&mut *slot)) {
        Poll::Ready(TurnEnd::Done) => Next::Ready(Ok(())),
        Poll::Ready(end) => after_wait(LocalTurn { head, turn, caller }, slot, Begun::Over(end)),
        Poll::Pending => after_first_poll(LocalTurn { head, turn, caller }, slot),
    }
}

/// The turn was not over at once.
fn after_first_poll(mut local: LocalTurn, slot: &mut dyn Slot) -> Next {
    match local.standing() {
        Poll::Ready(begun) => after_wait(local, slot, begun),
        Poll::Pending if local.head.cancel.is_some() => {
            Next::slow(finish_local(local, slot.boxed(), false))
        }
        Poll::Pending => Next::State(State::Waiting(local)),
    }
}

/// The turn is over, has begun, or is too late.
fn after_wait(local: LocalTurn, slot: &mut dyn Slot, begun: Begun) -> Next {
    match begun {
        Begun::Over(TurnEnd::Done) => Next::Ready(Ok(())),
        Begun::Over(TurnEnd::Closed(elsewhere)) => {
            let LocalTurn { head, caller, .. } = local;
            if slot.has() != Has::Args {
                return Next::failed(no_output(head.method), &head);
            }
            Next::travel(head.with_slot(slot), caller, Some(Met::Closed(elsewhere)))
        }
        Begun::Over(end) => Next::failed(invoke::failure_of(end), &local.head),
        Begun::Running => Next::slow(finish_local(local, slot.boxed(), true)),
        Begun::Overdue => given_up(local, invoke::overdue()),
        Begun::Ended => given_up(local, Failure::shutting_down()),
    }
}

#[cold]
fn given_up(local: LocalTurn, failure: Failure) -> Next {
    Next::failed(invoke::given_up(local.turn, failure), &local.head)
}

/// Writes the call into the connection's buffer. A connection that has ended is no failure: the
/// grain is looked for anew.
fn send(
    head: CallHead,
    slot: &mut dyn Slot,
    caller: Caller,
    lane: Arc<Lane>,
    cx: &mut Context<'_>,
) -> Next {
    let target = &*head.target.0;
    let (now, view) = (target.node.clock().now(), target.node.view_version());
    let deadline = caller.due.settle(now);
    let request = caller.head(head.method, target, now, view);
    match lane.connection.begin(cx.waker(), request, deadline, |out| slot.encode_args(out)) {
        Ok(correlation) => {
            let (call, correlation) = (Some((head, caller)), Some(correlation));
            Next::State(State::Sent(Sent { call, lane, correlation }))
        }
        Err(SendError::Lost(why)) => {
            let met =
                Met::Unsent { peer: lane.connection.silo(), placed: false, why: why.to_string() };
            Next::travel(head.with_slot(slot), caller, Some(met))
        }
        Err(error) => {
            if let (Node::Silo(silo), SendError::Full(_) | SendError::Overloaded(_)) =
                (&target.node, &error)
            {
                silo.host.metrics.refused();
            }
            Next::failed(invoke::send_failure(lane.connection.silo(), error), &head)
        }
    }
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
            Some((head, caller)) => Next::travel(head.with_slot(slot), caller, Some(met)),
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
