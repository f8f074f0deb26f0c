//! Where new activations go: the silos there are, what is known of them, and the directors that
//! choose.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use emmer_core::{GrainId, SiloAddress};
use emmer_placement::hosted::VersionSelector;
use emmer_placement::{PlaceError, PlacementContext, PlacementTable, Strategy};

use super::choice::Wanted;
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
    /// Choices that fell on this silo, on another one, on none.
    outcomes: [AtomicU64; 3],
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
        Self { me, clock, table, selector, load, outcomes: Default::default() }
    }

    /// How grains of a type are placed for a call of a method: as a class says that has it, or by
    /// the silo's default.
    fn strategy<'a>(&'a self, wanted: Wanted<'a>) -> &'a Strategy {
        let own = wanted.hosted.and_then(|hosted| hosted.placement.as_ref());
        own.unwrap_or_else(|| self.table.default_strategy())
    }

    /// The name of that strategy.
    pub(crate) fn strategy_name(&self, grain: &GrainId, method: u32) -> String {
        self.strategy(self.load.choice().wanted(grain.grain_type(), method)).name().to_owned()
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
        let chosen = self.choose_now(grain, method, leaves, avoid);
        let outcome = chosen.as_ref().map_or(2, |silo| usize::from(*silo != self.me));
        self.outcomes[outcome].fetch_add(1, Ordering::Relaxed);
        chosen
    }

    /// The numbers of choices that fell on this silo, on another one, and on none.
    pub(crate) fn outcomes(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.outcomes.iter().map(|count| count.load(Ordering::Relaxed));
        ["here", "elsewhere", "failed"].into_iter().zip(counts)
    }

    fn choose_now(
        &self,
        grain: &GrainId,
        method: u32,
        leaves: bool,
        avoid: &[SiloAddress],
    ) -> Result<SiloAddress, PlaceError> {
        let choice = self.load.choice();
        let wanted = choice.wanted(grain.grain_type(), method);
        let strategy = self.strategy(wanted);
        let mut avoid = Cow::Borrowed(avoid);
        if leaves {
            // The view may not say so yet.
            avoid.to_mut().push(self.me);
        }
        let silos = choice.candidates(wanted, strategy.role(), self.selector, &avoid)?;
        let mut context = PlacementContext::new(self.me, &silos);
        if strategy.looks_at_load() {
            context = context.with_loads(self.clock.mono(), &choice.loads);
        }
        self.table.place(strategy, grain, self.me, &context)
    }
}
