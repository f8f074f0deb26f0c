//! Calls with the caller's outgoing filters around them.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use emmer_core::limits::CALL_CHAIN_MAX;
use emmer_store::BoxFuture;
use emmer_wire::RequestContext;
use tokio::sync::Semaphore;

use crate::calls::invoke::Finished;
use crate::calls::outset::{Caller, too_deep};
use crate::calls::{AnyCall, CallHead};
use crate::filters::{Around, FilterCall, Outcome, around};
use crate::hosting::{Has, Slot, TurnContext, empty};
use crate::trace;
use crate::turn::{CallError, Failure, MethodInfo, NoError, contain, contained, let_go};

/// Maximum one-way calls of this process whose filters wait. One more is `Overloaded`.
const WAITING_MAX: usize = 100_000;

static WAITING: Semaphore = Semaphore::const_new(WAITING_MAX);

thread_local! {
    /// The calls whose filters run on this stack, the outermost first.
    static NESTED: RefCell<Vec<&'static MethodInfo>> = const { RefCell::new(Vec::new()) };
}

/// The filters of one more call run on this stack, until it is dropped. A filter that makes a call
/// itself has the filters of that call below it, and no turn's chain counts them.
struct Nested(());

impl Nested {
    /// Enters the filters of a call.
    ///
    /// # Errors
    /// As many run already as a chain of calls may have links: filters call each other in a circle.
    fn enter(method: &'static MethodInfo) -> Result<Self, Failure> {
        NESTED.with_borrow_mut(|nested| {
            if nested.len() < CALL_CHAIN_MAX {
                nested.push(method);
                return Ok(Self(()));
            }
            let last = &nested[nested.len() - SHOWN_MAX..];
            let path: String = last
                .iter()
                .map(|method| format!("{}.{} -> ", method.interface, method.name))
                .collect();
            Err(Failure::refused(format!(
                "{CALL_CHAIN_MAX} calls wait for each other's filters: a filter makes a call that it \
                 filters itself (... -> {path}{}.{})",
                method.interface, method.name
            )))
        })
    }
}

/// The number of calls of a circle that its error names, the last ones.
const SHOWN_MAX: usize = 4;

impl Drop for Nested {
    fn drop(&mut self) {
        NESTED.with_borrow_mut(|nested| {
            nested.pop();
        });
    }
}

/// Continuation of an awaited call after its filters.
type GoOn = fn(AnyCall) -> BoxFuture<'static, Finished>;

/// Continuation of a one-way call after its filters.
type Pass = fn(CallHead, &mut dyn Slot) -> Result<(), CallError<NoError>>;

/// Runs the filters of an awaited call, then `go_on`. Its deadline includes the filters.
pub(super) async fn awaited(call: AnyCall, go_on: GoOn) -> Finished {
    let (target, method) = (call.head.target.share(), call.head.method);
    // A call that is refused drops its arguments here.
    let mut filtered = pin!(contained(through_filters(call, go_on)));
    let filtered = poll_fn(|cx| match Nested::enter(method) {
        Ok(_in) => filtered
            .as_mut()
            .poll(cx)
            .map(|ended| ended.unwrap_or_else(|panic| Err(Failure::panicked(panic).into()))),
        Err(circle) => Poll::Ready(Err(circle.into())),
    });
    filtered.await.map_err(|failure| Box::new((*failure).of(&*target.0, method.name)))
}

async fn through_filters(call: AnyCall, go_on: GoOn) -> Finished {
    let AnyCall { mut head, slot } = call;
    let filters = head.target.0.node.filters().cloned().unwrap_or_default();
    let (chain, inherited) = TurnContext::caller().map_err(|chain| too_deep(&head, &chain))?;
    let due = Caller::check(&head, chain, inherited)?.due;
    let clock = head.target.0.node.clock();
    let deadline = clock.tokio_at_coarse(due.settle(clock.now()));
    let extra = head.extra.as_deref().and_then(|extra| extra.as_ref().ok());
    let told = outgoing(head.method, &head.target.0.id, extra);
    let passed = AtomicBool::new(false);
    let work = |context: Option<RequestContext>| {
        passed.store(true, Ordering::Relaxed);
        if let Some(context) = context {
            head.extra = Some(Box::new(Ok(context)));
        }
        go_on(AnyCall { head, slot })
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
pub(super) fn sent(
    head: CallHead,
    slot: &mut dyn Slot,
    pass: Pass,
) -> Result<(), CallError<NoError>> {
    let (target, method) = (head.target.share(), head.method);
    sent_through(head, slot, pass).map_err(|failure| failure.of(&*target.0, method.name))
}

fn sent_through(mut head: CallHead, slot: &mut dyn Slot, pass: Pass) -> Result<(), Failure> {
    let nested = Nested::enter(head.method).inspect_err(|_| empty(slot))?;
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
    let told = outgoing(method, &head.target.0.id, extra);
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
    let polled = contain(polled);
    drop(nested);
    match polled {
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

/// An outgoing call as its filters see it; `extra` travels with it.
fn outgoing(
    method: &MethodInfo,
    grain: &emmer_core::GrainId,
    extra: Option<&RequestContext>,
) -> FilterCall {
    let turns = TurnContext::request_context().unwrap_or_default();
    // If both together are too much, the call is refused when it is made.
    let context = extra.and_then(|own| turns.merged(own).ok()).unwrap_or(turns);
    FilterCall::new(method, grain, TurnContext::own_grain(), context)
}
