//! One-way calls: nobody waits for their end.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use emmer_store::BoxFuture;
use emmer_wire::{CallChain, codec};

use crate::calls::Calls;
use crate::calls::filtered;
use crate::calls::invoke::{
    Caller, Finished, InlineDepth, LocalTurn, failure_of, finish_local, send_failure, unbound,
};
use crate::calls::lanes::Handed;
use crate::calls::path::Met;
use crate::calls::travel::{travel, travel_in_line};
use crate::grain::{
    Call, CallError, Failure, Found, Interface, Method, NoError, Node, Target, TurnContext,
};
use crate::hosting::{LocalSlot, RunActivation, Sink, StartError, TurnEnd, let_go};
use crate::net::{Connection, SendError};
use crate::trace;

/// One-way calls of this process under way at once; one more is `Overloaded`.
const ONE_WAY_MAX: usize = 100_000;

/// Hands a one-way call over. A turn on an idle grain of this silo runs here and now; only one that
/// waits or suspends gets a task.
pub(crate) fn send<M: Method>(call: Call<M>) -> Result<(), CallError<NoError>> {
    if call.target.0.is_filtered { filtered::sent(call) } else { pass(call) }
}

/// As [`send`], without filters.
pub(super) fn pass<M: Method>(call: Call<M>) -> Result<(), CallError<NoError>> {
    #[cfg(feature = "virtual")]
    if let Some(fate) = crate::world::calls::fate::<M>(&call.target.0.node) {
        return crate::world::calls::send_fated(call, fate);
    }
    set_off(call)
}

/// Hands a call over that goes its way.
pub(crate) fn set_off<M: Method>(call: Call<M>) -> Result<(), CallError<NoError>> {
    let span = trace::of_call(TurnContext::is_in_turn, || {
        trace::call("producer", M::Interface::NAME, M::NAME, &call.target)
    });
    match span {
        None => set_off_now(call),
        Some(span) => {
            let _in_span = trace::enter(&span);
            set_off_now(call).inspect_err(|failure| trace::failed(&span, failure))
        }
    }
}

fn set_off_now<M: Method>(call: Call<M>) -> Result<(), CallError<NoError>> {
    let reference = call.target.share();
    hand_over(call, &reference.0).map_err(|failure| failure.of(&reference.0, M::NAME))
}

/// The call's arguments are let go here, and not by the caller: their `Drop` may panic.
fn hand_over<M: Method>(call: Call<M>, target: &Target) -> Result<(), Failure> {
    // A one-way call belongs to no chain: nobody waits for it.
    let context = TurnContext::request_context().unwrap_or_default();
    let chain = CallChain::EMPTY.with_context(context);
    let caller = match Caller::check(&call, chain, None) {
        Ok(caller) => caller,
        Err(failure) => {
            let_go(call);
            return Err(failure);
        }
    };
    match &target.node {
        Node::Silo(silo) => {
            if silo.lanes.has(&target.id) {
                let here = silo.host.catalog.get(&target.id);
                if let Some(Err(full)) = here.map(|activation| activation.check_queue()) {
                    let_go(call);
                    return Err(full.into_failure());
                }
                return in_lane(silo, call, caller, None);
            }
            let found = match target.route(0) {
                Found::Nothing => {
                    silo.host.catalog.get(&target.id).map_or(Found::Nothing, |activation| {
                        target.note_here(&activation);
                        Found::Here(activation)
                    })
                }
                found => found,
            };
            match found {
                Found::Here(activation) => run_here(silo, call, caller, activation),
                Found::There(lane) => match send_over(&lane.connection, &call, &caller) {
                    Err(SendError::Lost(why)) => {
                        let peer = lane.connection.silo();
                        let met = Met::Unsent { peer, placed: false, why: why.to_string() };
                        in_lane(silo, call, caller, Some(met))
                    }
                    sent => {
                        let_go(call);
                        sent.map_err(|e| send_failure(lane.connection.silo(), e))
                    }
                },
                // Calls to workers have no order to keep.
                Found::Nothing if silo.is_worker(&target.id) => {
                    apart::<M>(silo, travel(call, caller, None))
                }
                Found::Nothing => in_lane(silo, call, caller, None),
            }
        }
        Node::Client(client) => {
            let sent = client.gateway_now(&target.id).and_then(|connection| {
                send_over(&connection, &call, &caller)
                    .map_err(|e| send_failure(connection.silo(), e))
            });
            let_go(call);
            sent
        }
        Node::Nowhere => {
            let failure = unbound(&call.target);
            let_go(call);
            Err(failure)
        }
    }
}

fn send_over<M: Method>(
    connection: &Arc<Connection>,
    call: &Call<M>,
    caller: &Caller,
) -> Result<(), SendError> {
    let target = &*call.target.0;
    let (now, view) = (target.node.clock().now(), target.node.view_version());
    connection
        .one_way(caller.head::<M>(target, now, view), |out| codec::encode_into(out, &call.args))
}

fn run_here<M: Method>(
    silo: &Arc<Calls>,
    call: Call<M>,
    caller: Caller,
    activation: Arc<dyn RunActivation>,
) -> Result<(), Failure> {
    let Some(depth) = InlineDepth::enter() else { return in_lane(silo, call, caller, None) };
    // A fenced silo, or one that has ended, answers in its own time.
    if silo.host.is_fenced() {
        return in_lane(silo, call, caller, None);
    }
    let Call { target, args, timeout, cancel, .. } = call;
    let mut slot = LocalSlot { args: Some(args), output: None };
    if let Some(ran) = caller.run_instant::<M>(&activation, &mut slot) {
        if let Err(failure) = ran {
            log_failure::<M>(&failure.of(&target.0, M::NAME));
        }
        let_go(slot);
        return Ok(());
    }
    if !silo.spawner.is_here()
        && let Some(args) = slot.args.take()
    {
        return in_lane(silo, Call { target, args, timeout, cancel, extra: None }, caller, None);
    }
    let mut turn = match (caller.start::<M>(activation, &mut slot), slot.args.take()) {
        (Err(StartError::NoSuchMethod), Some(args)) => {
            let call = Call { target, args, timeout, cancel, extra: None };
            return in_lane(silo, call, caller, Some(Met::Closed(None)));
        }
        (Ok(turn), args) => {
            slot.args = args;
            turn
        }
        (Err(why), args) => {
            slot.args = args;
            let_go(slot);
            return Err(why.into_failure());
        }
    };
    turn.as_mut().set_driven();
    // Nobody is to be woken: a turn that is not over now is polled again by the task it gets.
    let mut cx = Context::from_waker(Waker::noop());
    let polled = turn.as_mut().poll_turn(&mut cx, &mut Sink::Local(&mut slot));
    drop(depth);
    match polled {
        Poll::Ready(TurnEnd::Done) => {
            let_go(slot);
            Ok(())
        }
        Poll::Ready(TurnEnd::Closed(elsewhere)) => {
            let local = LocalTurn { target, turn, slot, timeout, cancel, caller };
            match local.into_call() {
                Some((call, caller)) => in_lane(silo, call, caller, Some(Met::Closed(elsewhere))),
                None => Ok(()),
            }
        }
        Poll::Ready(end) => {
            log_failure::<M>(&failure_of(end).of(&target.0, M::NAME));
            let_go(slot);
            Ok(())
        }
        Poll::Pending => {
            let begun = turn.progress() == crate::hosting::Progress::Running;
            let local = LocalTurn { target, turn, slot, timeout, cancel, caller };
            if begun { go_on(silo, local) } else { apart::<M>(silo, finish_local(local, false)) }
        }
    }
}

/// A turn that has begun runs to its end, whatever the limits.
fn go_on<M: Method>(silo: &Arc<Calls>, local: LocalTurn<M>) -> Result<(), Failure> {
    silo.spawner.spawn(log::<M>(finish_local(local, true)));
    Ok(())
}

/// Looks for the call's grain, behind earlier calls whose grain is looked for, if there is room for
/// one more.
fn in_lane<M: Method>(
    silo: &Arc<Calls>,
    call: Call<M>,
    caller: Caller,
    met: Option<Met>,
) -> Result<(), Failure> {
    let (permit, call) = silo.permit_for(call)?;
    let grain = call.target.0.id.clone();
    let trip = move |handed: Handed| async move {
        log::<M>(travel_in_line(call, caller, met, Some(handed))).await;
        drop(permit);
    };
    let span = trace::current();
    let job = move |handed: Handed| -> BoxFuture<'static, ()> {
        Box::pin(trace::within(span, trip(handed)))
    };
    let max = silo.host.limits.activation_queue_max;
    silo.lanes.push(&grain, Box::new(job), max, &silo.spawner).map_err(|job| {
        let_go(job);
        silo.host.metrics.refused();
        StartError::Overloaded(max).into_failure()
    })
}

/// Runs the call in a task of its own, if there is room for one more.
fn apart<M: Method>(
    silo: &Arc<Calls>,
    call: impl Future<Output = Finished<M>> + Send + 'static,
) -> Result<(), Failure> {
    let (permit, call) = silo.permit_for(call)?;
    let apart = async move {
        log::<M>(call).await;
        drop(permit);
    };
    silo.spawner.spawn(trace::along(apart));
    Ok(())
}

async fn log<M: Method>(call: impl Future<Output = Finished<M>>) {
    match call.await {
        Ok(output) => let_go(output),
        Err(failure) => log_failure::<M>(&failure),
    }
}

#[cold]
fn log_failure<M: Method>(failure: &Failure) {
    tracing::debug!(method = M::NAME, %failure, "a one-way call failed");
}

/// One one-way call under way.
pub(crate) struct OneWayPermit(Arc<AtomicUsize>);

impl Drop for OneWayPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Calls {
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
