//! Faults that a test plants into a call before it sets off. The kernel's world has none.

use std::pin::pin;

use crate::calls::AnyCall;
use crate::calls::invoke::{Caller, Finished, bounded, interrupted};
use crate::calls::one_way::set_off;
use crate::calls::path::unreachable_silo;
use crate::calls::travel::travel;
use crate::calls::{CallHead, Node};
use crate::turn::NoError;
use crate::turn::{CallError, Failure};
use emmer_net::clock::Due;
use emmer_net::world::{self, CallFate, CallFault};

/// What this call meets in a virtual world; none where it goes its way.
pub(crate) fn fate(head: &CallHead) -> Option<CallFate> {
    let node = &head.target.0.node;
    if matches!(node, Node::Nowhere) {
        return None;
    }
    node.clock().fate_of_call(head.method.grain_type, head.method.name)
}

/// Makes a call that does not go its way unhindered.
pub(crate) async fn fated(call: AnyCall, caller: Caller, fate: CallFate) -> Finished {
    let (target, method) = (call.head.target.share(), call.head.method);
    suffer(call, caller, fate)
        .await
        .map_err(|failure| Box::new((*failure).of(&*target.0, method.name)))
}

async fn suffer(call: AnyCall, mut caller: Caller, fate: CallFate) -> Finished {
    let clock = call.head.target.0.node.clock();
    let deadline = caller.due.settle(clock.now());
    caller.due = Due::at(deadline);
    if !fate.delay.is_zero() {
        let delay = pin!(tokio::time::sleep(fate.delay));
        let waited = bounded(clock, deadline, call.head.cancel.as_ref(), delay).await;
        waited.map_err(|by| interrupted(&by, false, "the test delays the call"))?;
    }
    match fate.fault {
        None => travel(call, caller, None).await,
        Some(CallFault::LostAnswer) => {
            travel(call, caller, None).await?;
            let why = "the test lets the answer be lost".to_owned();
            Err(unreachable_silo(None, true, why).into())
        }
        Some(fault) => Err(failure(fault).into()),
    }
}

/// As [`fated`], for a call that nobody waits for: its caller hears only that a limit was reached.
pub(crate) fn send_fated(mut call: AnyCall, fate: CallFate) -> Result<(), CallError<NoError>> {
    match fate.fault {
        Some(CallFault::Overloaded) => {
            return Err(*call.head.failed(failure(CallFault::Overloaded)));
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

/// How a call fails that does not run.
fn failure(fault: CallFault) -> Failure {
    let why = "the test lets the call fail".to_owned();
    match fault {
        CallFault::Overloaded => Failure::overloaded(why),
        CallFault::Rejected => Failure::refused(why),
        CallFault::Unreachable | CallFault::LostAnswer => unreachable_silo(None, false, why),
    }
}
