//! Where a call goes: finding a grain, or choosing a silo for it.

use std::sync::Arc;

use emmer_core::{GrainId, SiloAddress};
use emmer_directory::FailReason;
use emmer_placement::{PlaceError, PlacementContext};

use crate::calls::path::Hint;
use crate::cluster::locations::Locations;
use crate::grain::{CallError, Failure};
use crate::hosting::catalog::NotMade;
use crate::hosting::{AnyClass, RunActivation, contain};
use crate::silo::SiloCore;

/// Where a call goes.
pub(crate) enum Place {
    /// To an activation on this silo (which may still have to be activated).
    Here(Arc<dyn RunActivation>),
    /// To another silo. `placed`: the directory does not know the grain, this silo was chosen for it.
    There { peer: SiloAddress, placed: bool },
}

impl Hint {
    /// Tells those who remember where grains are.
    pub(crate) fn tell(self, locations: &Locations, grain: &GrainId) {
        match self {
            Self::Keep => {}
            Self::Forget(silo) => locations.forget(grain, silo),
            Self::At(silo) => locations.set(grain, silo),
        }
    }
}

impl SiloCore {
    /// Finds a grain: on this silo, where it was last seen, where the directory says, or where placement puts it.
    pub(crate) async fn locate(
        self: &Arc<Self>,
        id: &GrainId,
        avoid: &[SiloAddress],
    ) -> Result<Place, Failure> {
        if self.stopped.is_cancelled() {
            return Err(CallError::ShuttingDown);
        }
        // A fence that was shut opens no more, but the call may go elsewhere.
        let shut = self.fence.opened(&self.clock).await.is_err();
        if let Some(activation) = self.catalog.get(id) {
            return if shut { Err(CallError::ShuttingDown) } else { Ok(Place::Here(activation)) };
        }
        let usable =
            |peer: &SiloAddress| *peer != self.address && !avoid.contains(peer) && !self.pool.is_dead(*peer);
        if let Some(peer) = self.locations.get(id).filter(usable) {
            return Ok(Place::There { peer, placed: false });
        }
        let found = self.directory.lookup(self, id).await.map_err(|why| self.unavailable(why))?;
        match found {
            Some(at) if at.silo != self.address => Ok(Place::There { peer: at.silo, placed: false }),
            _ => self.place(id, avoid),
        }
    }

    /// As [`locate`](Self::locate) for a grain that is not in the catalog, without a wait: the new activation, when nothing
    /// but this silo is needed to know that the grain is nowhere and to choose this silo for it.
    pub(crate) fn create_now(self: &Arc<Self>, id: &GrainId) -> Option<Arc<dyn RunActivation>> {
        if self.is_fenced() || self.locations.get(id).is_some() {
            return None;
        }
        let found = self.directory.lookup_now(id)?;
        if found.is_some_and(|at| at.silo != self.address) {
            return None;
        }
        match self.place(id, &[]) {
            Ok(Place::Here(activation)) => Some(activation),
            _ => None,
        }
    }

    fn unavailable(&self, why: FailReason) -> Failure {
        if self.stopped.is_cancelled() {
            return CallError::ShuttingDown;
        }
        if why == FailReason::TooManyPending {
            self.metrics.refused();
            return CallError::Overloaded(format!("{why} on this silo (the directory's pending_max)"));
        }
        CallError::Unreachable { silo: None, maybe_executed: false, detail: why.to_string() }
    }

    fn place(self: &Arc<Self>, id: &GrainId, avoid: &[SiloAddress]) -> Result<Place, Failure> {
        let class = self.class_of(id)?;
        let mut candidates = self.candidates.read().clone();
        // The view may not say yet that this silo leaves.
        let leaves = !self.accepts_activations();
        if leaves || !avoid.is_empty() {
            let unusable = |s: &SiloAddress| avoid.contains(s) || (leaves && *s == self.address);
            candidates = candidates.iter().copied().filter(|s| !unusable(s)).collect();
        }
        let context = PlacementContext::new(self.address, &candidates);
        let own = class.placement();
        let strategy = own.as_ref().unwrap_or_else(|| self.placement.default_strategy());
        // A director may be the application's own.
        let chosen = contain(|| self.placement.place(strategy, id, self.address, &context));
        match chosen {
            Ok(Ok(silo)) if silo == self.address => self.create_here(id).map(Place::Here),
            Ok(Ok(peer)) => Ok(Place::There { peer, placed: true }),
            // The next view may have one.
            Ok(Err(why @ PlaceError::NoCandidate)) => {
                Err(CallError::Unreachable { silo: None, maybe_executed: false, detail: why.to_string() })
            }
            Ok(Err(why)) => Err(CallError::Rejected(why.to_string())),
            Err(words) => {
                let name = strategy.name();
                Err(CallError::Rejected(format!("the placement director {name:?} panicked: {words}")))
            }
        }
    }

    /// The activation of `id` on this silo, made if there is none.
    pub(crate) fn create_here(self: &Arc<Self>, id: &GrainId) -> Result<Arc<dyn RunActivation>, Failure> {
        let class = self.class_of(id)?;
        self.catalog.get_or_create(self, class, id).map_err(|why| match why {
            NotMade::Full => CallError::Overloaded("the silo holds as many activations as it may".to_owned()),
            NotMade::Closed => CallError::ShuttingDown,
        })
    }

    fn class_of(&self, id: &GrainId) -> Result<&Arc<dyn AnyClass>, Failure> {
        self.classes.get(&id.grain_type()).ok_or_else(|| {
            let mut known: Vec<_> = self.classes.values().map(|c| c.name()).collect();
            known.sort_unstable();
            CallError::Rejected(format!(
                "silo {} hosts no grain type with the number {} (it hosts: {})",
                self.address,
                id.grain_type(),
                known.join(", ")
            ))
        })
    }
}
