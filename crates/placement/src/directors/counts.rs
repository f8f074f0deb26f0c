//! Placement by the number of activations.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use emmer_core::rng::SeededRng;
use emmer_core::{Instant, SiloAddress};

use super::{Director, PlacementContext, PlacementTarget};

/// How long a silo that has just become Active is passed over now and then.
const WARM_UP: Duration = Duration::from_secs(30);

/// Placement by the number of recently busy activations (placement description; the power of two
/// choices of Mitzenmacher): the one of some silos, drawn at random, that is predicted to have the
/// fewest. The prediction is what the silo last reported and what this director has placed there
/// since. A silo that has not reported yet is taken for an average one.
///
/// A silo that has just joined has few, and would get most of what is new. For its first thirty
/// seconds it is passed over now and then.
#[derive(Debug)]
pub struct ActivationCountDirector {
    choices: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    rng: SeededRng,
    placed: BTreeMap<SiloAddress, Placed>,
}

/// What was placed on a silo since a report.
#[derive(Clone, Copy, Debug)]
struct Placed {
    /// When that report came; none while there is none.
    since: Option<Instant>,
    count: u32,
}

impl ActivationCountDirector {
    /// How many silos are drawn where nothing else is said.
    pub const CHOICES: usize = 2;

    /// The director that draws `choices` silos (at least one); what it draws grows from `seed`.
    /// Silos need different seeds.
    pub fn new(seed: u64, choices: usize) -> Self {
        let state = State { rng: SeededRng::new(seed), placed: BTreeMap::new() };
        Self { choices: choices.max(1), state: Mutex::new(state) }
    }
}

impl State {
    /// How many busy activations `silo` is believed to have.
    fn predicted(&self, silo: &SiloAddress, context: &PlacementContext<'_>) -> u32 {
        let report = context.loads.of(silo).and_then(|known| known.report);
        let placed =
            self.placed.get(silo).filter(|placed| placed.since == report.map(|(_, at)| at));
        let reported = report.map_or_else(|| context.loads.mean_busy(), |(report, _)| report.busy);
        reported.saturating_add(placed.map_or(0, |placed| placed.count))
    }

    fn note(&mut self, silo: SiloAddress, context: &PlacementContext<'_>) {
        let since = context.loads.of(&silo).and_then(|known| known.report).map(|(_, at)| at);
        let placed = self.placed.entry(silo).or_insert(Placed { since, count: 0 });
        if placed.since != since {
            *placed = Placed { since, count: 0 };
        }
        placed.count = placed.count.saturating_add(1);
        // Those that left are of no use. Some that can be had another time may not be candidates.
        if self.placed.len() > 2 * context.loads.iter().len().max(context.silos.len()) {
            let is_there = |silo: &SiloAddress| {
                context.loads.of(silo).is_some() || context.silos.contains(silo)
            };
            self.placed.retain(|silo, _| is_there(silo));
        }
    }

    /// Draws one of the silos that are not in `drawn`, whose places are in order.
    fn draw(&mut self, drawn: &[usize], len: usize) -> Option<usize> {
        let left = len.checked_sub(drawn.len()).filter(|left| *left > 0)?;
        let place = self.rng.index(left);
        Some(
            drawn
                .iter()
                .fold(place, |place, before| if *before <= place { place + 1 } else { place }),
        )
    }

    /// Whether a silo that was drawn is left out this once, since it has just joined.
    fn is_spared(&mut self, silo: &SiloAddress, context: &PlacementContext<'_>) -> bool {
        let Some(since) = context.loads.of(silo).and_then(|known| known.since) else {
            return false;
        };
        let warm = context.now.saturating_since(since).as_secs_f64() / WARM_UP.as_secs_f64();
        warm < 1.0 && !self.rng.chance(warm)
    }
}

impl Director for ActivationCountDirector {
    fn choose(
        &self,
        _: &PlacementTarget<'_>,
        context: &PlacementContext<'_>,
    ) -> Option<SiloAddress> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut drawn, mut best) = (Vec::with_capacity(self.choices), None);
        while drawn.len() < self.choices
            && let Some(place) = state.draw(&drawn, context.silos.len())
        {
            drawn.insert(drawn.partition_point(|before| *before < place), place);
            let silo = context.silos[place];
            let rank = (state.is_spared(&silo, context), state.predicted(&silo, context));
            if best.is_none_or(|(least, _)| rank < least) {
                best = Some((rank, silo));
            }
        }
        let (_, silo) = best?;
        state.note(silo, context);
        Some(silo)
    }
}

#[cfg(test)]
mod tests {
    use emmer_core::{GrainId, GrainTypeId};

    use super::super::testing::silos;
    use super::*;
    use crate::Strategy;
    use crate::load::{Known, LoadReport, Loads};

    /// What is known when each silo has so many busy activations, as of `at`.
    fn loads(silos: &[SiloAddress], busy: &[u32], at: Instant) -> Loads {
        let known = silos.iter().zip(busy).map(|(silo, busy)| {
            let report = LoadReport { busy: *busy, ..LoadReport::default() };
            Known { silo: *silo, since: None, report: Some((report, at)) }
        });
        Loads::new(known.collect())
    }

    fn choose(
        director: &dyn Director,
        silos: &[SiloAddress],
        loads: &Loads,
        now: Instant,
        key: u64,
    ) -> SiloAddress {
        let grain = GrainId::new(GrainTypeId::of("g"), key);
        let target = PlacementTarget {
            grain: &grain,
            strategy: &Strategy::ActivationCount,
            requesting: silos[0],
        };
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

    #[test]
    fn what_was_placed_on_a_silo_is_kept_while_it_is_there_though_others_are_the_candidates() {
        let silos = silos(8);
        let director = ActivationCountDirector::new(8, 8);
        let seen = loads(&silos, &[0; 8], Instant::ZERO);
        for n in 0..80 {
            choose(&director, &silos, &seen, Instant::ZERO, n);
        }
        // Calls that may go to few silos only, for a while.
        for n in 0..80 {
            choose(&director, &silos[6..], &seen, Instant::ZERO, n);
        }
        for n in 0..240 {
            choose(&director, &silos, &seen, Instant::ZERO, n);
        }
        let state = director.state.lock().unwrap();
        assert!(silos.iter().all(|silo| state.placed[silo].count == 50), "{:?}", state.placed);
    }

    #[test]
    fn silos_that_left_are_forgotten() {
        let director = ActivationCountDirector::new(9, 2);
        let everybody = silos(100);
        for (n, there) in everybody.chunks(4).enumerate() {
            let seen = loads(there, &[0; 4], Instant::ZERO);
            for key in 0..20 {
                choose(&director, there, &seen, Instant::ZERO, key);
            }
            let kept = director.state.lock().unwrap().placed.len();
            assert!(kept <= 8, "{kept} after {n} changes of all silos");
        }
    }

    #[test]
    fn one_that_has_just_joined_is_not_flooded() {
        let silos = silos(10);
        let director = ActivationCountDirector::new(7, 2);
        let mut known: Vec<_> =
            loads(&silos, &[1_000; 10], Instant::ZERO).iter().copied().collect();
        known[9].since = Some(Instant::ZERO);
        known[9].report = Some((LoadReport::default(), Instant::ZERO));
        let loads = Loads::new(known);
        let share = |secs: u64| {
            let now = Instant::from_millis(secs * 1_000);
            (0..1_000).filter(|n| choose(&director, &silos, &loads, now, *n) == silos[9]).count()
        };
        // Two draws of ten: 19 of a hundred would be its share with nothing said against it.
        let (at_once, warm) = (share(3), share(31));
        assert!(at_once < 90, "{at_once} of 1,000 within its first seconds");
        assert!(warm > 150, "{warm} of 1,000 later");
    }
}
