//! A call without its arguments.

use std::time::Duration;

use emmer_wire::RequestContext;
use tokio_util::sync::CancellationToken;

use super::target::Aim;
use crate::hosting::{Slot, TurnContext};
use crate::turn::{Extra, Failure, MethodInfo};

/// All of a call but its arguments, whatever its method.
pub(crate) struct CallHead {
    pub(crate) target: Aim,
    pub(crate) method: &'static MethodInfo,
    pub(crate) timeout: Option<Duration>,
    pub(crate) cancel: Option<CancellationToken>,
    /// Request context of the call itself, added to that of its turn.
    pub(crate) extra: Option<Box<Extra>>,
}

/// A call with its arguments, whose method is not known by type.
pub(crate) struct AnyCall {
    pub(crate) head: CallHead,
    pub(crate) slot: Box<dyn Slot>,
}

impl CallHead {
    /// Takes along what `put` adds to the context.
    pub(crate) fn take(&mut self, put: &dyn Fn(&RequestContext) -> Extra) {
        let extra = self.extra.get_or_insert_with(|| Box::new(Ok(RequestContext::EMPTY)));
        if let Ok(context) = &**extra {
            **extra = put(context);
        }
    }

    /// Copies the context of the current turn: the call may be made outside of it.
    pub(crate) fn take_turns_context(&mut self) {
        if let Some(turns) = TurnContext::request_context().filter(|turns| !turns.is_empty()) {
            let own = self.extra.take().map_or(Ok(RequestContext::EMPTY), |own| *own);
            self.extra = Some(Box::new(own.and_then(|own| turns.merged(&own))));
        }
    }

    /// The call, with what `slot` holds.
    pub(crate) fn with_slot(self, slot: &mut dyn Slot) -> AnyCall {
        AnyCall { head: self, slot: slot.boxed() }
    }

    /// The failure of this call.
    #[cold]
    pub(crate) fn failed(&self, failure: Failure) -> Box<Failure> {
        Box::new(failure.of(&*self.target.0, self.method.name))
    }
}
