//! Which director carries out which strategy on this silo.

use std::collections::BTreeMap;
use std::fmt;

use emmer_core::SiloAddress;

use crate::directors::{Director, PlacementRequest, PreferLocalDirector, RandomDirector};
use crate::strategy::Strategy;

/// One silo's directors, and the strategy of the grain types that name none.
pub struct PlacementTable {
    directors: BTreeMap<Strategy, Box<dyn Director>>,
    default: Strategy,
}

impl PlacementTable {
    /// The in-built directors, their choices growing from `seed`; the default strategy is
    /// [`Strategy::Random`] (placement description: the default).
    pub fn new(seed: u64) -> Self {
        let mut table = Self { directors: BTreeMap::new(), default: Strategy::default() };
        table.register(Strategy::Random, Box::new(RandomDirector::new(seed)));
        // Another stream: the two directors must not choose in step.
        let other = seed ^ 0x9e37_79b9_7f4a_7c15;
        table.register(Strategy::PreferLocal, Box::new(PreferLocalDirector::new(other)));
        table
    }

    /// Lets `director` carry out `strategy` from now on; returns the one that did before.
    pub fn register(&mut self, strategy: Strategy, director: Box<dyn Director>) -> Option<Box<dyn Director>> {
        self.directors.insert(strategy, director)
    }

    /// The strategy of grain types that name none.
    pub const fn default_strategy(&self) -> &Strategy {
        &self.default
    }

    /// Replaces the strategy of grain types that name none.
    pub fn set_default_strategy(&mut self, strategy: Strategy) {
        self.default = strategy;
    }

    /// Chooses a silo for the grain of `request` by `strategy`, or by the default when it is none. `candidates`:
    /// the compatible Active silos in the order of their addresses, each once.
    ///
    /// # Errors
    /// [`PlaceError`], with nothing chosen.
    pub fn place(
        &mut self,
        strategy: Option<&Strategy>,
        request: &PlacementRequest<'_>,
        candidates: &[SiloAddress],
    ) -> Result<SiloAddress, PlaceError> {
        let strategy = strategy.unwrap_or(&self.default);
        if candidates.is_empty() {
            return Err(PlaceError::NoCandidate);
        }
        let director =
            self.directors.get_mut(strategy).ok_or_else(|| PlaceError::NoDirector(strategy.clone()))?;
        let chosen = director
            .choose(request, candidates)
            .ok_or_else(|| PlaceError::NothingChosen(strategy.clone()))?;
        if candidates.contains(&chosen) {
            Ok(chosen)
        } else {
            Err(PlaceError::NotACandidate { strategy: strategy.clone(), chosen })
        }
    }
}

impl fmt::Debug for PlacementTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlacementTable")
            .field("strategies", &self.directors.keys().collect::<Vec<_>>())
            .field("default", &self.default)
            .finish()
    }
}

/// Why no silo was chosen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// No Active silo can host the grain.
    #[error("no active silo can host the grain")]
    NoCandidate,
    /// No director is registered for the strategy.
    #[error("no placement director is registered for the strategy {0}")]
    NoDirector(Strategy),
    /// The strategy's director found none of the candidates fit.
    #[error("the placement director for {0} chose none of the candidates")]
    NothingChosen(Strategy),
    /// The strategy's director chose a silo that is no candidate.
    #[error("the placement director for {strategy} chose {chosen}, which is no candidate")]
    NotACandidate {
        /// The strategy.
        strategy: Strategy,
        /// What its director chose.
        chosen: SiloAddress,
    },
}

#[cfg(test)]
mod tests {
    use emmer_core::{GrainId, GrainTypeId};

    use super::*;

    /// Always chooses the same, or nothing.
    struct Fixed(Option<SiloAddress>);

    impl Director for Fixed {
        fn choose(&mut self, _: &PlacementRequest<'_>, _: &[SiloAddress]) -> Option<SiloAddress> {
            self.0
        }
    }

    fn silo(n: u16) -> SiloAddress {
        format!("10.0.0.1:{n}:1").parse().unwrap()
    }

    fn place(
        table: &mut PlacementTable,
        strategy: Option<&Strategy>,
        of: &[SiloAddress],
    ) -> Result<SiloAddress, PlaceError> {
        let grain = GrainId::new(GrainTypeId::of("g"), "k");
        let request = PlacementRequest { local: silo(2), grain: &grain, requesting: silo(1) };
        table.place(strategy, &request, of)
    }

    #[test]
    fn the_default_strategy_applies_and_can_be_replaced() {
        let mut table = PlacementTable::new(1);
        let of = [silo(1), silo(2), silo(3)];
        let spread: std::collections::BTreeSet<_> =
            (0..50).map(|_| place(&mut table, None, &of).unwrap()).collect();
        assert_eq!(spread.len(), 3);
        table.set_default_strategy(Strategy::PreferLocal);
        assert!((0..50).all(|_| place(&mut table, None, &of) == Ok(silo(2))));
        assert!((0..50).any(|_| place(&mut table, Some(&Strategy::Random), &of) != Ok(silo(2))));
    }

    #[test]
    fn a_registered_director_takes_over_and_is_held_to_the_candidates() {
        let mut table = PlacementTable::new(1);
        let of = [silo(1), silo(3)];
        let random = Strategy::Random;
        assert!(table.register(random.clone(), Box::new(Fixed(Some(silo(3))))).is_some());
        assert_eq!(place(&mut table, None, &of), Ok(silo(3)));
        table.register(random.clone(), Box::new(Fixed(Some(silo(9)))));
        let wrong = PlaceError::NotACandidate { strategy: random.clone(), chosen: silo(9) };
        assert_eq!(place(&mut table, None, &of), Err(wrong));
        table.register(random.clone(), Box::new(Fixed(None)));
        assert_eq!(place(&mut table, None, &of), Err(PlaceError::NothingChosen(random)));
    }

    #[test]
    fn no_candidates_is_an_error_of_its_own() {
        assert_eq!(place(&mut PlacementTable::new(1), None, &[]), Err(PlaceError::NoCandidate));
    }
}
