//! Calls made in this process: who calls, and turns on this silo.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use emmer_core::SiloAddress;
use emmer_core::limits::CALL_CHAIN_MAX;
use emmer_wire::{CallChain, RequestFlags, RequestHead};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::calls::lanes::Handed;
use crate::calls::path::unreachable_silo;
use crate::calls::{Aim, CallHead, Calls, Node, Target};
use crate::cluster::{Shut, Sought};
use crate::hosting::{
    Begun, BoxTurn, Ends, Has, Held, Input, Sink, Slot, StartError, TurnEnd, empty, poll_begun,
    run_to_end, standing, until_begun,
};
use crate::trace;
use crate::turn::{Asked, Asker, Extra, Failure, MethodInfo, Rejection};
use emmer_net::clock::{Clock, CoarseInstant, Due};
use emmer_net::transport::SendError;

/// Result of a call that owns its slot: the slot with the output. The failure is in a box: a call
/// that succeeds then moves few bytes.
pub(crate) type Finished = Result<Box<dyn Slot>, Box<Failure>>;

/// How deep turns may run on one task's stack, one calling the next. A deeper one begins when the
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

/// How often a turn waits for the stack to unwind. A turn further out may never let it: its code
/// waits for the call on the spot, in a `block_on` of its own.
const UNWINDS_MAX: u32 = 64;

/// Polls `work` where the stack has room for one more turn. Where it has none, it tries again once
/// the stack has unwound, and after [`UNWINDS_MAX`] tries on the stack as it is.
async fn with_room<F: Future>(work: F) -> F::Output {
    let mut work = pin!(work);
    let mut tries = 0;
    poll_fn(|cx| {
        let depth = InlineDepth::enter();
        if depth.is_none() && tries < UNWINDS_MAX {
            tries += 1;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        work.as_mut().poll(cx)
    })
    .await
}

/// Who makes a call: the turns that wait for it, and until when.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) chain: CallChain,
    pub(crate) due: Due,
}

impl Caller {
    /// Checks what can be checked before anything moves: the key's length, a turn that calls its
    /// own grain.
    #[inline]
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
            (Some(timeout), Some(inherited)) => {
                let now = target.node.clock().now();
                Due::at(now.after(timeout).min(inherited.settle(now)))
            }
            (Some(timeout), None) => Due::after(timeout),
            (None, Some(inherited)) => inherited,
            (None, None) => Due::after(target.node.response_timeout()),
        };
        Ok(Self { chain, due })
    }

    /// Runs the call's turn in place, if it is one that cannot suspend and nothing stands in its
    /// way.
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
    pub(crate) fn start(
        &self,
        method: &MethodInfo,
        activation: Held,
        slot: &mut dyn Slot,
    ) -> Result<BoxTurn, StartError> {
        activation.start(method.id, Input::Local(slot), self.due, self.chain.clone())
    }

    /// The call, as those see it who look for its grain.
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
         `client.bind(|| ..)`"
    ))
}

/// The failure that a turn's end stands for.
pub(crate) fn failure_of(end: TurnEnd) -> Failure {
    match end {
        TurnEnd::ActivationFailed(why) => Failure::rejected(Rejection::ActivationFailed(why)),
        TurnEnd::Refused(why) => Failure::refused(why),
        TurnEnd::Panicked(text) => Failure::panicked(text),
        TurnEnd::Unencodable(detail) => Failure::codec(true, detail),
        TurnEnd::Deadlock(circle) => Failure::deadlock(circle),
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
        let clock = self.head.target.0.node.clock();
        let begun = poll_begun(&mut self.turn, clock, cx, &mut Sink::Local(slot));
        self.unless_ended(begun)
    }

    /// Where the turn stands after a poll that was pending.
    pub(crate) fn standing(&mut self) -> Poll<Begun> {
        let begun = standing(&mut self.turn, self.head.target.0.node.clock());
        self.unless_ended(begun)
    }

    /// A turn that waits on a silo that has ended waits for nobody: whoever was inside was dropped,
    /// and no closer comes.
    fn unless_ended(&self, begun: Poll<Begun>) -> Poll<Begun> {
        match &self.head.target.0.node {
            Node::Silo(silo) if begun.is_pending() && silo.stopped.is_cancelled() => {
                Poll::Ready(Begun::Ended)
            }
            _ => begun,
        }
    }
}

/// What a turn on this silo came to.
pub(crate) enum LocalEnd {
    /// It has its output.
    Done(Box<dyn Slot>),
    /// It has its arguments again.
    Closed(Box<dyn Slot>, Option<SiloAddress>),
    Failed(Failure),
}

/// What ended a wait before the work did.
pub(crate) enum Interrupted {
    Deadline,
    Cancelled,
}

/// Waits for `work` until the deadline or the cancellation.
pub(crate) async fn bounded<T>(
    clock: &Clock,
    deadline: CoarseInstant,
    cancel: Option<&CancellationToken>,
    work: impl Future<Output = T> + Unpin,
) -> Result<T, Interrupted> {
    let cancelled = async {
        match cancel {
            Some(token) => token.cancelled().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        done = work => Ok(done),
        () = cancelled => Err(Interrupted::Cancelled),
        () = tokio::time::sleep_until(clock.tokio_at_coarse(deadline)) => Err(Interrupted::Deadline),
    }
}

pub(crate) fn interrupted(by: &Interrupted, maybe_executed: bool, whiling: &str) -> Failure {
    match by {
        Interrupted::Deadline => Failure::timeout(maybe_executed, whiling),
        Interrupted::Cancelled => Failure::cancelled(maybe_executed),
    }
}

pub(crate) fn overdue() -> Failure {
    interrupted(&Interrupted::Deadline, false, "waiting for its turn")
}

/// What a call comes to whose turn had begun when the silo ended.
pub(crate) fn dropped() -> Failure {
    unreachable_silo(None, true, "the silo ended while the turn was running".to_owned())
}

/// Waits in the caller's task while the turn waits for admission; once it has begun, it gets a task
/// of its own, so that a caller who gives up does not leave the grain half way, and `handed` is let
/// go.
pub(crate) async fn run_local(
    silo: &Arc<Calls>,
    mut turn: BoxTurn,
    mut slot: Box<dyn Slot>,
    caller: &Caller,
    cancel: Option<&CancellationToken>,
    handed: &mut Option<Handed>,
) -> LocalEnd {
    let deadline = caller.due.settle(silo.clock.now());
    let begun = {
        let mut sink = Sink::Local(&mut *slot);
        let begun = with_room(until_begun(&mut turn, &silo.clock, &mut sink));
        let begun = pin!(silo.host.fence.unless_shut(begun));
        bounded(&silo.clock, deadline, cancel, begun).await
    };
    match begun {
        Ok(Ok(Begun::Over(end))) => local_end(end, slot),
        Ok(Ok(Begun::Running)) => {
            *handed = None;
            run_apart(silo, turn, slot, deadline, cancel).await
        }
        Ok(Ok(Begun::Overdue)) => LocalEnd::Failed(given_up(turn, overdue())),
        Ok(Ok(Begun::Ended) | Err(Shut)) => {
            LocalEnd::Failed(given_up(turn, Failure::shutting_down()))
        }
        Err(by) => {
            let failure = interrupted(&by, false, "waiting for its turn");
            LocalEnd::Failed(given_up(turn, failure))
        }
    }
}

/// The failure of a call whose turn does not begin.
#[cold]
pub(crate) fn given_up(mut turn: BoxTurn, failure: Failure) -> Failure {
    match turn.as_mut().give_up() {
        Ok(()) => failure,
        Err(panic) => failure.and_panicked(panic),
    }
}

/// Gives a turn that has begun a task of its own, and waits for it.
pub(super) async fn run_apart(
    silo: &Arc<Calls>,
    mut turn: BoxTurn,
    mut slot: Box<dyn Slot>,
    deadline: CoarseInstant,
    cancel: Option<&CancellationToken>,
) -> LocalEnd {
    let (done, wait) = oneshot::channel();
    let driven = silo.clone();
    // Dropped with the caller's wait, whatever ends it.
    let asker = Arc::<Asker>::default();
    turn.as_mut().asked_by(asker.clone());
    let _asked = Asked(asker);
    silo.spawner.spawn(async move {
        if let Ok(end) = run_to_end(turn, &driven.host.fence, &mut Sink::Local(&mut *slot)).await {
            // Nobody waits for it any more.
            if let Err((_, mut slot)) = done.send((end, slot)) {
                empty(&mut *slot);
            }
        }
    });
    match bounded(&silo.clock, deadline, cancel, wait).await {
        Ok(Ok((end, slot))) => local_end(end, slot),
        // The silo ended, and dropped the turn where it stood.
        Ok(Err(_)) => LocalEnd::Failed(dropped()),
        Err(by) => LocalEnd::Failed(interrupted(&by, true, "the turn was running")),
    }
}

fn local_end(end: TurnEnd, slot: Box<dyn Slot>) -> LocalEnd {
    match end {
        TurnEnd::Done if matches!(slot.has(), Has::Output | Has::OwnError) => LocalEnd::Done(slot),
        TurnEnd::Closed(elsewhere) if slot.has() == Has::Args => LocalEnd::Closed(slot, elsewhere),
        end => LocalEnd::Failed(failure_of(end)),
    }
}

/// What a call comes to that was not sent.
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
