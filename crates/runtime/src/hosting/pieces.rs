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
pub enum InterleaveError {
    /// The activation has ended.
    #[error("the activation has ended")]
    Gone,
    /// The grain waits for a turn that waits for this one: the circle.
    #[error("deadlock: {0}")]
    Deadlock(String),
}

/// Waits for a place, unless the wait turns out to be part of a circle.
async fn unless_doomed<T>(place: impl Future<Output = T>) -> Result<T, InterleaveError> {
    let mut place = pin!(place);
    std::future::poll_fn(|cx| match place.as_mut().poll(cx) {
        Poll::Ready(lock) => Poll::Ready(Ok(lock)),
        Poll::Pending => TurnContext::take_current_doom()
            .map_or(Poll::Pending, |cycle| Poll::Ready(Err(InterleaveError::Deadlock(cycle)))),
    })
    .await
}

impl Activation {
    /// Enters for a piece of a turn.
    pub(crate) fn enter_shared(
        self: &Arc<Self>,
    ) -> BoxFuture<'_, Result<Shared<'_>, InterleaveError>> {
        Box::pin(async {
            let lock = unless_doomed(self.lock_shared(false)).await?;
            lock.grain().map_err(|_closed| InterleaveError::Gone)
        })
    }

    /// Enters alone for a piece of a turn.
    pub(crate) fn enter_exclusive(
        self: &Arc<Self>,
    ) -> BoxFuture<'_, Result<Exclusive<'_>, InterleaveError>> {
        Box::pin(async {
            let lock = unless_doomed(self.lock_exclusive()).await?;
            lock.grain().map_err(|_closed| InterleaveError::Gone)
        })
    }
}

/// A turn that holds nothing of its grain, and keeps it in memory until the turn ends or its
/// deadline has passed.
pub struct Stay(Arc<Activation>);

impl Stay {
    /// Begins with the current turn.
    pub(crate) fn begin(activation: &Arc<Activation>) -> Self {
        let until = TurnContext::deadline(activation.host.clock.now());
        activation.host.kept.begin_turn(activation.number, until);
        Self(activation.clone())
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        let Self(activation) = self;
        activation.note_use(activation.host.clock.now());
        activation.host.kept.end_turn(activation.number);
    }
}
