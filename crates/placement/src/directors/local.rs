//! Local placement.

use emmer_core::SiloAddress;

use super::{Director, PlacementContext, PlacementTarget, RandomDirector};

/// Local placement: the local silo if it is compatible, otherwise a random one. A silo that is
/// leaving is not Active, so it is not chosen.
#[derive(Debug)]
pub struct PreferLocalDirector {
    otherwise: RandomDirector,
}

impl PreferLocalDirector {
    /// The director whose choices among other silos grow from `seed`.
    pub fn new(seed: u64) -> Self {
        Self { otherwise: RandomDirector::new(seed) }
    }
}

impl Director for PreferLocalDirector {
    fn choose(
        &self,
        target: &PlacementTarget<'_>,
        context: &PlacementContext<'_>,
    ) -> Option<SiloAddress> {
        if context.silos.contains(&context.local) {
            return Some(context.local);
        }
        self.otherwise.choose(target, context)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{chi_squared, counts, silos};
    use super::*;

    #[test]
    fn prefer_local_is_local_while_the_silo_is_compatible() {
        let silos = silos(4);
        let director = PreferLocalDirector::new(5);
        assert_eq!(counts(&director, silos[2], &silos, 100), [0, 0, 100, 0]);
        let found = counts(&director, silos[3], &silos[..3], 30_000);
        // 2 degrees of freedom: 13.8 is exceeded by chance once in a thousand seeds.
        assert!(chi_squared(&found) < 13.8, "{found:?}");
    }
}
