//! Placement by what silos use of their resources.

use std::sync::{Mutex, PoisonError};

use emmer_core::SiloAddress;

use super::draws::Draws;
use super::{Director, PlacementContext, PlacementTarget};
use crate::load::{LoadReport, Loads};

/// The parts of the score, in percent: the use of the processors, that of the memory, and the
/// number of activations.
const WEIGHTS: [f64; 3] = [50.0, 30.0, 20.0];

/// With fewer activations than this on every silo, they hardly count.
const MANY_ACTIVATIONS: u32 = 100;

/// Percentage by which the local silo may be worse and still be taken.
const LOCAL_MARGIN: f64 = 5.0;

/// Resource-optimized placement, in the spirit of the original's: the square root of the number of
/// silos is drawn at random, and the silo with the lowest score is taken. The score is
///
/// ```text
/// 50 × processors in use + 30 × memory in use + 20 × activations / most activations of a silo
/// ```
///
/// where use is between 0 and 1, and the most activations are at least 100. Placements since the
/// last report count among the activations. The local silo is taken when its score is at most 5
/// above the lowest.
///
/// A figure that a silo does not report counts as the mean of the others. Where no silo reports
/// anything, every silo has the same probability.
#[derive(Debug)]
pub struct ResourceDirector {
    draws: Mutex<Draws>,
}

impl ResourceDirector {
    /// The director whose draws grow from `seed`. Silos need different seeds.
    pub fn new(seed: u64) -> Self {
        Self { draws: Mutex::new(Draws::new(seed)) }
    }
}

/// From 0 (idle) to 100, and more where much was placed since the last report.
fn score(report: Option<LoadReport>, placed: u32, loads: &Loads) -> f64 {
    let percent = |own: Option<u8>, mean: f64| own.map_or(mean, f64::from) / 100.0;
    let mean = loads.mean();
    let activations = report.map_or(mean.activations, |report| f64::from(report.activations));
    let parts = [
        percent(report.and_then(|report| report.cpu), mean.cpu),
        percent(report.and_then(|report| report.memory), mean.memory),
        (activations + f64::from(placed))
            / f64::from(loads.most_activations().max(MANY_ACTIVATIONS)),
    ];
    parts.into_iter().zip(WEIGHTS).map(|(part, weight)| part * weight).sum()
}

impl Director for ResourceDirector {
    fn choose(
        &self,
        _: &PlacementTarget<'_>,
        context: &PlacementContext<'_>,
    ) -> Option<SiloAddress> {
        let mut draws = self.draws.lock().unwrap_or_else(PoisonError::into_inner);
        let choices = context.silos.len().isqrt();
        let choices = choices + usize::from(choices * choices < context.silos.len());
        let rank = |report, placed| score(report, placed, context.loads);
        let mut silo = draws.best(choices, context, rank)?;
        let local = context.local;
        let score_of = |silo: &SiloAddress| {
            let (report, placed) = draws.standing(silo, context.loads.of(silo));
            rank(report, placed)
        };
        let is_known = context.loads.of(&local).is_some_and(|known| known.report.is_some());
        if is_known
            && context.silos.contains(&local)
            && score_of(&local) <= score_of(&silo) + LOCAL_MARGIN
        {
            silo = local;
        }
        draws.note(silo, context);
        Some(silo)
    }
}

#[cfg(test)]
mod tests {
    use emmer_core::{GrainId, GrainTypeId, Instant};

    use super::super::testing::{chi_squared, silos};
    use super::*;
    use crate::Strategy;
    use crate::load::Known;

    type Figures = (Option<u8>, Option<u8>, u32);

    /// Number of times each of the silos is chosen of `draws` times, `local` being the silo that
    /// places.
    fn chosen(figures: &[Option<Figures>], local: SiloAddress, draws: u64) -> Vec<u64> {
        let silos = silos(u16::try_from(figures.len()).unwrap());
        let known = silos.iter().zip(figures).map(|(silo, figures)| {
            let report = figures.map(|(cpu, memory, activations)| {
                (LoadReport { cpu, memory, activations, ..LoadReport::default() }, Instant::ZERO)
            });
            Known { report, ..Known::new(*silo, Instant::ZERO) }
        });
        let loads = Loads::new(known.collect());
        let mut counts = vec![0; silos.len()];
        for seed in 0..draws {
            let grain = GrainId::new(GrainTypeId::of("g"), seed);
            let target = PlacementTarget::new(&grain, &Strategy::ResourceOptimized, local);
            let context = PlacementContext::new(local, &silos).with_loads(Instant::ZERO, &loads);
            let chosen = ResourceDirector::new(seed).choose(&target, &context).unwrap();
            counts[silos.iter().position(|silo| *silo == chosen).unwrap()] += 1;
        }
        counts
    }

    /// A silo that is no candidate.
    fn elsewhere() -> SiloAddress {
        "10.9.9.9:1:1".parse().unwrap()
    }

    const fn idle() -> Option<Figures> {
        Some((Some(0), Some(0), 0))
    }

    #[test]
    fn each_resource_that_is_in_use_makes_a_silo_worse() {
        let worse = [(Some(20), Some(0), 0), (Some(0), Some(30), 0), (Some(0), Some(0), 200)];
        for figures in worse {
            // Two of four are drawn, so the worse one is never taken.
            let counts = chosen(&[idle(), idle(), idle(), Some(figures)], elsewhere(), 3_000);
            assert_eq!(counts[3], 0, "{figures:?}: {counts:?}");
            assert!(counts[..3].iter().all(|count| *count > 800), "{counts:?}");
        }
    }

    #[test]
    fn the_weights_are_those_of_the_page() {
        // 50 of 100 for the processors, 30 for the memory, 20 for the activations: the one with
        // the least sum wins a duel by one.
        let duel = |a: Figures, b: Figures| chosen(&[Some(a), Some(b)], elsewhere(), 20);
        assert_eq!(duel((Some(30), Some(0), 1), (Some(0), Some(49), 1)), [0, 20]);
        assert_eq!(duel((Some(30), Some(0), 1), (Some(0), Some(51), 1)), [20, 0]);
        assert_eq!(duel((Some(39), Some(0), 0), (Some(0), Some(0), 700)), [20, 0]);
        assert_eq!(duel((Some(41), Some(0), 0), (Some(0), Some(0), 700)), [0, 20]);
        // Few activations are no reason.
        assert_eq!(duel((Some(41), Some(0), 0), (Some(0), Some(0), 50)), [0, 20]);
    }

    #[test]
    fn the_local_silo_is_taken_when_it_is_not_much_worse() {
        let local = silos(4)[2];
        let with = |cpu| [idle(), idle(), Some((Some(cpu), Some(0), 0)), idle()];
        assert_eq!(chosen(&with(10), local, 500), [0, 0, 500, 0]);
        assert_eq!(chosen(&with(11), local, 500)[2], 0);
    }

    #[test]
    fn the_local_silo_is_taken_also_when_it_has_just_joined() {
        let silos = silos(4);
        let second = |n: u64| Instant::from_millis(n * 1_000);
        let report = |at| Some((LoadReport::default(), at));
        // The last of them came when the others had been there for a minute.
        let known = silos.iter().enumerate().map(|(n, silo)| {
            let since = second(if n == 3 { 60 } else { 0 });
            Known { report: report(second(61)), ..Known::new(*silo, since) }
        });
        let loads = Loads::new(known.collect());
        let share = |local| {
            let chosen = (0..1_000_u64).filter(|seed| {
                let grain = GrainId::new(GrainTypeId::of("g"), *seed);
                let strategy = &Strategy::ResourceOptimized;
                let target = PlacementTarget::new(&grain, strategy, local);
                let context = PlacementContext::new(local, &silos).with_loads(second(61), &loads);
                let director = ResourceDirector::new(*seed);
                director.choose(&target, &context).unwrap() == silos[3]
            });
            chosen.count()
        };
        assert_eq!(share(silos[3]), 1_000);
        assert!(share(elsewhere()) < 100, "the others pass it over now and then");
    }

    #[test]
    fn who_says_nothing_is_neither_better_nor_worse() {
        let busy = Some((Some(40), Some(40), 10));
        let quiet = Some((Some(20), Some(20), 4));
        // Better than the busier, worse than the quieter one.
        for other in [None, Some((None, Some(30), 7))] {
            let counts = chosen(&[other, busy, quiet, busy], elsewhere(), 2_000);
            assert!(counts[0] > 500 && counts[2] > 900, "{counts:?}");
        }
        let nobody = chosen(&[None; 9], silos(9)[4], 9_000);
        // 8 degrees of freedom: 26.1 is exceeded by chance once in a thousand seeds.
        assert!(chi_squared(&nobody) < 26.1, "{nobody:?}");
    }

    #[test]
    fn what_was_placed_since_a_report_counts_so_nobody_is_flooded() {
        let silos = silos(4);
        let known = silos.iter().map(|silo| {
            let report = LoadReport { activations: 100, ..LoadReport::default() };
            Known { report: Some((report, Instant::ZERO)), ..Known::new(*silo, Instant::ZERO) }
        });
        let loads = Loads::new(known.collect());
        let director = ResourceDirector::new(3);
        let context = PlacementContext::new(elsewhere(), &silos).with_loads(Instant::ZERO, &loads);
        let mut counts = [0_u32; 4];
        for n in 0..400_u64 {
            let grain = GrainId::new(GrainTypeId::of("g"), n);
            let target = PlacementTarget::new(&grain, &Strategy::ResourceOptimized, elsewhere());
            let chosen = director.choose(&target, &context).unwrap();
            counts[silos.iter().position(|silo| *silo == chosen).unwrap()] += 1;
        }
        assert!(counts.iter().all(|count| (95..=105).contains(count)), "{counts:?}");
    }
}
