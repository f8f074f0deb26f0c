//! Where new activations go: the silos there are, what is known of them, and the directors that
//! choose.

use std::sync::Arc;

use emmer_core::{GrainId, SiloAddress};
use emmer_placement::{PlaceError, PlacementContext, PlacementTable, Strategy};

use super::load::LoadService;
use crate::clock::Clock;

/// Placement on one silo.
pub(crate) struct Placing {
    me: SiloAddress,
    clock: Clock,
    table: PlacementTable,
    /// Knows the Active silos of the view in force, and how loaded they are.
    pub(crate) load: Arc<LoadService>,
}

impl Placing {
    /// No silo is known yet.
    pub(crate) fn new(
        me: SiloAddress,
        clock: Clock,
        table: PlacementTable,
        load: Arc<LoadService>,
    ) -> Self {
        Self { me, clock, table, load }
    }

    /// How the grains of a class are placed, by its own strategy or by the silo's default.
    pub(crate) fn strategy<'a>(&'a self, own: Option<&'a Strategy>) -> &'a Strategy {
        own.unwrap_or_else(|| self.table.default_strategy())
    }

    /// The silo where a new activation of `grain` goes: one of the Active silos, none of `avoid`,
    /// and this one only if it does not leave.
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
        let choice = self.load.choice();
        let silos = match strategy.role() {
            None => &choice.silos[..],
            Some(role) => match choice.of_role(role) {
                [] => return Err(PlaceError::NoSiloOfRole(role)),
                silos => silos,
            },
        };
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
