//! The handle of a turn that holds nothing of its grain while it waits.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::Grain;
use crate::hosting::{Activation, Closed, InterleaveError, Stay};

/// Access to a grain piece by piece, for a method that takes `Interleaved<Self>` instead of `&self`
/// or `&mut self`. Other turns, also `&mut self` ones, run between the pieces, so such a method may
/// wait for as long as it likes.
///
/// Each piece is a turn of its own and waits for its place. Between two pieces everything may have
/// changed.
pub struct Interleaved<G> {
    activation: Arc<Activation>,
    grain: PhantomData<fn() -> G>,
}

impl<G: Grain> Interleaved<G> {
    /// Looks at the grain, together with others that look.
    ///
    /// # Errors
    /// [`InterleaveError`] when the grain is no longer here, or waits for this call.
    pub async fn read<R>(&self, look: impl FnOnce(&G) -> R + Send) -> Result<R, InterleaveError> {
        let grain = self.activation.enter_shared().await?;
        let seen = look(grain.grain());
        grain.done();
        Ok(seen)
    }

    /// Changes the grain, alone.
    ///
    /// # Errors
    /// [`InterleaveError`] when the grain is no longer here, or waits for this call.
    pub async fn write<R>(
        &self,
        change: impl FnOnce(&mut G) -> R + Send,
    ) -> Result<R, InterleaveError> {
        let mut grain = self.activation.enter_exclusive().await?;
        let done = change(grain.grain());
        grain.done();
        Ok(done)
    }
}

impl<G> Interleaved<G> {
    const fn new(activation: Arc<Activation>) -> Self {
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

impl Activation {
    /// As [`admit_past`](Self::admit_past), for a turn that holds nothing of the grain while it
    /// waits. The grain stays in memory until the [`Stay`] is dropped.
    ///
    /// # Errors
    /// [`Closed`] when the grain is no longer here.
    pub async fn admit_interleaved<G>(self: &Arc<Self>) -> Result<(Interleaved<G>, Stay), Closed> {
        let admitted = self.admit_past().await?;
        // Before the lock is given back: no idle grain is taken away in between.
        let stay = Stay::begin(self);
        admitted.done();
        Ok((Interleaved::new(self.clone()), stay))
    }
}
