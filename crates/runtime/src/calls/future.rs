//! A call on its way: a future that runs the turn itself where it can.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use emmer_wire::codec;
use tokio::task::coop;
use tracing::Span;

use crate::calls::Place;
use crate::calls::filtered;
use crate::calls::invoke::{self, Caller, Finished, LocalTurn};
use crate::calls::path::Met;
use crate::calls::remote::{self, no_output};
use crate::calls::travel::travel;
use crate::grain::{
    Aim, Call, CallError, Failure, Found, Interface, Lane, Method, Node, TurnContext,
};
use crate::hosting::{Begun, LocalSlot, RunActivation, Sink, StartError, TurnEnd};
use crate::net::{Correlation, KEPT_BODY_BYTES_MAX, SendError};
use crate::trace;
use crate::world::Spawner;

/// A call being made. Dropping it cancels a call that has not begun.
#[must_use = "futures do nothing unless polled"]
pub struct CallFuture<M: Method> {
    state: State<M>,
    /// True once its filters have passed it on.
    is_passed: bool,
}

impl<M: Method> CallFuture<M> {
    pub(crate) const fn new(call: Call<M>) -> Self {
        Self { state: State::New(Some(call)), is_passed: false }
    }

    /// The call, after its filters.
    pub(crate) const fn passed(call: Call<M>) -> Self {
        Self { state: State::New(Some(call)), is_passed: true }
    }

    /// The call without filters and without a span of its own: it begins no trace.
    pub(crate) const fn without_span(call: Call<M>) -> Self {
        Self { state: State::Ready(Some(call)), is_passed: true }
    }
}

type Boxed<M> = Pin<Box<dyn Future<Output = Finished<M>> + Send>>;

enum State<M: Method> {
    New(Option<Call<M>>),
    /// It has the span that it shall have, or none.
    Ready(Option<Call<M>>),
    /// The grain is on this silo and busy.
    Waiting(LocalTurn<M>),
    /// Sent to another process.
    Sent(Sent<M>),
    /// Whatever needs more than that.
    Slow(Boxed<M>),
    Over,
}

// No field is ever pinned in place: turns and futures are pinned in their boxes.
impl<M: Method> Unpin for CallFuture<M> {}

impl<M: Method> Future for CallFuture<M> {
    type Output = Result<M::Ok, CallError<M::Err>>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_finished(cx).map(|finished| match finished {
            Ok(output) => M::split(output).map_err(CallError::App),
            Err(failure) => Err(failure.into_call_error()),
        })
    }
}

impl<M: Method> CallFuture<M> {
    #[inline]
    pub(super) fn poll_finished(&mut self, cx: &mut Context<'_>) -> Poll<Finished<M>> {
        let mut next = match &mut self.state {
            State::New(call) => {
                if is_counted() {
                    ready!(coop::poll_proceed(cx)).made_progress();
                }
                let Some(call) = call.take() else { return polled_after_its_end() };
                if call.target.0.is_filtered && !self.is_passed {
                    through_filters(call)
                } else {
                    let span = trace::of_call(TurnContext::is_in_turn, || {
                        trace::call("client", M::Interface::NAME, M::NAME, &call.target)
                    });
                    match span {
                        None => first_poll(call, cx),
                        Some(span) => in_span(call, span),
                    }
                }
            }
            State::Ready(call) => match call.take() {
                Some(call) => first_poll(call, cx),
                None => return polled_after_its_end(),
            },
            State::Waiting(local) => match local.poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(begun) => match std::mem::replace(&mut self.state, State::Over) {
                    State::Waiting(local) => after_wait(local, begun),
                    _ => return Poll::Pending,
                },
            },
            State::Sent(sent) => match sent.poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(output)) => Next::Ready(Ok(output)),
                Poll::Ready(Err(met)) => match std::mem::replace(&mut self.state, State::Over) {
                    State::Sent(sent) => sent.again(met),
                    _ => return Poll::Pending,
                },
            },
            State::Slow(future) => match future.as_mut().poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(finished) => Next::Ready(finished),
            },
            State::Over => return polled_after_its_end(),
        };
        if let Next::State(State::Slow(future)) = &mut next
            && let Poll::Ready(finished) = future.as_mut().poll(cx)
        {
            next = Next::Ready(finished);
        }
        match next {
            Next::Ready(finished) => {
                self.state = State::Over;
                Poll::Ready(finished)
            }
            Next::State(state) => {
                self.state = state;
                Poll::Pending
            }
        }
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
enum Next<M: Method> {
    Ready(Finished<M>),
    State(State<M>),
}

impl<M: Method> Next<M> {
    /// The call of `target` has failed.
    #[cold]
    fn failed(failure: Failure, target: &Aim) -> Self {
        Self::Ready(Err(Box::new(failure.of(&target.0, M::NAME))))
    }

    /// The call of `target` is over.
    #[inline]
    fn over(output: Option<M::Output>, target: &Aim) -> Self {
        match output {
            Some(output) => Self::Ready(Ok(output)),
            None => Self::failed(no_output::<M>(), target),
        }
    }

    fn slow(future: impl Future<Output = Finished<M>> + Send + 'static) -> Self {
        Self::State(State::Slow(Box::pin(future)))
    }
}

/// The call with its filters around it.
#[cold]
fn through_filters<M: Method>(call: Call<M>) -> Next<M> {
    Next::slow(filtered::awaited(call))
}

/// The call within its span.
#[cold]
fn in_span<M: Method>(call: Call<M>, span: Span) -> Next<M> {
    let mut call = CallFuture::without_span(call);
    let own = span.clone();
    let traced = async move {
        let finished = poll_fn(|cx| call.poll_finished(cx)).await;
        match &finished {
            Err(failure) => trace::failed(&own, &**failure),
            Ok(output) if M::is_error(output) => {
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
fn first_poll<M: Method>(call: Call<M>, cx: &mut Context<'_>) -> Next<M> {
    let checked = TurnContext::caller()
        .map_err(Failure::refused)
        .and_then(|(chain, inherited)| Caller::check::<M>(&call, chain, inherited));
    let caller = match checked {
        Ok(caller) => caller,
        Err(failure) => return Next::failed(failure, &call.target),
    };
    #[cfg(feature = "virtual")]
    if let Some(fate) = crate::world::calls::fate::<M>(&call.target.0.node) {
        return Next::slow(crate::world::calls::fated(call, caller, fate));
    }
    let target = &*call.target.0;
    match &target.node {
        Node::Silo(silo) => match target.route(0) {
            Found::Here(activation) => run_here(call, caller, activation, cx),
            Found::There(lane) if call.cancel.is_none() => send(call, caller, lane, cx),
            Found::There(_) => Next::slow(travel(call, caller, None)),
            Found::Nothing => match silo.host.catalog.get(&target.id) {
                Some(activation) => {
                    target.note_here(&activation);
                    run_here(call, caller, activation, cx)
                }
                None => match silo.place_now(caller.seeks::<M>(target)) {
                    Some(Ok(Place::Here(activation))) => {
                        target.note_here(&activation);
                        run_here(call, caller, activation, cx)
                    }
                    Some(Ok(Place::There { peer, .. })) => {
                        Next::slow(travel(call, caller, Some(Met::Placed(peer))))
                    }
                    // Nobody is asked again for what placement has refused.
                    Some(Err(failure)) => {
                        Next::slow(travel(call, caller, Some(Met::NotFound(failure))))
                    }
                    None => Next::slow(travel(call, caller, None)),
                },
            },
        },
        Node::Client(client) => match target.route(client.generation()) {
            Found::There(lane) if call.cancel.is_none() => send(call, caller, lane, cx),
            _ => Next::slow(travel(call, caller, None)),
        },
        Node::Nowhere => Next::failed(invoke::unbound(&call.target), &call.target),
    }
}

fn run_here<M: Method>(
    call: Call<M>,
    caller: Caller,
    activation: Arc<dyn RunActivation>,
    cx: &mut Context<'_>,
) -> Next<M> {
    let Some(_depth) = invoke::InlineDepth::enter() else {
        return Next::slow(travel(call, caller, None));
    };
    let Call { target, args, timeout, cancel, .. } = call;
    let mut slot = LocalSlot { args: Some(args), output: None };
    if let Some(ran) = caller.run_instant::<M>(&activation, &mut slot) {
        return match ran {
            Ok(()) => Next::over(slot.output, &target),
            Err(failure) => Next::failed(failure, &target),
        };
    }
    if !target.0.node.spawner().is_some_and(Spawner::is_here)
        && let Some(args) = slot.args.take()
    {
        return Next::slow(travel(
            Call { target, args, timeout, cancel, extra: None },
            caller,
            None,
        ));
    }
    let mut turn = match caller.start::<M>(activation, &mut slot) {
        Ok(turn) => turn,
        Err(StartError::NoSuchMethod) => {
            let Some(args) = slot.args.take() else { return Next::over(None, &target) };
            let call = Call { target, args, timeout, cancel, extra: None };
            return Next::slow(travel(call, caller, Some(Met::Closed(None))));
        }
        Err(why) => return Next::failed(why.into_failure(), &target),
    };
    let end = match turn.as_mut().poll_turn(cx, &mut Sink::Local(&mut slot)) {
        Poll::Ready(TurnEnd::Done) => return Next::over(slot.output, &target),
        Poll::Ready(end) => Some(end),
        Poll::Pending => None,
    };
    after_first_poll(LocalTurn { target, turn, slot, timeout, cancel, caller }, end)
}

/// The turn was not over at once, or did not run.
fn after_first_poll<M: Method>(mut local: LocalTurn<M>, end: Option<TurnEnd>) -> Next<M> {
    if let Some(end) = end {
        return after_wait(local, Begun::Over(end));
    }
    match local.standing() {
        Poll::Ready(begun) => after_wait(local, begun),
        Poll::Pending if local.cancel.is_some() => Next::slow(invoke::finish_local(local, false)),
        Poll::Pending => Next::State(State::Waiting(local)),
    }
}

/// The turn is over, has begun, or is too late.
fn after_wait<M: Method>(mut local: LocalTurn<M>, begun: Begun) -> Next<M> {
    match begun {
        Begun::Over(TurnEnd::Done) => Next::over(local.slot.output.take(), &local.target),
        Begun::Over(TurnEnd::Closed(elsewhere)) => {
            let target = local.target.share();
            match local.into_call() {
                Some((call, caller)) => {
                    Next::slow(travel(call, caller, Some(Met::Closed(elsewhere))))
                }
                None => Next::over(None, &target),
            }
        }
        Begun::Over(end) => Next::failed(invoke::failure_of(end), &local.target),
        Begun::Running => Next::slow(invoke::finish_local(local, true)),
        Begun::Overdue => Next::failed(invoke::overdue(), &local.target),
        Begun::Ended => Next::failed(Failure::shutting_down(), &local.target),
    }
}

/// Writes the call into the connection's buffer. A connection that has ended is no failure: the
/// grain is looked for anew.
fn send<M: Method>(
    call: Call<M>,
    caller: Caller,
    lane: Arc<Lane>,
    cx: &mut Context<'_>,
) -> Next<M> {
    let target = &*call.target.0;
    let (now, view) = (target.node.clock().now(), target.node.view_version());
    let deadline = caller.due.settle(now);
    let head = caller.head::<M>(target, now, view);
    match lane
        .connection
        .begin(cx.waker(), head, deadline, |out| codec::encode_into(out, &call.args))
    {
        Ok(correlation) => {
            let (call, correlation) = (Some((call, caller)), Some(correlation));
            Next::State(State::Sent(Sent { call, lane, correlation }))
        }
        Err(SendError::Lost(why)) => {
            let met =
                Met::Unsent { peer: lane.connection.silo(), placed: false, why: why.to_string() };
            Next::slow(travel(call, caller, Some(met)))
        }
        Err(error) => {
            if let (Node::Silo(silo), SendError::Full(_) | SendError::Overloaded(_)) =
                (&target.node, &error)
            {
                silo.host.metrics.refused();
            }
            Next::failed(invoke::send_failure(lane.connection.silo(), error), &call.target)
        }
    }
}

/// A call on its way to another process. Dropping it gives the call up.
struct Sent<M: Method> {
    /// Kept, should it turn out that it did not run.
    call: Option<(Call<M>, Caller)>,
    lane: Arc<Lane>,
    correlation: Option<Correlation>,
}

thread_local! {
    /// Where answers are decoded from: its room goes to the slot the answer came from, and that
    /// slot's comes here.
    static BODY: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl<M: Method> Sent<M> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<M::Output, Met>> {
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
        let node = self.call.as_ref().map_or(&Node::Nowhere, |(call, _)| &call.target.0.node);
        let read = match answer {
            Ok(answer) => remote::read_answer::<M>(node, peer, answer, &body)
                .map_err(|failure| Met::Answered { peer, failure }),
            Err(why) => Err(Met::Lost { peer, why }),
        };
        body.clear();
        if body.capacity() <= KEPT_BODY_BYTES_MAX {
            BODY.set(body);
        }
        Poll::Ready(read.map(|(output, location)| {
            if let (Some(at), Some((call, _))) =
                (location.filter(|at| Some(*at) != peer), &self.call)
            {
                call.target.0.learn(at);
            }
            output
        }))
    }

    /// The call has no output: its path says what follows.
    #[cold]
    fn again(mut self, met: Met) -> Next<M> {
        match self.call.take() {
            Some((call, caller)) => Next::slow(travel(call, caller, Some(met))),
            None => Next::Ready(Err(Box::new(no_output::<M>()))),
        }
    }
}

impl<M: Method> Drop for Sent<M> {
    fn drop(&mut self) {
        if let Some(correlation) = self.correlation {
            self.lane.connection.give_up(correlation);
        }
    }
}
