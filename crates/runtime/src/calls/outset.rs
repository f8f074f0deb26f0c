//! The first step of a call: its caller, the checks before anything moves, and the hot paths.
//!
//! The way of a call to a grain of this silo, each step one file further down:
//!
//! 1. `grain/call.rs`: a method of a reference makes a `Call`, which is awaited.
//! 2. `grain/future.rs` keeps the arguments in a slot, and polls the rest without their type.
//! 3. `way.rs`: the first poll asks the task's budget, filters and traces.
//! 4. Here [`set_out`] checks the caller, and takes the activation that the reference knows.
//! 5. `hosting/activation.rs` runs the turn,
//! 6. in place by `hosting/instant.rs`, or as a future of its own by `hosting/turn.rs`,
//! 7. through the door of the grain, `hosting/gate/`.
//! 8. `grain/work.rs` has the arguments and the output by their types again.
//!
//! Back in `way.rs` the [`Step`] says if the call is over, or how it continues.

use std::cell::Cell;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use emmer_core::SiloAddress;
use emmer_core::limits::CALL_CHAIN_MAX;
use emmer_net::clock::{CoarseInstant, Due};
use emmer_net::transport::{Correlation, SendError};
use emmer_net::world::{CallFate, Spawner};
use emmer_wire::{CallChain, RequestFlags, RequestHead};

use super::Calls;
use super::finding::Place;
use super::head::CallHead;
use super::node::Node;
use super::path::{Met, unreachable_silo};
use super::target::{Aim, Found, Lane, Target};
use crate::cluster::Sought;
use crate::hosting::{
    Begun, BoxTurn, Ends, Has, Held, Input, Sink, Slot, StartError, TurnContext, TurnEnd,
    poll_begun, standing,
};
use crate::trace;
use crate::turn::{Extra, Failure, MethodInfo, Rejection};

/// Result of a call's first step: its end, or the way it continues.
pub(super) enum Step {
    Over(Result<(), Box<Failure>>),
    /// The turn waits on this silo, and the caller polls it.
    Waits(BoxTurn, Caller),
    /// A boxed future polls the turn. The flag is true if the turn has begun.
    Goes(BoxTurn, Caller, bool),
    /// The call was sent to another process.
    Sent(Caller, Arc<Lane>, Correlation),
    /// The grain has to be located.
    Travels(Caller, Option<Met>),
    /// A test plants a fault.
    Fated(Caller, CallFate),
}

impl Step {
    /// The call has failed.
    #[cold]
    fn failed(failure: Failure, head: &CallHead) -> Self {
        Self::Over(Err(Box::new(failure.of(&*head.target.0, head.method.name))))
    }
}

/// The hot paths. If the grain is idle on this silo, its turn runs now, on the caller's task. If
/// the grain's silo is connected, the call is written into the connection's buffer.
pub(super) fn set_out(head: &CallHead, slot: &mut dyn Slot, cx: &mut Context<'_>) -> Step {
    let checked = TurnContext::caller()
        .map_err(|chain| too_deep(head, &chain))
        .and_then(|(chain, inherited)| Caller::check(head, chain, inherited));
    let caller = match checked {
        Ok(caller) => caller,
        Err(failure) => return Step::failed(failure, head),
    };
    if let Some(fate) = fate(head) {
        return Step::Fated(caller, fate);
    }
    let target = &*head.target.0;
    match &target.node {
        Node::Silo(silo) => {
            silo.note_talk(target);
            match target.any_route() {
                Found::Here(activation) => run_here(head, slot, caller, activation, cx),
                route => set_out_from(silo, route, head, slot, caller, cx),
            }
        }
        Node::Client(client) => match target.route(client.generation()) {
            Found::There(lane) if head.cancel.is_none() => send(head, slot, caller, lane, cx),
            _ => Step::Travels(caller, None),
        },
        Node::Nowhere => Step::failed(unbound(&head.target), head),
    }
}

/// As [`set_out`], for a reference that does not know the grain on this silo.
fn set_out_from(
    silo: &Arc<Calls>,
    route: Found,
    head: &CallHead,
    slot: &mut dyn Slot,
    caller: Caller,
    cx: &mut Context<'_>,
) -> Step {
    let target = &*head.target.0;
    let met = match target.way(route, silo, head.method.id, silo.changes()) {
        Found::Here(activation) => return run_here(head, slot, caller, activation, cx),
        Found::There(lane) if head.cancel.is_none() => return send(head, slot, caller, lane, cx),
        Found::There(_) | Found::Nothing => None,
        Found::Nowhere => match silo.place_now(caller.seeks(head.method, target)) {
            Some(Ok(Place::Here(activation))) => {
                target.note_here(&activation);
                return run_here(head, slot, caller, activation, cx);
            }
            Some(Ok(Place::There { peer, .. })) => {
                let open = silo.cluster.peers.pool.get(peer);
                let alone = head.cancel.is_some() || silo.is_worker(&target.id);
                if let Some(connection) = open.filter(|_| !alone) {
                    return send(head, slot, caller, Lane::placed(connection), cx);
                }
                Some(Met::Placed(peer))
            }
            // Placement has refused it, and is not asked again.
            Some(Err(failure)) => Some(Met::NotFound(failure)),
            None => None,
        },
    };
    Step::Travels(caller, met)
}

fn run_here(
    head: &CallHead,
    slot: &mut dyn Slot,
    caller: Caller,
    activation: Held,
    cx: &mut Context<'_>,
) -> Step {
    let Some(_depth) = InlineDepth::enter() else {
        return Step::Travels(caller, None);
    };
    if let Some(ran) = caller.run_instant(head.method, &activation, slot) {
        return match ran {
            Ok(()) => Step::Over(Ok(())),
            Err(failure) => Step::failed(failure, head),
        };
    }
    if !head.target.0.node.spawner().is_some_and(Spawner::is_here) {
        return Step::Travels(caller, None);
    }
    let mut turn = match caller.start_turn(head.method, activation, slot) {
        Ok(turn) => turn,
        Err(StartError::NoSuchMethod) => {
            return Step::Travels(caller, Some(Met::Closed(None)));
        }
        Err(why) => return Step::failed(why.into_failure(), head),
    };
    match turn.as_mut().poll_turn(cx, &mut Sink::Local(&mut *slot)) {
        Poll::Ready(TurnEnd::Done) => Step::Over(Ok(())),
        Poll::Ready(end) => after_wait(head, turn, caller, slot, Begun::Over(end)),
        Poll::Pending => after_first_poll(head, turn, caller, slot),
    }
}

/// The turn was not over at once.
fn after_first_poll(head: &CallHead, mut turn: BoxTurn, caller: Caller, slot: &dyn Slot) -> Step {
    let node = &head.target.0.node;
    match unless_ended(node, standing(&mut turn, node.clock())) {
        Poll::Ready(begun) => after_wait(head, turn, caller, slot, begun),
        Poll::Pending if head.cancel.is_some() => Step::Goes(turn, caller, false),
        Poll::Pending => Step::Waits(turn, caller),
    }
}

/// The turn is over, has begun, or is too late.
pub(super) fn after_wait(
    head: &CallHead,
    turn: BoxTurn,
    caller: Caller,
    slot: &dyn Slot,
    begun: Begun,
) -> Step {
    match begun {
        Begun::Over(TurnEnd::Done) => Step::Over(Ok(())),
        Begun::Over(TurnEnd::Closed(_)) if slot.has() != Has::Args => {
            Step::failed(no_output(head.method), head)
        }
        Begun::Over(TurnEnd::Closed(elsewhere)) => {
            Step::Travels(caller, Some(Met::Closed(elsewhere)))
        }
        Begun::Over(end) => Step::failed(failure_of(end), head),
        Begun::Running => Step::Goes(turn, caller, true),
        Begun::Overdue => Step::failed(given_up(turn, overdue()), head),
        Begun::Ended => Step::failed(given_up(turn, Failure::shutting_down()), head),
    }
}

/// Writes the call into the connection's buffer. A connection that has ended is no failure: the
/// grain is looked for again.
fn send(
    head: &CallHead,
    slot: &mut dyn Slot,
    caller: Caller,
    lane: Arc<Lane>,
    cx: &mut Context<'_>,
) -> Step {
    let target = &*head.target.0;
    let (now, view) = (target.node.clock().now(), target.node.view_version());
    let deadline = caller.due.settle(now);
    let request = caller.head(head.method, target, now, view);
    let encode = |out: &mut BytesMut| {
        if head.method.streams {
            return target.node.encode_streams(lane.connection.silo(), slot, out);
        }
        slot.encode_args(out)
    };
    match lane.connection.begin_call(cx.waker(), request, deadline, encode) {
        Ok(correlation) => Step::Sent(caller, lane, correlation),
        Err(SendError::Lost(why)) => {
            let (peer, placed) = (lane.connection.silo(), lane.placed);
            let met = Met::Unsent { peer, placed, why: why.to_string() };
            Step::Travels(caller, Some(met))
        }
        Err(error) => {
            if let (Node::Silo(silo), SendError::Full(_) | SendError::Overloaded(_)) =
                (&target.node, &error)
            {
                silo.host.metrics.refused();
            }
            Step::failed(send_failure(lane.connection.silo(), error), head)
        }
    }
}

/// Fault that a virtual world gives this call, if any.
pub(super) fn fate(head: &CallHead) -> Option<CallFate> {
    let node = &head.target.0.node;
    if matches!(node, Node::Nowhere) {
        return None;
    }
    node.clock().fate_of_call(head.method.grain_type, head.method.name)
}

/// Maximum depth of turns on one task's stack, each calling the next. A deeper turn begins when the
/// stack has unwound: by then each turn further out has a task of its own.
const INLINE_DEPTH_MAX: u32 = 8;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Permission to run one more turn on this stack.
pub(crate) struct InlineDepth(());

impl InlineDepth {
    pub(crate) fn enter() -> Option<Self> {
        let depth = DEPTH.get();
        (depth < INLINE_DEPTH_MAX).then(|| {
            DEPTH.set(depth + 1);
            Self(())
        })
    }
}

impl Drop for InlineDepth {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get().saturating_sub(1));
    }
}

/// Caller of a call: the chain of turns that wait for it, and its deadline.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) chain: CallChain,
    pub(crate) due: Due,
}

impl Caller {
    /// Checks what can be checked before anything moves: the key's length, a turn that calls its
    /// own grain.
    #[inline(always)]
    pub(crate) fn check(
        call: &CallHead,
        mut chain: CallChain,
        inherited: Option<Due>,
    ) -> Result<Self, Failure> {
        let target = &*call.target.0;
        if let Some(extra) = &call.extra {
            chain = take_along(chain, extra)?;
        }
        if matches!(target.node, Node::Nowhere) {
            return Err(unbound(&call.target));
        }
        if !target.key_fits() {
            let max = emmer_core::limits::GRAIN_KEY_BYTES_MAX;
            return Err(Failure::refused(format!("the grain key is longer than {max} bytes")));
        }
        // Longer circles are found when they stand: a turn further out may have given its call up.
        let calls_itself = chain
            .last()
            .is_some_and(|own| own.grain == target.id && own.holds_up(call.method.exclusive));
        // Of several workers another one may take it.
        if calls_itself && target.node.workers_max(&target.id).is_none_or(|max| max < 2) {
            return Err(Failure::deadlock(format!("{0:?} waits for {0:?}", call.target)));
        }
        let due = match (call.timeout, inherited) {
            (None, None) => Due::after(target.node.response_timeout()),
            (None, Some(inherited)) if !inherited.is_never() => inherited,
            (timeout, inherited) => due_of(timeout, inherited, &target.node),
        };
        Ok(Self { chain, due })
    }

    /// Runs the call's turn in place, if the turn cannot suspend and the grain is free.
    #[inline]
    pub(crate) fn run_instant(
        &self,
        method: &MethodInfo,
        activation: &Held,
        slot: &mut dyn Slot,
    ) -> Option<Result<(), Failure>> {
        let mut ends = Ends::Local(slot);
        let ran = activation.run_instant(method.id, &mut ends, self.due, &self.chain)?;
        Some(match ran {
            Ok(TurnEnd::Done) => Ok(()),
            Ok(end) => Err(failure_of(end)),
            Err(e) => Err(e.into_failure()),
        })
    }

    /// Starts the call's turn on an activation of this silo.
    #[inline]
    pub(crate) fn start_turn(
        &self,
        method: &MethodInfo,
        activation: Held,
        slot: &mut dyn Slot,
    ) -> Result<BoxTurn, StartError> {
        activation.start(method.id, Input::Local(slot), self.due, self.chain.clone())
    }

    /// Returns the call as the search for its grain sees it.
    pub(crate) const fn seeks<'a>(&'a self, method: &MethodInfo, target: &'a Target) -> Sought<'a> {
        Sought { grain: &target.id, method: method.id, chain: &self.chain }
    }

    /// The call's header.
    pub(crate) fn head<'a>(
        &'a self,
        method: &MethodInfo,
        target: &'a Target,
        now: CoarseInstant,
        view: u64,
    ) -> RequestHead<'a> {
        RequestHead {
            correlation: 0,
            target: &target.id,
            method: method.id,
            flags: if method.exclusive { RequestFlags::NONE } else { RequestFlags::READ_ONLY },
            deadline_ms: self.due.settle(now).left_on_wire(now),
            forwards: 0,
            expect_view: view,
            chain: &self.chain,
            trace: trace::carried(),
        }
    }
}

/// The end of the time of a call with a timeout of its own, or in the turn of a stream.
fn due_of(timeout: Option<Duration>, inherited: Option<Due>, node: &Node) -> Due {
    match (timeout, inherited.filter(|due| !due.is_never())) {
        // A stream is open for as long as both ends want.
        (Some(Duration::MAX), _) => Due::NEVER,
        (Some(timeout), Some(inherited)) => {
            let now = node.clock().now();
            Due::at(now.after(timeout).min(inherited.settle(now)))
        }
        (Some(timeout), None) => Due::after(timeout),
        (None, Some(inherited)) => inherited,
        (None, None) => Due::after(node.response_timeout()),
    }
}

/// The turns of a chain that its error names, the last ones.
const SHOWN_MAX: usize = 4;

/// The failure of a call that is nested too deep.
#[cold]
pub(crate) fn too_deep(call: &CallHead, chain: &CallChain) -> Failure {
    let last = &chain[chain.len().saturating_sub(SHOWN_MAX)..];
    let names = last.iter().map(|link| match &call.target.0.node {
        Node::Silo(silo) => format!("{} -> ", silo.cluster.placing.load.title(&link.grain)),
        Node::Client(_) | Node::Nowhere => format!("grain/{} -> ", link.grain.key()),
    });
    Failure::refused(format!(
        "calls are nested more than {CALL_CHAIN_MAX} deep: ... -> {}{:?}",
        names.collect::<String>(),
        call.target
    ))
}

/// The chain of a call that takes something along of its own.
#[cold]
fn take_along(chain: CallChain, extra: &Extra) -> Result<CallChain, Failure> {
    let merged = extra.as_ref().map_err(Clone::clone).and_then(|own| chain.context().merged(own));
    let merged = merged.map_err(Failure::refused)?;
    Ok(chain.with_context(merged))
}

/// The failure of a call by a reference that belongs to no silo and no client.
#[cold]
pub(crate) fn unbound(reference: &Aim) -> Failure {
    Failure::refused(format!(
        "the reference {reference:?} was decoded outside a silo and a client: decode it by \
         `client.grains().bind(|| ..)`"
    ))
}

/// Returns the failure for a turn's end.
pub(crate) fn failure_of(end: TurnEnd) -> Failure {
    match end {
        TurnEnd::ActivationFailed(why) => Failure::rejected(Rejection::ActivationFailed(why)),
        TurnEnd::Refused(why) => Failure::refused(why),
        TurnEnd::Panicked(text) => Failure::panicked(text),
        TurnEnd::Unencodable(detail) => Failure::codec(true, detail),
        TurnEnd::Deadlock(circle) => Failure::deadlock(circle),
        TurnEnd::Dropped(why) => Failure::cancelled_by(true, why),
        TurnEnd::Done | TurnEnd::Closed(_) => {
            debug_assert!(false, "a turn that ended well, or not at all, is no failure");
            Failure::internal("the turn ended without a result".to_owned())
        }
    }
}

/// A turn on this silo that did not end in its first poll.
pub(crate) struct LocalTurn {
    pub(crate) head: CallHead,
    pub(crate) turn: BoxTurn,
    pub(crate) caller: Caller,
}

impl LocalTurn {
    /// Polls the turn until it has begun.
    pub(crate) fn poll(&mut self, slot: &mut dyn Slot, cx: &mut Context<'_>) -> Poll<Begun> {
        let node = &self.head.target.0.node;
        let begun = poll_begun(&mut self.turn, node.clock(), cx, &mut Sink::Local(slot));
        unless_ended(node, begun)
    }
}

/// Ends the wait of a turn if its silo has ended: the turn inside was dropped there, and no closer
/// comes.
fn unless_ended(node: &Node, begun: Poll<Begun>) -> Poll<Begun> {
    match node {
        Node::Silo(silo) if begun.is_pending() && silo.stopped.is_cancelled() => {
            Poll::Ready(Begun::Ended)
        }
        _ => begun,
    }
}

/// A turn that is over left no output: a fault of this crate.
#[cold]
pub(crate) fn no_output(method: &MethodInfo) -> Failure {
    debug_assert!(false, "{} ended without its output", method.name);
    Failure::internal(format!("{} ended without its output", method.name))
}

/// Returns the failure of a call that was not sent.
pub(crate) fn send_failure(silo: Option<SiloAddress>, error: SendError) -> Failure {
    match error {
        SendError::Lost(lost) => unreachable_silo(silo, false, lost.to_string()),
        SendError::Overloaded(what) => Failure::overloaded(what),
        SendError::Full(full) => Failure::overloaded(full.to_string()),
        SendError::TooLarge(bytes) => {
            let detail = format!("the call is {bytes} bytes, more than the largest frame");
            Failure::codec(false, detail)
        }
        SendError::Codec(detail) => Failure::codec(false, detail),
    }
}

pub(crate) fn overdue() -> Failure {
    Failure::timeout(false, "waiting for its turn")
}

/// The failure of a call whose turn does not begin.
#[cold]
pub(crate) fn given_up(mut turn: BoxTurn, failure: Failure) -> Failure {
    match turn.as_mut().give_up() {
        Ok(()) => failure,
        Err(panic) => failure.and_panicked(panic),
    }
}
