//! Faults that a test plants into a call before it sets off. The kernel's world has none.

use std::pin::pin;

use emmer_net::clock::Due;
use emmer_net::world::{CallFate, CallFault};

use crate::calls::AnyCall;
use crate::calls::invoke::{Finished, bounded, interrupted};
use crate::calls::outset::Caller;
use crate::calls::path::unreachable_silo;
use crate::calls::travel::travel;
use crate::turn::Failure;

/// Makes a call that meets a fault of the virtual world.
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

/// Failure of a call that a test lets fail before it runs.
pub(super) fn failure(fault: CallFault) -> Failure {
    let why = "the test lets the call fail".to_owned();
    match fault {
        CallFault::Overloaded => Failure::overloaded(why),
        CallFault::Rejected => Failure::refused(why),
        CallFault::Unreachable | CallFault::LostAnswer => unreachable_silo(None, false, why),
    }
}
