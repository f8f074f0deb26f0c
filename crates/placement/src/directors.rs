//! Directors: what chooses a silo for a new activation.

use emmer_core::rng::SeededRng;
use emmer_core::{GrainId, SiloAddress};

/// What a director may look at besides the candidates.
#[derive(Clone, Copy, Debug)]
pub struct PlacementRequest<'a> {
    /// The silo that places: where the director runs.
    pub local: SiloAddress,
    /// The grain to be activated.
    pub grain: &'a GrainId,
    /// The silo the call came from: the local one for calls of its own grains and of its gateway's clients.
    pub requesting: SiloAddress,
}

/// Chooses the silo of a new activation.
pub trait Director: Send {
    /// Chooses one of `candidates`: the compatible silos that are Active in the placing silo's view, in the order
    /// of their addresses, each once. None when no candidate will do, above all when there is none.
    fn choose(&mut self, request: &PlacementRequest<'_>, candidates: &[SiloAddress]) -> Option<SiloAddress>;
}

/// Random placement: every candidate with the same probability.
#[derive(Clone, Debug)]
pub struct RandomDirector {
    rng: SeededRng,
}

impl RandomDirector {
    /// The director whose choices grow from `seed`. Silos need different seeds.
    pub fn new(seed: u64) -> Self {
        Self { rng: SeededRng::new(seed) }
    }
}

impl Director for RandomDirector {
    fn choose(&mut self, _: &PlacementRequest<'_>, candidates: &[SiloAddress]) -> Option<SiloAddress> {
        candidates.get(self.rng.index(candidates.len())).copied()
    }
}

/// Local placement: the local silo if it is among the candidates, otherwise a random one. A silo that is leaving is
/// not Active, hence no candidate, hence not chosen.
#[derive(Clone, Debug)]
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
    fn choose(&mut self, request: &PlacementRequest<'_>, candidates: &[SiloAddress]) -> Option<SiloAddress> {
        if candidates.contains(&request.local) {
            return Some(request.local);
        }
        self.otherwise.choose(request, candidates)
    }
}

#[cfg(test)]
mod tests {
    use emmer_core::GrainTypeId;

    use super::*;

    fn silos(n: u16) -> Vec<SiloAddress> {
        (0..n).map(|i| format!("10.0.0.1:{}:1", 1000 + i).parse().unwrap()).collect()
    }

    /// Who is chosen how often in `draws` draws.
    fn counts(director: &mut dyn Director, local: SiloAddress, of: &[SiloAddress], draws: u64) -> Vec<u64> {
        let mut counts = vec![0; of.len()];
        for n in 0..draws {
            let grain = GrainId::new(GrainTypeId::of("g"), n);
            let request = PlacementRequest { local, grain: &grain, requesting: local };
            let chosen = director.choose(&request, of).unwrap();
            counts[of.iter().position(|silo| *silo == chosen).unwrap()] += 1;
        }
        counts
    }

    /// Pearson's statistic against equal probabilities.
    fn chi_squared(counts: &[u64]) -> f64 {
        let expected = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
        counts.iter().map(|c| (*c as f64 - expected).powi(2) / expected).sum()
    }

    #[test]
    fn random_is_uniform_and_does_not_favour_the_local_silo() {
        let silos = silos(8);
        let found = counts(&mut RandomDirector::new(3), silos[0], &silos, 80_000);
        // 7 degrees of freedom: 24.3 is exceeded by chance once in a thousand seeds.
        assert!(chi_squared(&found) < 24.3, "{found:?}");
    }

    #[test]
    fn the_same_seed_chooses_alike_and_another_does_not() {
        let silos = silos(5);
        let choices = |seed| {
            let mut director = RandomDirector::new(seed);
            let grain = GrainId::new(GrainTypeId::of("g"), 1u64);
            let request = PlacementRequest { local: silos[0], grain: &grain, requesting: silos[1] };
            (0..50).map(|_| director.choose(&request, &silos).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(choices(1), choices(1));
        assert_ne!(choices(1), choices(2));
    }

    #[test]
    fn prefer_local_is_local_while_the_silo_is_a_candidate() {
        let silos = silos(4);
        let mut director = PreferLocalDirector::new(5);
        assert_eq!(counts(&mut director, silos[2], &silos, 100), [0, 0, 100, 0]);
        let found = counts(&mut director, silos[3], &silos[..3], 30_000);
        // 2 degrees of freedom: 13.8 is exceeded by chance once in a thousand seeds.
        assert!(chi_squared(&found) < 13.8, "{found:?}");
    }

    #[test]
    fn nobody_is_chosen_from_nobody() {
        let local = silos(1)[0];
        let grain = GrainId::new(GrainTypeId::of("g"), 1u64);
        let request = PlacementRequest { local, grain: &grain, requesting: local };
        assert_eq!(RandomDirector::new(1).choose(&request, &[]), None);
        assert_eq!(PreferLocalDirector::new(1).choose(&request, &[]), None);
    }
}
