//! A call that another version of the class has to serve. It waits for the end of this activation,
//! and then goes to a silo with that version.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use emmer_core::SiloAddress;
use emmer_net::clock::Due;
use emmer_store::BoxFuture;
use emmer_wire::CallChain;

use super::turn::{Work, turn};
use super::{Activation, BoxTurn, Closed, Slot, StartError, TurnOutcome};
use crate::hosting::TurnContext;
use crate::turn::DeactivationReason;

/// Such a call. It never begins here.
struct Aside {
    /// The wait for the end of the activation; none once it has ended.
    wait: Option<BoxFuture<'static, Closed>>,
}

impl Activation {
    /// Ends this activation, so that `to` can have the grain. The turn ends when it is over.
    pub(super) fn aside(
        self: Arc<Self>,
        to: SiloAddress,
        due: Due,
        chain: CallChain,
    ) -> Result<BoxTurn, StartError> {
        self.check_queue()?;
        self.begin_closing(DeactivationReason::OtherVersion(to));
        let context = TurnContext::new(self.clone().into(), u16::MAX, true, due, chain, None);
        let wait: BoxFuture<'static, Closed> = Box::pin(async move {
            // The closer goes before this.
            let lock = self.lock_exclusive().await;
            lock.grain().err().unwrap_or(Closed::Gone)
        });
        Ok(turn(context, None, Aside { wait: Some(wait) }))
    }
}

impl Work for Aside {
    fn poll_work(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<TurnOutcome> {
        let Some(wait) = &mut self.wait else { return Poll::Pending };
        let closed = match ready!(wait.as_mut().poll(cx)) {
            // Why this class could not be activated is no affair of the call.
            Closed::Gone | Closed::Failed(_) => Closed::Gone,
            elsewhere @ Closed::Elsewhere(_) => elsewhere,
        };
        self.wait = None;
        Poll::Ready(TurnOutcome::Closed(closed))
    }

    fn slot(self: Pin<&mut Self>) -> Option<&mut dyn Slot> {
        None
    }

    fn clear(mut self: Pin<&mut Self>) {
        self.wait = None;
    }
}
