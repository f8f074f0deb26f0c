//! Directors that have to wait for their answer.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use emmer_core::{GrainId, Instant, SiloAddress};
use serde::de::DeserializeOwned;

use super::{PlacementContext, PlacementTarget};
use crate::candidates::{Candidate, Surroundings};
use crate::strategy::{DataError, Strategy};

/// Why a director could not answer.
pub type DirectorError = Box<dyn std::error::Error + Send + Sync>;

/// The answer of a director that may have to wait for it.
pub type Choosing =
    Pin<Box<dyn Future<Output = Result<Option<SiloAddress>, DirectorError>> + Send>>;

/// All that a director looks at, to be kept while it waits.
#[derive(Clone, Debug)]
pub struct PlacementRequest {
    grain: GrainId,
    strategy: Strategy,
    requesting: SiloAddress,
    caller: Option<GrainId>,
    hint: Option<Arc<str>>,
    local: SiloAddress,
    silos: Arc<[SiloAddress]>,
    now: Instant,
    known: Arc<Surroundings>,
}

impl PlacementRequest {
    /// Copies the things, owned.
    pub fn new(
        target: &PlacementTarget<'_>,
        context: &PlacementContext<'_>,
        known: Arc<Surroundings>,
    ) -> Self {
        Self {
            grain: target.grain.clone(),
            strategy: target.strategy.clone(),
            requesting: target.requesting,
            caller: target.caller.cloned(),
            hint: target.hint.map(Arc::from),
            local: context.local,
            silos: context.silos.into(),
            now: context.now,
            known,
        }
    }

    /// The grain to be activated.
    pub const fn grain(&self) -> &GrainId {
        &self.grain
    }

    /// The data that the class gives its director.
    ///
    /// # Errors
    /// [`DataError::Read`] when it says nothing, or something else.
    pub fn data<T: DeserializeOwned>(&self) -> Result<T, DataError> {
        self.target().data()
    }

    /// The silos that the grain can go to, in the order of their addresses.
    pub fn candidates(&self) -> impl ExactSizeIterator<Item = Candidate<'_>> {
        self.silos.iter().map(|silo| self.known.of(*silo))
    }

    /// Their addresses.
    pub fn silos(&self) -> Arc<[SiloAddress]> {
        self.silos.clone()
    }

    /// Converts the request to the form for directors that do not wait.
    pub fn target(&self) -> PlacementTarget<'_> {
        PlacementTarget {
            grain: &self.grain,
            strategy: &self.strategy,
            requesting: self.requesting,
            caller: self.caller.as_ref(),
            hint: self.hint.as_deref(),
        }
    }

    /// Context for directors that do not wait.
    pub fn context(&self) -> PlacementContext<'_> {
        PlacementContext::new(self.local, &self.silos).with_surroundings(self.now, &self.known)
    }
}

/// Chooses the silo of a new activation, and may wait: for a database, another service. The call
/// waits for it until the call's deadline. Other calls continue, and calls of the same grain share
/// one answer.
pub trait AsyncDirector: Send + Sync {
    /// Chooses one of the request's candidates; None when none is suitable. After None, an error or
    /// a panic the call is rejected.
    fn choose(&self, request: PlacementRequest) -> Choosing;
}

impl<F, R> AsyncDirector for F
where
    F: Fn(PlacementRequest) -> R + Send + Sync,
    R: Future<Output = Result<Option<SiloAddress>, DirectorError>> + Send + 'static,
{
    fn choose(&self, request: PlacementRequest) -> Choosing {
        Box::pin(self(request))
    }
}
