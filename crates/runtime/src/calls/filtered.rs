//! Calls with the caller's outgoing filters around them.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use emmer_wire::RequestContext;
use tokio::sync::Semaphore;

use crate::calls::future::CallFuture;
use crate::calls::invoke::{Caller, Finished};
use crate::calls::one_way::pass;
use crate::filters::{Around, FilterCall, Outcome, around};
use crate::grain::{Call, CallError, Failure, Method, NoError, TurnContext};
use crate::hosting::{contain, let_go};
use crate::trace;

/// One-way calls of this process whose filters wait; one more is `Overloaded`.
const WAITING_MAX: usize = 100_000;

static WAITING: Semaphore = Semaphore::const_new(WAITING_MAX);

/// An awaited call. Its deadline holds for its filters, too.
pub(super) async fn awaited<M: Method>(call: Call<M>) -> Finished<M> {
    let target = call.target.share();
    through_filters(call).await.map_err(|failure| Box::new((*failure).of(&target.0, M::NAME)))
}

async fn through_filters<M: Method>(mut call: Call<M>) -> Finished<M> {
    let filters = call.target.0.node.filters().cloned().unwrap_or_default();
    let (chain, inherited) = TurnContext::caller().map_err(Failure::refused)?;
    let due = Caller::check::<M>(&call, chain, inherited)?.due;
    let clock = call.target.0.node.clock();
    let deadline = clock.tokio_at_coarse(due.settle(clock.now()));
    let extra = call.extra.as_deref().and_then(|extra| extra.as_ref().ok());
    let told = FilterCall::outgoing::<M>(&call.target.0.id, extra);
    let passed = AtomicBool::new(false);
    let work = |context: Option<RequestContext>| {
        passed.store(true, Ordering::Relaxed);
        if let Some(context) = context {
            call.extra = Some(Box::new(Ok(context)));
        }
        let mut call = CallFuture::passed(call);
        async move { poll_fn(|cx| call.poll_finished(cx)).await }
    };
    let outcome_of = |finished: &Finished<M>| match finished {
        Ok(output) => Outcome::of::<M>(output),
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
pub(super) fn sent<M: Method>(call: Call<M>) -> Result<(), CallError<NoError>> {
    let target = call.target.share();
    sent_through(call).map_err(|failure| failure.of(&target.0, M::NAME))
}

fn sent_through<M: Method>(mut call: Call<M>) -> Result<(), Failure> {
    call.take_turns_context();
    let node = &call.target.0.node;
    let (Some(spawner), Some(filters)) = (node.spawner().cloned(), node.filters().cloned()) else {
        return pass(call);
    };
    let timeout = call.timeout.unwrap_or_else(|| node.response_timeout());
    let extra = match call.extra.as_deref() {
        Some(Err(error)) => {
            let failure = Failure::refused(error);
            let_go(call);
            return Err(failure);
        }
        Some(Ok(extra)) => Some(extra),
        None => None,
    };
    let told = FilterCall::outgoing::<M>(&call.target.0.id, extra);
    let mut filtered: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(async move {
        let work = |context: Option<RequestContext>| {
            if let Some(context) = context {
                call.extra = Some(Box::new(Ok(context)));
            }
            async move { pass(call) }
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
                tracing::debug!(method = M::NAME, %failure, "a one-way call failed");
            }
            Err(_) => tracing::debug!(method = M::NAME, "a filter of a one-way call did not end"),
        }
        drop(permit);
    }));
    Ok(())
}
