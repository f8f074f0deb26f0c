//! A call that another version of the class has to serve: it waits, in its turn, for the end of the
//! activation that is here, and goes on where the grain shall be.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use emmer_core::SiloAddress;
use emmer_wire::CallChain;

use super::turn::suspend;
use super::{
    Activation, BoxTurn, Closed, Progress, RunActivation, Sink, StartError, Turn, TurnEnd,
};
use crate::calls::waits::{Asker, Listing};
use crate::clock::{CoarseInstant, Due};
use crate::grain::{DeactivationReason, Grain, TurnContext};

/// Such a call. It never begins here.
struct Aside {
    wait: Pin<Box<dyn Future<Output = Closed> + Send>>,
    context: Option<TurnContext>,
    asker: Option<Arc<Asker>>,
    listing: Option<Listing>,
}

impl<G: Grain> Activation<G> {
    /// Ends this activation, so that `to` can have the grain. The turn ends when it is over.
    pub(super) fn aside(
        self: Arc<Self>,
        to: SiloAddress,
        due: Due,
        chain: CallChain,
    ) -> Result<BoxTurn, StartError> {
        self.check_queue()?;
        self.begin_closing(DeactivationReason::OtherVersion(to));
        let context = TurnContext::new(self.clone(), u16::MAX, true, due, chain, None);
        let wait = Box::pin(async move {
            // Whoever closes it stands before this.
            let lock = self.lock_exclusive().await;
            lock.grain().err().unwrap_or(Closed::Gone)
        });
        let aside = Aside { wait, context: Some(context), asker: None, listing: None };
        Ok(Box::pin(aside))
    }
}

impl Turn for Aside {
    fn poll_turn(self: Pin<&mut Self>, cx: &mut Context<'_>, _: &mut Sink<'_>) -> Poll<TurnEnd> {
        let Self { wait, context, asker, listing } = self.get_mut();
        let run = || wait.as_mut().poll(cx);
        let polled = match asker {
            None => TurnContext::scope(context, run),
            Some(asker) => TurnContext::scope_asked(context, asker, run),
        };
        match polled {
            Poll::Pending => {
                suspend(context, asker.as_ref(), listing).map_or(Poll::Pending, Poll::Ready)
            }
            Poll::Ready(closed) => Poll::Ready(match closed {
                // Why this class could not be activated is no affair of the call.
                Closed::Gone | Closed::Failed(_) => TurnEnd::Closed(None),
                Closed::Elsewhere(silo) => TurnEnd::Closed(Some(silo)),
            }),
        }
    }

    fn progress(&self) -> Progress {
        Progress::Waiting
    }

    fn settle(self: Pin<&mut Self>, now: u64) -> u64 {
        let now = CoarseInstant::from_millis(now);
        let context = self.get_mut().context.as_mut();
        context.map_or(CoarseInstant::LAST, |context| context.settle(now)).as_millis()
    }

    fn set_driven(self: Pin<&mut Self>) {
        if let Some(context) = &mut self.get_mut().context {
            context.set_driven();
        }
    }

    fn has_caller(&self) -> bool {
        self.context.as_ref().is_some_and(TurnContext::has_caller)
    }

    fn asked_by(self: Pin<&mut Self>, asker: Arc<Asker>) {
        self.get_mut().asker = Some(asker);
    }
}
