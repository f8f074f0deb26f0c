//! Turns on this silo that were not over in their first poll.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use emmer_net::clock::{Clock, CoarseInstant};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::outset::{Caller, InlineDepth, failure_of, given_up, overdue};
use crate::calls::Calls;
use crate::calls::lanes::Handed;
use crate::calls::path::unreachable_silo;
use crate::cluster::Shut;
use crate::hosting::{
    Begun, BoxTurn, Elsewhere, Has, Sink, Slot, TurnEnd, empty, poll_begun, run_to_end,
};
use crate::turn::{Asked, Asker, Failure};

/// Result of a call that owns its slot: the slot with the output. The failure is in a box: a call
/// that succeeds then moves few bytes.
pub(crate) type Finished = Result<Box<dyn Slot>, Box<Failure>>;

/// Number of times that a turn waits for the stack to unwind. A turn further out may never let it:
/// its code waits for the call on the spot, in a `block_on` of its own.
const UNWINDS_MAX: u32 = 64;

/// Polls `work` where the stack has room for another turn. Otherwise it tries again once the stack
/// has unwound, and after [`UNWINDS_MAX`] tries on the stack as it is.
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

/// End of a turn on this silo.
pub(crate) enum LocalEnd {
    /// It has its output.
    Done(Box<dyn Slot>),
    /// It has its arguments again.
    Closed(Box<dyn Slot>, Option<Elsewhere>),
    Failed(Failure),
}

/// Event that ended a wait before the work did.
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

/// Failure of a call whose turn had begun when the silo ended.
pub(crate) fn dropped() -> Failure {
    unreachable_silo(None, true, "the silo ended while the turn was running".to_owned())
}

/// Waits in the caller's task while the turn waits for admission. A turn that has begun gets a task
/// of its own: a caller that gives up does not leave the grain half way. Lets `handed` go as soon
/// as the turn is settled in its grain.
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
        let begun = with_room(poll_fn(|cx| {
            let begun = poll_begun(&mut turn, &silo.clock, cx, &mut sink);
            if handed.is_some() && turn.is_settled() {
                *handed = None;
            }
            begun
        }));
        let begun = pin!(silo.host.fence.unless_shut(begun));
        bounded(&silo.clock, deadline, cancel, begun).await
    };
    match begun {
        Ok(Ok(Begun::Over(end))) => local_end(end, slot),
        Ok(Ok(Begun::Running)) => run_apart(silo, turn, slot, deadline, cancel, handed).await,
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

/// Gives a turn that has begun a task of its own, and waits for it. Lets `handed` go as soon as the
/// turn is settled in its grain.
pub(super) async fn run_apart(
    silo: &Arc<Calls>,
    mut turn: BoxTurn,
    mut slot: Box<dyn Slot>,
    deadline: CoarseInstant,
    cancel: Option<&CancellationToken>,
    handed: &mut Option<Handed>,
) -> LocalEnd {
    let (done, wait) = oneshot::channel();
    let driven = silo.clone();
    // Dropped with the caller's wait, whatever ends it.
    let asker = Arc::<Asker>::default();
    turn.as_mut().asked_by(asker.clone());
    let _asked = Asked(asker);
    let mut lane = handed.take();
    silo.spawner.spawn(async move {
        let mut sink = Sink::Local(&mut *slot);
        let mut settled = || lane = None;
        let ran = run_to_end(turn, &driven.host, &mut sink, Some(&mut settled)).await;
        if let Ok(end) = ran {
            // The caller may have given the call up.
            if let Err((_, mut slot, _)) = done.send((end, slot, lane)) {
                empty(&mut *slot);
            }
        }
    });
    match bounded(&silo.clock, deadline, cancel, wait).await {
        Ok(Ok((end, slot, lane))) => {
            *handed = lane;
            local_end(end, slot)
        }
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
