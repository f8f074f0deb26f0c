//! Placement on the silo with the fewest activations, for grains that have to go somewhere else.

use std::sync::{Mutex, PoisonError};

use emmer_core::SiloAddress;

use super::draws::{Draws, predicted};
use super::{Director, PlacementContext, PlacementTarget};

/// Placement of grains that leave a silo: the silo with the fewest recently busy activations gets
/// the next one. The prediction is that of the placement by the
/// [number of activations](super::ActivationCountDirector). One silo moves all its grains, so no
/// crowd of directors chooses the same silo, and nothing has to be left to chance.
#[derive(Debug)]
pub struct FewestDirector {
    placed: Mutex<Draws>,
}

impl Default for FewestDirector {
    fn default() -> Self {
        Self { placed: Mutex::new(Draws::new(0)) }
    }
}

impl Director for FewestDirector {
    fn choose(
        &self,
        _: &PlacementTarget<'_>,
        context: &PlacementContext<'_>,
    ) -> Option<SiloAddress> {
        let mut placed = self.placed.lock().unwrap_or_else(PoisonError::into_inner);
        let mean = context.loads.mean().busy;
        let rank = |silo| predicted(mean, placed.standing(silo, context.loads.of(silo)));
        let fewest = context.silos.iter().map(|silo| (rank(silo), *silo));
        let (_, silo) = fewest.min_by(|one, other| one.0.total_cmp(&other.0))?;
        placed.note(silo, context);
        Some(silo)
    }
}

#[cfg(test)]
mod tests {
    use emmer_core::{GrainId, GrainTypeId, Instant};

    use super::super::testing::{loads, silos};
    use super::*;
    use crate::Strategy;

    #[test]
    fn grains_that_leave_fill_the_emptiest_silos_to_one_level() {
        let silos = silos(4);
        let director = FewestDirector::default();
        let seen = loads(&silos, &[0, 100, 400, 130], Instant::ZERO);
        let mut counts = [0, 100, 400, 130];
        for key in 0..200u64 {
            let grain = GrainId::new(GrainTypeId::of("g"), key);
            let target = PlacementTarget::new(&grain, &Strategy::Random, silos[0]);
            let context = PlacementContext::new(silos[0], &silos).with_loads(Instant::ZERO, &seen);
            let chosen = director.choose(&target, &context).unwrap();
            counts[silos.iter().position(|silo| *silo == chosen).unwrap()] += 1;
        }
        assert_eq!((counts[2], counts.iter().sum::<i32>()), (400, 830));
        assert!([0, 1, 3].iter().all(|n| (143..=144).contains(&counts[*n])), "{counts:?}");
    }
}
