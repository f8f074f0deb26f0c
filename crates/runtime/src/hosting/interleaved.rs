//! A turn that holds nothing of its grain while it waits.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use emmer_store::BoxFuture;

use super::{Activation, Exclusive, Shared};
use crate::grain::{Grain, TurnContext};

/// What a method gets that takes `Interleaved<Self>` in place of `&self` or `&mut self`: its grain,
/// piece by piece. Other turns run between the pieces, `&mut self` ones included, so such a method
/// may wait for as long as it likes.
///
/// Each piece is a turn of its own and waits for its place like any other. Between two of them
/// everything may have changed.
pub struct Interleaved<G> {
    activation: Arc<Activation>,
    grain: PhantomData<fn() -> G>,
}

/// Why a piece could not be had. The method goes on, without its grain.
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
    fn enter_shared(self: &Arc<Self>) -> BoxFuture<'_, Result<Shared<'_>, Left>> {
        Box::pin(async {
            let lock = unless_doomed(self.lock_shared(false)).await?;
            lock.grain().map_err(|_closed| Left::Gone)
        })
    }

    /// The same, alone.
    fn enter_exclusive(self: &Arc<Self>) -> BoxFuture<'_, Result<Exclusive<'_>, Left>> {
        Box::pin(async {
            let lock = unless_doomed(self.lock_exclusive()).await?;
            lock.grain().map_err(|_closed| Left::Gone)
        })
    }
}

impl<G: Grain> Interleaved<G> {
    /// Looks at the grain, beside others that look.
    ///
    /// # Errors
    /// [`Left`] when the grain is not here any more, or waits for this call.
    pub async fn read<R>(&self, look: impl FnOnce(&G) -> R + Send) -> Result<R, Left> {
        let grain = self.activation.enter_shared().await?;
        let seen = look(grain.grain());
        grain.done();
        Ok(seen)
    }

    /// Changes the grain, alone.
    ///
    /// # Errors
    /// [`Left`] when the grain is not here any more, or waits for this call.
    pub async fn write<R>(&self, change: impl FnOnce(&mut G) -> R + Send) -> Result<R, Left> {
        let mut grain = self.activation.enter_exclusive().await?;
        let done = change(grain.grain());
        grain.done();
        Ok(done)
    }
}

impl<G> Interleaved<G> {
    pub(super) const fn new(activation: Arc<Activation>) -> Self {
        Self { activation, grain: PhantomData }
    }
}

impl<G> Clone for Interleaved<G> {
    fn clone(&self) -> Self {
        Self::new(self.activation.clone())
    }
}

impl<G> fmt::Debug for Interleaved<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interleaved").finish_non_exhaustive()
    }
}
