//! The pieces of a turn that holds nothing of its grain while it waits.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use emmer_store::BoxFuture;

use super::{Activation, Exclusive, Shared, TurnContext};

/// Reason why an [`Interleaved`](crate::grain::Interleaved) method gets no access to its grain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Left {
    /// The activation has ended.
    #[error("the activation has ended")]
    Gone,
    /// The grain waits for a turn that waits for this one: the circle.
    #[error("deadlock: {0}")]
    Deadlock(String),
}

/// Waits for a place, unless the wait turns out to be part of a circle.
async fn unless_doomed<T>(place: impl Future<Output = T>) -> Result<T, Left> {
    let mut place = pin!(place);
    std::future::poll_fn(|cx| match place.as_mut().poll(cx) {
        Poll::Ready(lock) => Poll::Ready(Ok(lock)),
        Poll::Pending => TurnContext::take_current_doom()
            .map_or(Poll::Pending, |cycle| Poll::Ready(Err(Left::Deadlock(cycle)))),
    })
    .await
}

impl Activation {
    /// Enters for a piece of a turn.
    pub(crate) fn enter_shared(self: &Arc<Self>) -> BoxFuture<'_, Result<Shared<'_>, Left>> {
        Box::pin(async {
            let lock = unless_doomed(self.lock_shared(false)).await?;
            lock.grain().map_err(|_closed| Left::Gone)
        })
    }

    /// Enters alone for a piece of a turn.
    pub(crate) fn enter_exclusive(self: &Arc<Self>) -> BoxFuture<'_, Result<Exclusive<'_>, Left>> {
        Box::pin(async {
            let lock = unless_doomed(self.lock_exclusive()).await?;
            lock.grain().map_err(|_closed| Left::Gone)
        })
    }
}
