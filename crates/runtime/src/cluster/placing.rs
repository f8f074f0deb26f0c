//! Where new activations go: the silos there are, what is known of them, and the directors that
//! choose.

use std::borrow::Cow;
use std::sync::Arc;

use emmer_core::{GrainId, SiloAddress};
use emmer_placement::hosted::VersionSelector;
use emmer_placement::{PlaceError, PlacementContext, PlacementTable, Strategy};

use super::choice::{Choice, Wanted};

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

    /// How grains of a type are placed for a call of a method: as a class says that has it, or by
    /// the silo's default.
    fn strategy<'a>(&'a self, choice: &'a Choice, grain: &GrainId, method: u32) -> &'a Strategy {
        let hosted = choice.hosted.serving_type(grain.grain_type(), method);
        let own = hosted.and_then(|hosted| hosted.placement.as_ref());
        own.unwrap_or_else(|| self.table.default_strategy())
    }

    /// The name of that strategy.
    pub(crate) fn strategy_name(&self, grain: &GrainId, method: u32) -> String {
        self.strategy(&self.load.choice(), grain, method).name().to_owned()
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
        let strategy = self.strategy(&choice, grain, method);
        let (grain_type, role, selector) = (grain.grain_type(), strategy.role(), self.selector);
        let mut avoid = Cow::Borrowed(avoid);
        if leaves {
            // The view may not say so yet.
            avoid.to_mut().push(self.me);
        }
        let wanted = Wanted { grain_type, method, role, selector };
        let silos = choice.candidates(wanted, &avoid)?;
        let mut context = PlacementContext::new(self.me, &silos);
        if strategy.looks_at_load() {
            context = context.with_loads(self.clock.mono(), &choice.loads);
        }
        self.table.place(strategy, grain, self.me, &context)
    }
}
