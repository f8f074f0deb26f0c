//! Placement by the number of activations.

use std::sync::{Mutex, PoisonError};

use emmer_core::SiloAddress;

use super::draws::{Draws, predicted};
use super::{Director, PlacementContext, PlacementTarget};

/// Placement by the number of recently busy activations (placement description; the power of two
/// choices of Mitzenmacher). Of some silos drawn at random, the one with the lowest predicted
/// number is taken. The prediction is the silo's last report plus this director's placements since.
/// A silo without a report counts as an average one.
///
/// A silo that has just joined has few, and would get most new activations. For its first thirty
/// seconds it is passed over now and then.
#[derive(Debug)]
pub struct ActivationCountDirector {
    choices: usize,
    draws: Mutex<Draws>,
}

impl ActivationCountDirector {
    /// Number of silos that are drawn where nothing else is said.
    pub const CHOICES: usize = 2;

    /// The director that draws `choices` silos (at least one), at random from `seed`. Silos need
    /// different seeds.
    pub fn new(seed: u64, choices: usize) -> Self {
        Self { choices: choices.max(1), draws: Mutex::new(Draws::new(seed)) }
    }

    /// From now on draws `choices` silos (at least one).
    pub(crate) fn set_choices(&mut self, choices: usize) {
        self.choices = choices.max(1);
    }
}

impl Director for ActivationCountDirector {
    fn choose(
        &self,
        _: &PlacementTarget<'_>,
        context: &PlacementContext<'_>,
    ) -> Option<SiloAddress> {
        let mut draws = self.draws.lock().unwrap_or_else(PoisonError::into_inner);
        let mean = context.loads.mean().busy;
        let rank = |report, placed| predicted(mean, (report, placed));
        let silo = draws.best(self.choices, context, rank)?;
        draws.note(silo, context);
        Some(silo)
    }
}

#[cfg(test)]
mod tests {
    use emmer_core::{GrainId, GrainTypeId, Instant};

    use super::super::testing::{loads, silos};
    use super::*;
    use crate::Strategy;
    use crate::load::{LoadReport, Loads};

    fn choose(
        director: &dyn Director,
        silos: &[SiloAddress],
        loads: &Loads,
        now: Instant,
        key: u64,
    ) -> SiloAddress {
        let grain = GrainId::new(GrainTypeId::of("g"), key);
        let target = PlacementTarget::new(&grain, &Strategy::ActivationCount, silos[0]);
        let context = PlacementContext { now, loads, ..PlacementContext::new(silos[0], silos) };
        director.choose(&target, &context).unwrap()
    }

    /// The most loaded of 100 silos over the mean, after 100,000 placements at an even pace by 100
    /// directors, who see counts that are up to a second old, within `secs` seconds.
    fn worst_over_mean(choices: usize, secs: u64) -> f64 {
        let silos = silos(100);
        let directors: Vec<_> =
            (0..100).map(|n| ActivationCountDirector::new(n, choices)).collect();
        let mut counts = vec![0_u32; 100];
        let mut seen = loads(&silos, &counts, Instant::ZERO);
        for n in 0..100_000_u64 {
            let now = Instant::from_millis(n * secs / 100);
            if n % (100_000 / secs) == 0 {
                seen = loads(&silos, &counts, now);
            }
            let by = &directors[usize::try_from(n.wrapping_mul(0x9e37_79b9) % 100).unwrap()];
            let chosen = choose(by, &silos, &seen, now, n);
            counts[silos.iter().position(|silo| *silo == chosen).unwrap()] += 1;
        }
        f64::from(*counts.iter().max().unwrap()) / 1_000.0
    }

    #[test]
    fn two_choices_end_within_a_tenth_of_the_mean_and_nearer_than_one() {
        let worst = [1, 2, 3].map(|choices| worst_over_mean(choices, 30));
        assert!(worst[1] <= 1.1 && worst[2] <= 1.1 && worst[0] > worst[1], "{worst:?}");
    }

    #[test]
    fn a_silo_without_a_report_is_an_average_one_and_one_with_fewer_wins() {
        let silos = silos(2);
        let director = ActivationCountDirector::new(5, 4);
        let mut known: Vec<_> = loads(&silos, &[50, 0], Instant::ZERO).iter().copied().collect();
        known[1].report = None;
        let unknown = Loads::new(known);
        let chosen =
            |loads: &Loads, n| choose(&director, &silos, loads, Instant::ZERO, n) == silos[0];
        // As the average is that of the only one known, both get some.
        let first = (0..100).filter(|n| chosen(&unknown, *n)).count();
        assert!((20..=80).contains(&first), "{first}");
        let fewer = loads(&silos, &[50, 1_000], Instant::from_millis(1));
        assert!((0..100).all(|n| chosen(&fewer, n)), "the one with a thousand");
    }

    #[test]
    fn what_was_placed_since_a_report_counts() {
        let silos = silos(3);
        let director = ActivationCountDirector::new(6, 3);
        let seen = loads(&silos, &[0, 30, 60], Instant::ZERO);
        let mut counts = [0_u32, 30, 60];
        for n in 0..90 {
            let chosen = choose(&director, &silos, &seen, Instant::ZERO, n);
            counts[silos.iter().position(|silo| *silo == chosen).unwrap()] += 1;
        }
        assert!(counts.iter().all(|count| (45..=75).contains(count)), "{counts:?}");
    }

    /// Number of 1,000 grains that the last of ten silos gets in second `now`. It has no activation
    /// and became Active in second `since`; the others have a thousand each, and became Active in
    /// second 0.
    fn share_of_a_newcomer(since: u64, now: u64) -> usize {
        let silos = silos(10);
        let second = |n: u64| Instant::from_millis(n * 1_000);
        let mut known: Vec<_> =
            loads(&silos, &[1_000; 10], Instant::ZERO).iter().copied().collect();
        known[9].since = second(since);
        known[9].report = Some((LoadReport::default(), Instant::ZERO));
        let loads = Loads::new(known);
        let director = ActivationCountDirector::new(7, 2);
        let chosen = |n: u64| {
            let grain = GrainId::new(GrainTypeId::of("g"), n);
            let strategy = &Strategy::ActivationCount;
            let target = PlacementTarget::new(&grain, strategy, silos[0]);
            let context = PlacementContext::new(silos[0], &silos);
            let context = context.with_loads(second(now), &loads);
            director.choose(&target, &context).unwrap()
        };
        (0..1_000).filter(|n| chosen(*n) == silos[9]).count()
    }

    #[test]
    fn one_that_has_just_joined_is_not_flooded() {
        // Two draws of ten: 19 of a hundred is its share without any penalty.
        let (at_once, warm) = (share_of_a_newcomer(500, 503), share_of_a_newcomer(500, 531));
        assert!(at_once < 90, "{at_once} of 1,000 within its first seconds");
        assert!(warm > 150, "{warm} of 1,000 later");
    }

    #[test]
    fn in_a_cluster_that_is_new_as_a_whole_nobody_is_a_newcomer() {
        let share = share_of_a_newcomer(1, 10);
        assert!(share > 130, "{share} of 1,000 for the one that came a second later");
    }
}
