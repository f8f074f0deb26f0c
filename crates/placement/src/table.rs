//! Table of the directors that carry out the strategies on this silo.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use emmer_core::SiloAddress;

use crate::directors::{
    ActivationCountDirector, AsyncDirector, Director, HashDirector, PlacementContext,
    PlacementTarget, PreferLocalDirector, RandomDirector, ResourceDirector,
};
use crate::error::PlaceError;
use crate::strategy::Strategy;

/// One silo's directors, and the strategy of the grain types that name none.
pub struct PlacementTable {
    random: RandomDirector,
    prefer_local: PreferLocalDirector,
    activation_count: ActivationCountDirector,
    resource_optimized: ResourceDirector,
    custom: BTreeMap<String, Custom>,
    default: Strategy,
}

/// A director of the application's own.
enum Custom {
    Now(Box<dyn Director>),
    Later(Arc<dyn AsyncDirector>),
}

/// Result of a choice.
pub enum Placed {
    /// This silo gets the activation.
    At(SiloAddress),
    /// The director has to be asked, and may answer later; [`PlacementTable::answered`] handles its
    /// answer.
    Ask(Arc<dyn AsyncDirector>),
}

impl PlacementTable {
    /// The in-built directors, their choices growing from `seed`; the default strategy is
    /// [`Strategy::Random`] (placement description: the default).
    pub fn new(seed: u64) -> Self {
        // Other streams: the directors must not choose in step.
        let seeds = [0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03, 0x8cb9_2ba7_2f3d_8dd7];
        let [second, third, fourth] = seeds.map(|other| seed ^ other);
        Self {
            random: RandomDirector::new(seed),
            prefer_local: PreferLocalDirector::new(second),
            activation_count: ActivationCountDirector::new(third, ActivationCountDirector::CHOICES),
            resource_optimized: ResourceDirector::new(fourth),
            custom: BTreeMap::new(),
            default: Strategy::default(),
        }
    }

    /// Lets `director` carry out the custom strategies called `name` from now on, instead of the
    /// earlier director of that name.
    pub fn register(&mut self, name: impl Into<String>, director: Box<dyn Director>) {
        self.custom.insert(name.into(), Custom::Now(director));
    }

    /// Registers a director that may have to wait.
    pub fn register_later(&mut self, name: impl Into<String>, director: Arc<dyn AsyncDirector>) {
        self.custom.insert(name.into(), Custom::Later(director));
    }

    /// The strategy of grain types that name none.
    pub const fn default_strategy(&self) -> &Strategy {
        &self.default
    }

    /// Replaces the strategy of grain types that name none.
    pub fn set_default_strategy(&mut self, strategy: Strategy) {
        self.default = strategy;
    }

    /// Sets the number of silos that [`Strategy::ActivationCount`] draws (at least one);
    /// [`ActivationCountDirector::CHOICES`] before.
    pub fn set_activation_count_choices(&mut self, choices: usize) {
        self.activation_count.set_choices(choices);
    }

    /// Chooses a silo for a grain by its strategy. A hint that is the address of a candidate is
    /// followed by all strategies but the application's own, whose directors see the hint.
    ///
    /// # Errors
    /// [`PlaceError`], with nothing chosen.
    pub fn place(
        &self,
        target: &PlacementTarget<'_>,
        context: &PlacementContext<'_>,
    ) -> Result<Placed, PlaceError> {
        if context.silos.is_empty() {
            return Err(PlaceError::NoCandidate);
        }
        let strategy = target.strategy;
        let director: &dyn Director = match strategy {
            // The candidates have the role.
            Strategy::Random | Strategy::SiloRole(_) => &self.random,
            Strategy::PreferLocal => &self.prefer_local,
            Strategy::HashBased => &HashDirector,
            Strategy::ActivationCount => &self.activation_count,
            Strategy::ResourceOptimized => &self.resource_optimized,
            Strategy::Custom(custom) => match self.custom.get(custom.name()) {
                Some(Custom::Now(director)) => &**director,
                Some(Custom::Later(director)) => return Ok(Placed::Ask(director.clone())),
                None => return Err(PlaceError::NoDirector(strategy.clone())),
            },
        };
        if target.hint.is_some()
            && !matches!(strategy, Strategy::Custom(_))
            && let Some(hinted) = target.hint().filter(|silo| context.silos.contains(silo))
        {
            return Ok(Placed::At(hinted));
        }
        let chosen = director.choose(target, context);
        Self::answered(strategy, context.silos, chosen).map(Placed::At)
    }

    /// The silo that a director has chosen, if it is one of the candidates (`silos`, in the order
    /// of their addresses).
    ///
    /// # Errors
    /// [`PlaceError`] when the director chose none of the candidates.
    #[inline]
    pub fn answered(
        strategy: &Strategy,
        silos: &[SiloAddress],
        chosen: Option<SiloAddress>,
    ) -> Result<SiloAddress, PlaceError> {
        let chosen = chosen.ok_or_else(|| PlaceError::NothingChosen(strategy.clone()))?;
        if silos.binary_search(&chosen).is_ok() {
            Ok(chosen)
        } else {
            Err(PlaceError::NotACandidate { strategy: strategy.clone(), chosen })
        }
    }
}

impl fmt::Debug for PlacementTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlacementTable")
            .field("custom", &self.custom.keys().collect::<Vec<_>>())
            .field("default", &self.default)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use emmer_core::{GrainId, GrainTypeId, Instant};

    use crate::directors::PlacementRequest;

    use super::*;
    use crate::load::{Known, LoadReport, Loads};

    fn silo(n: u16) -> SiloAddress {
        format!("10.0.0.1:{n}:1").parse().unwrap()
    }

    fn place(
        table: &PlacementTable,
        strategy: Option<&Strategy>,
        of: &[SiloAddress],
    ) -> Result<SiloAddress, PlaceError> {
        let grain = GrainId::new(GrainTypeId::of("g"), "k");
        let strategy = strategy.unwrap_or_else(|| table.default_strategy());
        let target = PlacementTarget::new(&grain, strategy, silo(1));
        chosen(table.place(&target, &PlacementContext::new(silo(2), of)))
    }

    fn chosen(placed: Result<Placed, PlaceError>) -> Result<SiloAddress, PlaceError> {
        placed.map(|placed| match placed {
            Placed::At(silo) => silo,
            Placed::Ask(_) => panic!("nobody has to wait"),
        })
    }

    #[test]
    fn the_default_strategy_applies_and_can_be_replaced() {
        let mut table = PlacementTable::new(1);
        let of = [silo(1), silo(2), silo(3)];
        let spread: std::collections::BTreeSet<_> =
            (0..50).map(|_| place(&table, None, &of).unwrap()).collect();
        assert_eq!(spread.len(), 3);
        table.set_default_strategy(Strategy::PreferLocal);
        assert!((0..50).all(|_| place(&table, None, &of) == Ok(silo(2))));
        assert!((0..50).any(|_| place(&table, Some(&Strategy::Random), &of) != Ok(silo(2))));
    }

    #[test]
    fn so_many_silos_are_drawn_as_is_said() {
        let mut table = PlacementTable::new(1);
        let of: Vec<_> = (1..=10).map(silo).collect();
        // The last one is idle, and the others are busy.
        let report = |busy| LoadReport { busy, ..LoadReport::default() };
        let known = of.iter().map(|silo| {
            let busy = if *silo == of[9] { 0 } else { 100 };
            let report = Some((report(busy), Instant::ZERO));
            Known { report, ..Known::new(*silo, Instant::ZERO) }
        });
        let loads = Loads::new(known.collect());
        let grain = GrainId::new(GrainTypeId::of("g"), "k");
        let mut share = |choices| {
            table.set_activation_count_choices(choices);
            let draw = |table: &PlacementTable, at| {
                // Each draw sees a fresh report, so no placement since counts.
                let now = Instant::from_millis(at);
                let known = loads.iter().map(|known| Known {
                    report: known.report.map(|(report, _)| (report, now)),
                    ..*known
                });
                let loads = Loads::new(known.collect());
                let context = PlacementContext::new(silo(99), &of).with_loads(now, &loads);
                let by = Strategy::ActivationCount;
                let target = PlacementTarget::new(&grain, &by, silo(99));
                chosen(table.place(&target, &context)).unwrap()
            };
            (0..1_000).filter(|at| draw(&table, *at) == of[9]).count()
        };
        // One of ten is drawn with a tenth of the probability for each draw.
        for (choices, expected) in [(0, 100), (1, 100), (3, 300), (10, 1_000)] {
            let found = share(choices);
            assert!(found.abs_diff(expected) <= 50, "{choices} drawn: {found} of 1,000");
        }
    }

    #[test]
    fn a_custom_director_is_told_its_data_and_held_to_the_candidates() {
        let mut table = PlacementTable::new(1);
        let of = [silo(1), silo(3)];
        let strategy = |data: u16| Strategy::custom_with("fixed", &data).unwrap();
        assert_eq!(
            place(&table, Some(&strategy(3)), &of),
            Err(PlaceError::NoDirector(strategy(3)))
        );
        let fixed = |target: &PlacementTarget<'_>, _: &PlacementContext<'_>| {
            target.data().ok().filter(|port| *port > 0).map(silo)
        };
        table.register("fixed", Box::new(fixed));
        assert_eq!(place(&table, Some(&strategy(3)), &of), Ok(silo(3)));
        let wrong = PlaceError::NotACandidate { strategy: strategy(9), chosen: silo(9) };
        assert_eq!(place(&table, Some(&strategy(9)), &of), Err(wrong));
        let silent = Strategy::custom("fixed");
        assert_eq!(
            place(&table, Some(&silent), &of),
            Err(PlaceError::NothingChosen(silent.clone()))
        );
        table.set_default_strategy(strategy(1));
        assert_eq!(place(&table, None, &of), Ok(silo(1)));
    }

    #[test]
    fn a_director_that_waits_is_asked_later_with_all_that_it_looks_at() {
        let mut table = PlacementTable::new(1);
        let of = [silo(1), silo(3)];
        table.register_later(
            "late",
            Arc::new(|request: PlacementRequest| async move {
                let place: usize = request.data()?;
                Ok(request.candidates().nth(place).map(|one| one.address()))
            }),
        );
        let grain = GrainId::new(GrainTypeId::of("g"), "k");
        let strategy = Strategy::custom_with("late", &1).unwrap();
        let target = PlacementTarget::new(&grain, &strategy, silo(1));
        let context = PlacementContext::new(silo(2), &of);
        let Ok(Placed::Ask(director)) = table.place(&target, &context) else { panic!("it waits") };
        let request = PlacementRequest::new(&target, &context, Arc::default());
        let mut answer = director.choose(request);
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        let std::task::Poll::Ready(Ok(Some(chosen))) = answer.as_mut().poll(&mut cx) else {
            panic!("it has an answer")
        };
        assert_eq!(PlacementTable::answered(&strategy, &of, Some(chosen)), Ok(silo(3)));
        assert!(PlacementTable::answered(&strategy, &of, None).is_err());
        assert!(PlacementTable::answered(&strategy, &of, Some(silo(2))).is_err());
    }

    #[test]
    fn a_hint_that_is_a_candidate_is_followed_but_by_directors_of_ones_own() {
        let mut table = PlacementTable::new(1);
        let of = [silo(1), silo(2), silo(3)];
        let grain = GrainId::new(GrainTypeId::of("g"), "k");
        let hinted = |table: &PlacementTable, strategy: &Strategy, hint: &str| {
            let target = PlacementTarget::new(&grain, strategy, silo(1)).with_hint(hint);
            chosen(table.place(&target, &PlacementContext::new(silo(1), &of))).unwrap()
        };
        for strategy in Strategy::BUILT_IN {
            let said = (0..20).map(|_| hinted(&table, &strategy, &silo(2).to_string()));
            assert!(said.into_iter().all(|chosen| chosen == silo(2)), "{strategy}");
        }
        assert_eq!(hinted(&table, &Strategy::PreferLocal, &silo(9).to_string()), silo(1));
        assert_eq!(hinted(&table, &Strategy::PreferLocal, "nonsense"), silo(1));
        let third = |target: &PlacementTarget<'_>, context: &PlacementContext<'_>| {
            target.hint::<usize>().map(|place| context.silos[place])
        };
        table.register("own", Box::new(third));
        assert_eq!(hinted(&table, &Strategy::custom("own"), "2"), silo(3));
    }

    #[test]
    fn no_candidates_is_an_error_of_its_own() {
        let table = PlacementTable::new(1);
        assert_eq!(place(&table, None, &[]), Err(PlaceError::NoCandidate));
    }
}
