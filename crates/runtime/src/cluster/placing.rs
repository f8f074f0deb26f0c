//! Where new activations go: the silos there are, what is known of them, and the directors that choose.

use std::sync::Arc;

use emmer_core::{GrainId, SiloAddress};
use emmer_membership::View;
use emmer_placement::{PlaceError, PlacementContext, PlacementTable, Strategy};
use parking_lot::RwLock;

use super::load::LoadService;
use crate::clock::Clock;

/// Placement on one silo.
pub(crate) struct Placing {
    me: SiloAddress,
    clock: Clock,
    table: PlacementTable,
    pub(crate) load: Arc<LoadService>,
    /// The Active silos of the view in force, in the order of their addresses.
    candidates: RwLock<Arc<[SiloAddress]>>,
}

impl Placing {
    /// No silo is known yet.
    pub(crate) fn new(me: SiloAddress, clock: Clock, table: PlacementTable, load: Arc<LoadService>) -> Self {
        Self { me, clock, table, load, candidates: RwLock::new(Arc::new([])) }
    }

    /// Takes up a new view.
    pub(super) fn install(&self, view: &View) {
        *self.candidates.write() = view.active().map(|member| member.address).collect();
        self.load.install(view);
    }

    /// How the grains of a class are placed, by its own strategy or by the silo's default.
    pub(crate) fn strategy<'a>(&'a self, own: Option<&'a Strategy>) -> &'a Strategy {
        own.unwrap_or_else(|| self.table.default_strategy())
    }

    /// The silo where a new activation of `grain` goes: one of the Active silos, none of `avoid`, and this one only if it does
    /// not leave.
    ///
    /// # Errors
    /// Why there is none.
    ///
    /// # Panics
    /// A director of the application's own does.
    pub(crate) fn choose(
        &self,
        grain: &GrainId,
        strategy: &Strategy,
        leaves: bool,
        avoid: &[SiloAddress],
    ) -> Result<SiloAddress, PlaceError> {
        let loads = self.load.loads();
        let mut candidates = self.candidates.read().clone();
        // The view may not say yet that this silo leaves.
        if leaves || !avoid.is_empty() {
            let unusable = |s: &SiloAddress| avoid.contains(s) || (leaves && *s == self.me);
            candidates = without(&candidates, unusable);
        }
        if loads.overloaded() > 0 {
            let others = without(&candidates, |s| loads.is_overloaded(s));
            // Where all are, one of them has to refuse.
            if !others.is_empty() {
                candidates = others;
            }
        }
        let context = PlacementContext::new(self.me, &candidates).with_loads(self.clock.mono(), &loads);
        self.table.place(strategy, grain, self.me, &context)
    }
}

/// Those of `silos` that can be used, in the same order.
fn without(silos: &[SiloAddress], unusable: impl Fn(&SiloAddress) -> bool) -> Arc<[SiloAddress]> {
    silos.iter().copied().filter(|silo| !unusable(silo)).collect()
}
