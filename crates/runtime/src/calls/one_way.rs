//! One-way calls: their callers do not wait for the end.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use emmer_net::transport::{Connection, SendError};
use emmer_net::world::{self, CallFate, CallFault};
use emmer_store::BoxFuture;
use emmer_wire::CallChain;

use crate::calls::invoke::Finished;
use crate::calls::lanes::{Handed, Kind};
use crate::calls::outset::{
    Caller, InlineDepth, LocalTurn, failure_of, fate, send_failure, unbound,
};
use crate::calls::path::Met;
use crate::calls::travel::{finish_local, travel, travel_in_line};
use crate::calls::{AnyCall, CallHead, Calls, Found, Node, Target, fated, filtered};
use crate::hosting::{Has, Held, Sink, Slot, StartError, TurnContext, TurnEnd, empty};
use crate::trace;
use crate::turn::{CallError, Failure, MethodInfo, NoError, let_go};

/// One-way calls of this process under way at once; one more is `Overloaded`.
const ONE_WAY_MAX: usize = 100_000;

/// Hands a one-way call over. A turn on an idle grain of this silo runs here and now; only one that
/// waits or suspends gets a task.
pub(crate) fn send(mut head: CallHead, slot: &mut dyn Slot) -> Result<(), CallError<NoError>> {
    head.target.bind();
    if head.target.0.is_filtered { filtered::sent(head, slot, pass) } else { pass(head, slot) }
}

/// As [`send`], without filters.
fn pass(head: CallHead, slot: &mut dyn Slot) -> Result<(), CallError<NoError>> {
    if let Some(fate) = fate(&head) {
        return send_fated(head.with_slot(slot), fate);
    }
    set_off(head, slot)
}

/// Hands a call over that a test lets fail: its caller hears only that a limit was reached.
fn send_fated(mut call: AnyCall, fate: CallFate) -> Result<(), CallError<NoError>> {
    match fate.fault {
        Some(CallFault::Overloaded) => {
            return Err(*call.head.failed(fated::failure(CallFault::Overloaded)));
        }
        Some(CallFault::Unreachable | CallFault::Rejected) => return Ok(()),
        Some(CallFault::LostAnswer) | None => {}
    }
    if fate.delay.is_zero() {
        return set_off(call.head, &mut *call.slot);
    }
    call.head.take_turns_context();
    let method = call.head.method.name;
    world::spawn(async move {
        tokio::time::sleep(fate.delay).await;
        if let Err(failure) = set_off(call.head, &mut *call.slot) {
            tracing::debug!(method, %failure, "a delayed one-way call failed");
        }
    });
    Ok(())
}

/// Hands a call over that goes its way.
fn set_off(head: CallHead, slot: &mut dyn Slot) -> Result<(), CallError<NoError>> {
    let span = trace::of_call(TurnContext::is_in_turn, || {
        trace::call("producer", head.method.interface, head.method.name, &head.target)
    });
    match span {
        None => set_off_now(head, slot),
        Some(span) => {
            let _in_span = trace::enter(&span);
            set_off_now(head, slot).inspect_err(|failure| trace::failed(&span, failure))
        }
    }
}

/// Empties `slot` here, and leaves nothing to the caller: the arguments' `Drop` may panic.
fn set_off_now(head: CallHead, slot: &mut dyn Slot) -> Result<(), CallError<NoError>> {
    let (reference, method) = (head.target.share(), head.method);
    let handed = hand_over(head, slot, &reference.0);
    empty(slot);
    handed.map_err(|failure| failure.of(&*reference.0, method.name))
}

fn hand_over(head: CallHead, slot: &mut dyn Slot, target: &Target) -> Result<(), Failure> {
    // A one-way call belongs to no chain: its caller does not wait.
    let context = TurnContext::request_context().unwrap_or_default();
    let chain = CallChain::EMPTY.with_context(context);
    let caller = Caller::check(&head, chain, None)?;
    match &target.node {
        Node::Silo(silo) => {
            silo.note_talk(target);
            silo.begin_one_ways();
            // Read before all that depends on it.
            let changes = silo.changes();
            if silo.lanes.has(&target.id) {
                let here = silo.host.catalog.get(&target.id);
                if let Some(Err(full)) = here.map(|activation| activation.check_queue()) {
                    return Err(full.into_failure());
                }
                return in_lane(silo, head.with_slot(slot), caller, None);
            }
            match target.way(target.any_route(), silo, head.method.id, changes) {
                Found::Here(activation) => run_here(silo, head, slot, caller, activation),
                Found::There(lane) => {
                    let is_way = || silo.changes() == changes;
                    match send_over(&lane.connection, &head, slot, &caller, is_way) {
                        Ok(true) => Ok(()),
                        Ok(false) => {
                            in_lane_of(Kind::Strict, silo, head.with_slot(slot), caller, None)
                        }
                        Err(SendError::Lost(why)) => {
                            let peer = lane.connection.silo();
                            let met = Met::Unsent { peer, placed: false, why: why.to_string() };
                            in_lane(silo, head.with_slot(slot), caller, Some(met))
                        }
                        Err(error) => Err(send_failure(lane.connection.silo(), error)),
                    }
                }
                // Calls to workers have no order to keep.
                Found::Nothing | Found::Nowhere if silo.is_worker(&target.id) => {
                    let method = head.method;
                    apart(silo, method, travel(head.with_slot(slot), caller, None))
                }
                Found::Nothing | Found::Nowhere => {
                    in_lane(silo, head.with_slot(slot), caller, None)
                }
            }
        }
        Node::Client(client) => {
            let connection = client.gateway_now(&target.id)?;
            send_over(&connection, &head, slot, &caller, || true)
                .map(|_sent| ())
                .map_err(|e| send_failure(connection.silo(), e))
        }
        Node::Nowhere => Err(unbound(&head.target)),
    }
}

/// False if the connection is not the way when the call is about to be written to it.
fn send_over(
    connection: &Arc<Connection>,
    head: &CallHead,
    slot: &dyn Slot,
    caller: &Caller,
    is_way: impl FnOnce() -> bool,
) -> Result<bool, SendError> {
    let target = &*head.target.0;
    let (now, view) = (target.node.clock().now(), target.node.view_version());
    let head = caller.head(head.method, target, now, view);
    connection.one_way(head, |out| slot.encode_args(out), is_way)
}

fn run_here(
    silo: &Arc<Calls>,
    head: CallHead,
    slot: &mut dyn Slot,
    caller: Caller,
    activation: Held,
) -> Result<(), Failure> {
    let Some(depth) = InlineDepth::enter() else {
        return in_lane(silo, head.with_slot(slot), caller, None);
    };
    // A fenced silo, or one that has ended, answers in its own time.
    if silo.host.is_fenced() {
        return in_lane(silo, head.with_slot(slot), caller, None);
    }
    if let Some(ran) = caller.run_instant(head.method, &activation, slot) {
        if let Err(failure) = ran {
            note_failure(silo, head.method, &head.failed(failure));
        }
        return Ok(());
    }
    if !silo.spawner.is_here() && slot.has() == Has::Args {
        return in_lane(silo, head.with_slot(slot), caller, None);
    }
    let mut turn = match caller.start_turn(head.method, activation, slot) {
        Ok(turn) => turn,
        Err(StartError::NoSuchMethod) if slot.has() == Has::Args => {
            let call = head.with_slot(slot);
            return in_lane(silo, call, caller, Some(Met::Closed(None)));
        }
        Err(why) => return Err(why.into_failure()),
    };
    turn.as_mut().set_driven();
    // The waker does nothing: a turn that is not over now is polled again by the task it gets.
    let mut cx = Context::from_waker(Waker::noop());
    let polled = turn.as_mut().poll_turn(&mut cx, &mut Sink::Local(&mut *slot));
    drop(depth);
    match polled {
        Poll::Ready(TurnEnd::Done) => Ok(()),
        // Its place before later calls keeps the order. A lane has calls that wait for this place.
        Poll::Ready(TurnEnd::Closed(Some(elsewhere)))
            if slot.has() == Has::Args && elsewhere.has_place() =>
        {
            let (method, met) = (head.method, Met::Closed(Some(elsewhere)));
            apart(silo, method, travel(head.with_slot(slot), caller, Some(met)))
        }
        Poll::Ready(TurnEnd::Closed(elsewhere)) if slot.has() == Has::Args => {
            let call = head.with_slot(slot);
            in_lane(silo, call, caller, Some(Met::Closed(elsewhere)))
        }
        Poll::Ready(TurnEnd::Closed(_)) => Ok(()),
        Poll::Ready(end) => {
            note_failure(silo, head.method, &head.failed(failure_of(end)));
            Ok(())
        }
        Poll::Pending => {
            let begun = turn.progress() == crate::hosting::Progress::Running;
            let (method, slot) = (head.method, slot.boxed());
            let local = LocalTurn { head, turn, caller };
            let finished = finish_local(local, slot, begun);
            if !begun {
                return apart(silo, method, finished);
            }
            // A turn that has begun runs to its end, whatever the limits.
            silo.spawner.spawn(note_end(silo.clone(), method, finished));
            Ok(())
        }
    }
}

/// Looks for the call's grain, behind earlier calls whose grain is looked for, if there is room for
/// one more.
fn in_lane(
    silo: &Arc<Calls>,
    call: AnyCall,
    caller: Caller,
    met: Option<Met>,
) -> Result<(), Failure> {
    let has_come = silo.host.moves.followers.has(&call.head.target.0.id);
    let kind = if has_come { Kind::Strict } else { Kind::Call };
    in_lane_of(kind, silo, call, caller, met)
}

fn in_lane_of(
    kind: Kind,
    silo: &Arc<Calls>,
    call: AnyCall,
    caller: Caller,
    met: Option<Met>,
) -> Result<(), Failure> {
    let (permit, call) = silo.permit_for(call)?;
    let (grain, method) = (call.head.target.0.id.clone(), call.head.method);
    let own = silo.clone();
    let trip = move |handed: Handed| async move {
        note_end(own, method, travel_in_line(call, caller, met, Some(handed))).await;
        drop(permit);
    };
    let span = trace::current();
    let job = move |handed: Handed| -> BoxFuture<'static, ()> {
        Box::pin(trace::within(span, trip(handed)))
    };
    let max = silo.host.limits.activation_queue_max;
    silo.lanes.push(&grain, (kind, Box::new(job)), max, &silo.spawner).map_err(|job| {
        let_go(job);
        silo.host.metrics.refused();
        StartError::Overloaded(max).into_failure()
    })
}

/// Runs the call in a task of its own, if there is room for one more.
fn apart(
    silo: &Arc<Calls>,
    method: &'static MethodInfo,
    call: impl Future<Output = Finished> + Send + 'static,
) -> Result<(), Failure> {
    let (permit, call) = silo.permit_for(call)?;
    let own = silo.clone();
    let apart = async move {
        note_end(own, method, call).await;
        drop(permit);
    };
    silo.spawner.spawn(trace::along(apart));
    Ok(())
}

async fn note_end(
    silo: Arc<Calls>,
    method: &'static MethodInfo,
    call: impl Future<Output = Finished>,
) {
    match call.await {
        Ok(mut slot) => empty(&mut *slot),
        Err(failure) => note_failure(&silo, method, &failure),
    }
}

#[cold]
fn note_failure(silo: &Calls, method: &MethodInfo, failure: &Failure) {
    silo.host.metrics.one_way_failed();
    tracing::debug!(method = method.name, %failure, "a one-way call failed");
}

/// One one-way call under way.
pub(crate) struct OneWayPermit(Arc<AtomicUsize>);

impl Drop for OneWayPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Calls {
    /// Notes that this silo makes one-way calls.
    #[inline]
    pub(crate) fn begin_one_ways(&self) {
        if !self.sends_one_way.load(Ordering::Relaxed) {
            self.sends_one_way.store(true, Ordering::Relaxed);
        }
    }

    /// Room for this one-way call. Without it the call is let go: the `Drop` of its arguments may
    /// panic.
    fn permit_for<C>(&self, call: C) -> Result<(OneWayPermit, C), Failure> {
        match self.one_way_permit() {
            Ok(permit) => Ok((permit, call)),
            Err(failure) => {
                let_go(call);
                Err(failure)
            }
        }
    }

    /// Room for one more one-way call of this process.
    pub(crate) fn one_way_permit(&self) -> Result<OneWayPermit, Failure> {
        if self.stopped.is_cancelled() {
            return Err(Failure::shutting_down());
        }
        if self.one_ways.fetch_add(1, Ordering::Relaxed) >= ONE_WAY_MAX {
            self.one_ways.fetch_sub(1, Ordering::Relaxed);
            return Err(Failure::overloaded("too many one-way calls are under way"));
        }
        Ok(OneWayPermit(self.one_ways.clone()))
    }
}
