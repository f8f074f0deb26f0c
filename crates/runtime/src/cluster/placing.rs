//! Where new activations go: the silos there are, what is known of them, and the directors that
//! choose.

use std::sync::Arc;

use emmer_core::{GrainId, GrainTypeId, SiloAddress};
use emmer_placement::hosted::VersionSelector;
use emmer_placement::{PlaceError, PlacementContext, PlacementTable, Strategy};

use super::choice::Choice;

use super::load::LoadService;
use crate::clock::Clock;

/// Placement on one silo.
pub(crate) struct Placing {
    me: SiloAddress,
    clock: Clock,
    table: PlacementTable,
    /// Which versions get new activations.
    selector: VersionSelector,
    /// Knows the Active silos of the view in force, and how loaded they are.
    pub(crate) load: Arc<LoadService>,
}

impl Placing {
    /// No silo is known yet.
    pub(crate) fn new(
        me: SiloAddress,
        clock: Clock,
        table: PlacementTable,
        selector: VersionSelector,
        load: Arc<LoadService>,
    ) -> Self {
        Self { me, clock, table, selector, load }
    }

    /// How grains of a type are placed: by its own strategy, or by the silo's default.
    fn strategy<'a>(&'a self, choice: &'a Choice, grain_type: GrainTypeId) -> &'a Strategy {
        let own = choice.hosted.hosted_type(grain_type).and_then(|own| own.placement.as_ref());
        own.unwrap_or_else(|| self.table.default_strategy())
    }

    /// The name of the strategy of a grain type.
    pub(crate) fn strategy_name(&self, grain_type: GrainTypeId) -> String {
        self.strategy(&self.load.choice(), grain_type).name().to_owned()
    }

    /// Whether there is a silo where a new activation of `grain` could serve a call of a method.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn can_serve(&self, grain: &GrainId, method: u32) -> Result<(), PlaceError> {
        let choice = self.load.choice();
        let role = self.strategy(&choice, grain.grain_type()).role();
        choice.candidates(grain.grain_type(), method, role, self.selector).map(drop)
    }

    /// The silo where a new activation of `grain` goes, for a call of a method: one of the Active
    /// silos that can serve it, none of `avoid`, and this one only if it does not leave.
    ///
    /// # Errors
    /// Why there is none.
    ///
    /// # Panics
    /// A director of the application's own does.
    pub(crate) fn choose(
        &self,
        grain: &GrainId,
        method: u32,
        leaves: bool,
        avoid: &[SiloAddress],
    ) -> Result<SiloAddress, PlaceError> {
        let choice = self.load.choice();
        let strategy = self.strategy(&choice, grain.grain_type());
        let (grain_type, role) = (grain.grain_type(), strategy.role());
        let candidates = choice.candidates(grain_type, method, role, self.selector)?;
        let silos = &candidates[..];
        // The view may not say yet that this silo leaves.
        let unusable = |silo: &SiloAddress| avoid.contains(silo) || (leaves && *silo == self.me);
        let usable: Vec<SiloAddress>;
        let silos = if leaves || !avoid.is_empty() {
            usable = silos.iter().copied().filter(|silo| !unusable(silo)).collect();
            &usable
        } else {
            silos
        };
        let mut context = PlacementContext::new(self.me, silos);
        if strategy.looks_at_load() {
            context = context.with_loads(self.clock.mono(), &choice.loads);
        }
        self.table.place(strategy, grain, self.me, &context)
    }
}
