//! Placement on one silo: the silos there are, their loads and types, and the directors that
//! choose.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use emmer_core::{GrainId, SiloAddress};
use emmer_net::clock::Clock;
use emmer_placement::hosted::VersionSelector;
use emmer_placement::{
    AsyncDirector, Director, FewestDirector, PlaceError, Placed, PlacementContext,
    PlacementRequest, PlacementTable, PlacementTarget, Strategy,
};
use emmer_wire::{CallChain, HINT_KEY};

use super::choice::Wanted;
use super::load::LoadService;

/// A call whose grain is looked for.
#[derive(Clone, Copy)]
pub(crate) struct Sought<'a> {
    pub(crate) grain: &'a GrainId,
    pub(crate) method: u32,
    /// The turns that wait for the placement, and the context that travels with it.
    pub(crate) chain: &'a CallChain,
}

/// Result of a choice.
pub(crate) enum Chosen {
    At(SiloAddress),
    /// The director has to be asked, and may have to wait.
    Ask(Box<Question>),
}

/// Question to a director.
pub(crate) struct Question {
    pub(crate) director: Arc<dyn AsyncDirector>,
    pub(crate) request: PlacementRequest,
    /// Grain and method: open questions with the same key share one answer. None: this question has
    /// an answer of its own.
    pub(crate) key: Option<(GrainId, u32)>,
}

impl Question {
    /// `sought`: the call, if others of its grain would be asked the same.
    #[cold]
    fn new(
        director: Arc<dyn AsyncDirector>,
        request: PlacementRequest,
        sought: Option<Sought<'_>>,
    ) -> Box<Self> {
        let alike = sought.filter(|sought| sought.chain.context().get(HINT_KEY).is_none());
        let key = alike.map(|sought| (sought.grain.clone(), sought.method));
        Box::new(Self { director, request, key })
    }
}

/// Placement on one silo.
pub(crate) struct Placing {
    me: SiloAddress,
    clock: Clock,
    table: PlacementTable,
    /// Selector of the versions that get new activations.
    selector: VersionSelector,
    /// Knows the Active silos of the view in force, and how loaded they are.
    pub(crate) load: Arc<LoadService>,
    /// Placement of grains that leave this silo.
    fewest: FewestDirector,
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
        Self {
            me,
            clock,
            table,
            selector,
            load,
            fewest: FewestDirector::default(),
            outcomes: Default::default(),
        }
    }

    /// Strategy for grains of a type and a call of a method: the class's own, or the silo's
    /// default.
    fn strategy<'a>(&'a self, wanted: Wanted<'a>) -> &'a Strategy {
        let own = wanted.hosted.and_then(|hosted| hosted.placement.as_ref());
        own.unwrap_or_else(|| self.table.default_strategy())
    }

    /// The name of that strategy.
    pub(crate) fn strategy_name(&self, grain: &GrainId, method: u32) -> String {
        self.strategy(self.load.choice().wanted(grain.grain_type(), method)).name().to_owned()
    }

    /// Chooses the silo of a new activation: one of the Active silos that can serve the call,
    /// outside `avoid`, and this silo only if it is not leaving. `within` runs a director of the
    /// application.
    ///
    /// # Errors
    /// Reason of a failed choice.
    ///
    /// # Panics
    /// A director of the application's own does.
    pub(crate) fn choose(
        &self,
        sought: Sought<'_>,
        leaves: bool,
        avoid: &[SiloAddress],
        within: &dyn Fn(&mut dyn FnMut()),
    ) -> Result<Chosen, PlaceError> {
        let chosen = self.choose_now(sought, leaves, avoid, within);
        let outcome = match &chosen {
            Ok(Chosen::At(silo)) => usize::from(*silo != self.me),
            // It is counted when the director has answered.
            Ok(Chosen::Ask(_)) => return chosen,
            Err(_) => 2,
        };
        self.outcomes[outcome].fetch_add(1, Ordering::Relaxed);
        chosen
    }

    /// Returns true if a new activation goes to `owner`, the silo that answers for the grain in the
    /// directory: its first call then needs no other message. So it is where the strategy leaves
    /// the choice to chance, as the ring is drawn by chance, too.
    pub(crate) fn goes_to_owner(
        &self,
        sought: Sought<'_>,
        avoid: &[SiloAddress],
        owner: SiloAddress,
    ) -> bool {
        if sought.chain.context().get(HINT_KEY).is_some() {
            return false;
        }
        let choice = self.load.choice();
        let wanted = choice.wanted(sought.grain.grain_type(), sought.method);
        let strategy = self.strategy(wanted);
        if !matches!(strategy, Strategy::Random | Strategy::SiloRole(_)) {
            return false;
        }
        let silos = choice.candidates(wanted, strategy.role(), self.selector, avoid);
        let goes = silos.is_ok_and(|silos| silos.binary_search(&owner).is_ok());
        if goes {
            self.count(Ok(&owner));
        }
        goes
    }

    /// The silo with the fewest grains of those that may have a grain of this silo; none if its
    /// strategy does not leave the choice to chance or to numbers.
    pub(crate) fn refuge(&self, grain: &GrainId, method: u32) -> Option<SiloAddress> {
        let choice = self.load.choice();
        let wanted = choice.wanted(grain.grain_type(), method);
        let strategy = self.strategy(wanted);
        let is_free = matches!(
            strategy,
            Strategy::Random | Strategy::ActivationCount | Strategy::SiloRole(_)
        );
        if !is_free {
            return None;
        }
        let silos = choice.candidates(wanted, strategy.role(), self.selector, &[self.me]).ok()?;
        let context = PlacementContext::new(self.me, &silos)
            .with_surroundings(self.clock.mono(), &choice.known);
        self.fewest.choose(&PlacementTarget::new(grain, strategy, self.me), &context)
    }

    /// Returns true if a grain that placement put anywhere may be on `to` as well: its strategy
    /// leaves the choice to chance or load, and `to` is one of its silos.
    pub(crate) fn may_move(&self, grain: &GrainId, method: u32, to: SiloAddress) -> bool {
        let choice = self.load.choice();
        let is_free = matches!(
            self.strategy(choice.wanted(grain.grain_type(), method)),
            Strategy::Random
                | Strategy::ActivationCount
                | Strategy::ResourceOptimized
                | Strategy::SiloRole(_)
        );
        is_free && self.is_candidate(grain, method, to)
    }

    /// Returns true if placement may choose this silo for a call of a grain.
    pub(crate) fn may_be_here(&self, grain: &GrainId, method: u32) -> bool {
        self.is_candidate(grain, method, self.me)
    }

    fn is_candidate(&self, grain: &GrainId, method: u32, silo: SiloAddress) -> bool {
        let choice = self.load.choice();
        let wanted = choice.wanted(grain.grain_type(), method);
        let role = self.strategy(wanted).role();
        let silos = choice.candidates(wanted, role, self.selector, &[]);
        silos.is_ok_and(|silos| silos.contains(&silo))
    }

    /// Counts what a choice came to.
    pub(crate) fn count(&self, chosen: Result<&SiloAddress, &PlaceError>) {
        let outcome = chosen.map_or(2, |silo| usize::from(*silo != self.me));
        self.outcomes[outcome].fetch_add(1, Ordering::Relaxed);
    }

    /// The numbers of choices that fell on this silo, on another one, and on none.
    pub(crate) fn outcomes(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.outcomes.iter().map(|count| count.load(Ordering::Relaxed));
        ["here", "elsewhere", "failed"].into_iter().zip(counts)
    }

    #[inline]
    fn choose_now(
        &self,
        sought: Sought<'_>,
        leaves: bool,
        avoid: &[SiloAddress],
        within: &dyn Fn(&mut dyn FnMut()),
    ) -> Result<Chosen, PlaceError> {
        let choice = self.load.choice();
        let wanted = choice.wanted(sought.grain.grain_type(), sought.method);
        let strategy = self.strategy(wanted);
        let mut left_out = Cow::Borrowed(avoid);
        if leaves {
            // The view may not say so yet.
            left_out.to_mut().push(self.me);
        }
        let silos = choice.candidates(wanted, strategy.role(), self.selector, &left_out)?;
        let mut context = PlacementContext::new(self.me, &silos);
        if strategy.looks_at_load() {
            context = context.with_surroundings(self.clock.mono(), &choice.known);
        }
        let mut target = PlacementTarget::new(sought.grain, strategy, self.me);
        let along = sought.chain.context();
        if !along.is_empty()
            && let Some(hint) = along.get(HINT_KEY)
        {
            target = target.with_hint(hint);
        }
        let mut placed = None;
        if let Strategy::Custom(_) = strategy {
            target.caller = sought.chain.last().map(|caller| &caller.grain);
            within(&mut || placed = Some(self.table.place(&target, &context)));
        }
        match placed.unwrap_or_else(|| self.table.place(&target, &context))? {
            Placed::At(silo) => Ok(Chosen::At(silo)),
            Placed::Ask(director) => {
                let request = PlacementRequest::new(&target, &context, choice.known.clone());
                let key = (avoid.is_empty() && !leaves).then_some(sought);
                Ok(Chosen::Ask(Question::new(director, request, key)))
            }
        }
    }
}
