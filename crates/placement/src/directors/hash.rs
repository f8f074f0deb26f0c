//! Hash-based placement.

use emmer_core::SiloAddress;

use super::{Director, PlacementContext, PlacementTarget};

/// Hash-based placement: the hash of the grain's id, modulo the number of compatible silos in the
/// order of their addresses. Silos that see the same view choose alike. Another view may mean
/// another silo for a grain; one that is active stays where it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct HashDirector;

impl Director for HashDirector {
    fn choose(
        &self,
        target: &PlacementTarget<'_>,
        context: &PlacementContext<'_>,
    ) -> Option<SiloAddress> {
        let count = u64::try_from(context.silos.len()).ok().filter(|count| *count > 0)?;
        let place = usize::try_from(target.grain.stable_hash() % count).ok()?;
        context.silos.get(place).copied()
    }
}

#[cfg(test)]
mod tests {
    use emmer_core::{GrainId, GrainTypeId};

    use super::super::testing::{chi_squared, choose, counts, silos};
    use super::*;

    #[test]
    fn the_hash_chooses_the_same_silo_on_every_silo() {
        let silos = silos(7);
        for n in 0..500u64 {
            let grain = GrainId::new(GrainTypeId::of("g"), n);
            let place = usize::try_from(grain.stable_hash() % 7).unwrap();
            for local in &silos {
                assert_eq!(choose(&HashDirector, &grain, *local, &silos), Some(silos[place]));
            }
        }
    }

    #[test]
    fn keys_that_follow_each_other_are_spread() {
        let silos = silos(8);
        let found = counts(&HashDirector, silos[0], &silos, 80_000);
        // As for random placement: hashes of 80,000 keys in a row look as if drawn.
        assert!(chi_squared(&found) < 24.3, "{found:?}");
    }
}
