//! Random placement.

use std::sync::{Mutex, PoisonError};

use emmer_core::SiloAddress;
use emmer_core::rng::SeededRng;

use super::{Director, PlacementContext, PlacementTarget};

/// Random placement: every compatible silo with the same probability.
#[derive(Debug)]
pub struct RandomDirector {
    rng: Mutex<SeededRng>,
}

impl RandomDirector {
    /// The director whose choices grow from `seed`. Silos need different seeds.
    pub fn new(seed: u64) -> Self {
        Self { rng: Mutex::new(SeededRng::new(seed)) }
    }
}

impl Director for RandomDirector {
    fn choose(
        &self,
        _: &PlacementTarget<'_>,
        context: &PlacementContext<'_>,
    ) -> Option<SiloAddress> {
        // One number is drawn at a time: nothing is half done after a panic.
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        context.silos.get(rng.index(context.silos.len())).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{chi_squared, counts, silos};
    use super::*;

    #[test]
    fn random_is_uniform_and_does_not_favour_the_local_silo() {
        let silos = silos(8);
        let found = counts(&RandomDirector::new(3), silos[0], &silos, 80_000);
        // 7 degrees of freedom: 24.3 is exceeded by chance once in a thousand seeds.
        assert!(chi_squared(&found) < 24.3, "{found:?}");
    }

    #[test]
    fn the_same_seed_chooses_alike_and_another_does_not() {
        let silos = silos(5);
        let choices = |seed| {
            let director = RandomDirector::new(seed);
            (0..50).map(|_| counts(&director, silos[0], &silos, 1)).collect::<Vec<_>>()
        };
        assert_eq!(choices(1), choices(1));
        assert_ne!(choices(1), choices(2));
    }
}
