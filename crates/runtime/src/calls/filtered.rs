//! Calls with the caller's outgoing filters around them.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use emmer_wire::RequestContext;
use tokio::sync::Semaphore;

use crate::calls::future::{AnyCall, Way};
use crate::calls::invoke::{Caller, Finished};
use crate::calls::one_way::pass;
use crate::filters::{Around, FilterCall, Outcome, around};
use crate::grain::{CallError, CallHead, Failure, NoError, TurnContext};
use crate::hosting::{Has, Slot, contain, empty, let_go};
use crate::trace;

/// One-way calls of this process whose filters wait; one more is `Overloaded`.
const WAITING_MAX: usize = 100_000;

static WAITING: Semaphore = Semaphore::const_new(WAITING_MAX);

/// An awaited call. Its deadline holds for its filters, too.
pub(super) async fn awaited(call: AnyCall) -> Finished {
    let (target, method) = (call.head.target.share(), call.head.method);
    through_filters(call).await.map_err(|failure| Box::new((*failure).of(&target.0, method.name)))
}

async fn through_filters(call: AnyCall) -> Finished {
    let AnyCall { mut head, slot } = call;
    let filters = head.target.0.node.filters().cloned().unwrap_or_default();
    let (chain, inherited) = TurnContext::caller().map_err(Failure::refused)?;
    let due = Caller::check(&head, chain, inherited)?.due;
    let clock = head.target.0.node.clock();
    let deadline = clock.tokio_at_coarse(due.settle(clock.now()));
    let extra = head.extra.as_deref().and_then(|extra| extra.as_ref().ok());
    let told = FilterCall::outgoing(head.method, &head.target.0.id, extra);
    let passed = AtomicBool::new(false);
    let work = |context: Option<RequestContext>| {
        passed.store(true, Ordering::Relaxed);
        if let Some(context) = context {
            head.extra = Some(Box::new(Ok(context)));
        }
        Way::passed(head).finish(slot)
    };
    let outcome_of = |finished: &Finished| match finished {
        Ok(slot) if slot.has() == Has::OwnError => Outcome::own_error(),
        Ok(_) => Outcome::done(),
        Err(failure) => Outcome::failed(failure),
    };
    match tokio::time::timeout_at(deadline, around(&filters, told, work, outcome_of)).await {
        Ok(Around::Done(finished)) => finished,
        Ok(Around::Refused(why)) => Err(Failure::refused(why).into()),
        Ok(Around::GivenUp(why)) => {
            Err(Failure::timeout(true, format!("a filter gave the call up: {why}")).into())
        }
        Err(_elapsed) => Err(Failure::timeout(
            passed.load(Ordering::Relaxed),
            "a filter of the caller's did not end",
        )
        .into()),
    }
}

/// A one-way call. Its filters run here and now; only those that wait get a task.
pub(super) fn sent(head: CallHead, slot: &mut dyn Slot) -> Result<(), CallError<NoError>> {
    let (target, method) = (head.target.share(), head.method);
    sent_through(head, slot).map_err(|failure| failure.of(&target.0, method.name))
}

fn sent_through(mut head: CallHead, slot: &mut dyn Slot) -> Result<(), Failure> {
    head.take_turns_context();
    let (node, method) = (&head.target.0.node, head.method);
    let (Some(spawner), Some(filters)) = (node.spawner().cloned(), node.filters().cloned()) else {
        return pass(head, slot);
    };
    let timeout = head.timeout.unwrap_or_else(|| node.response_timeout());
    let extra = match head.extra.as_deref() {
        Some(Err(error)) => {
            empty(slot);
            return Err(Failure::refused(error));
        }
        Some(Ok(extra)) => Some(extra),
        None => None,
    };
    let told = FilterCall::outgoing(method, &head.target.0.id, extra);
    let mut slot = slot.boxed();
    let mut filtered: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(async move {
        let work = |context: Option<RequestContext>| {
            if let Some(context) = context {
                head.extra = Some(Box::new(Ok(context)));
            }
            async move { pass(head, &mut *slot) }
        };
        let outcome_of = |sent: &Result<(), CallError<NoError>>| match sent {
            Ok(()) => Outcome::done(),
            Err(failure) => Outcome::failed(failure),
        };
        match around(&filters, told, work, outcome_of).await {
            Around::Done(sent) => sent,
            Around::Refused(why) => Err(Failure::refused(why)),
            Around::GivenUp(_) => Err(Failure::cancelled(true)),
        }
    });
    let polled = || filtered.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    // Filters' panics are contained in it. This one is of the arguments, which a filter refused.
    match contain(polled) {
        Ok(Poll::Ready(sent)) => return sent,
        Err(panic) => return Err(Failure::refused(panic)),
        Ok(Poll::Pending) => {}
    }
    let Ok(permit) = WAITING.try_acquire() else {
        let_go(filtered);
        return Err(Failure::overloaded("the filters of too many one-way calls wait"));
    };
    spawner.spawn(trace::along(async move {
        match tokio::time::timeout(timeout, filtered).await {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => {
                tracing::debug!(method = method.name, %failure, "a one-way call failed");
            }
            Err(_) => {
                tracing::debug!(method = method.name, "a filter of a one-way call did not end");
            }
        }
        drop(permit);
    }));
    Ok(())
}
