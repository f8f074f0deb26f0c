//! The common part of directors that draw some silos and take the best of them.

use std::collections::BTreeMap;
use std::time::Duration;

use emmer_core::rng::SeededRng;
use emmer_core::{Instant, SiloAddress};

use super::PlacementContext;
use crate::load::{Known, LoadReport};

/// Time for which a silo that has just become Active is passed over now and then.
const WARM_UP: Duration = Duration::from_secs(30);

/// Draws silos, and remembers placements since the last reports.
#[derive(Debug)]
pub(super) struct Draws {
    rng: SeededRng,
    placed: BTreeMap<SiloAddress, Placed>,
}

/// Activations that were placed on a silo since a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Placed {
    /// Time at which that report came; None before the first report.
    since: Option<Instant>,
    count: u32,
}

/// The predicted number of recently busy activations: those of the silo's last report, or else the
/// `mean`, and those that were placed on it since.
pub(super) fn predicted(mean: f64, (report, placed): (Option<LoadReport>, u32)) -> f64 {
    report.map_or(mean, |report| f64::from(report.busy)) + f64::from(placed)
}

impl Draws {
    /// Creates the draws from `seed`.
    pub(super) fn new(seed: u64) -> Self {
        Self { rng: SeededRng::new(seed), placed: BTreeMap::new() }
    }

    /// The best of `choices` different silos, drawn at random: the one with the lowest rank, the
    /// first one on a tie. The rank is a silo's last report, if there is one, and the number of
    /// placements since. The caller notes the placement.
    pub(super) fn best(
        &mut self,
        choices: usize,
        context: &PlacementContext<'_>,
        rank: impl Fn(Option<LoadReport>, u32) -> f64,
    ) -> Option<SiloAddress> {
        let mut drawn = Vec::with_capacity(choices);
        let mut best: Option<((bool, f64), SiloAddress)> = None;
        while drawn.len() < choices
            && let Some(place) = self.draw(&drawn, context.silos.len())
        {
            drawn.insert(drawn.partition_point(|before| *before < place), place);
            let silo = context.silos[place];
            let known = context.loads.of(&silo);
            let (report, placed) = self.standing(&silo, known);
            let rank = (self.is_spared(known, context), rank(report, placed));
            if best.as_ref().is_none_or(|(least, _)| rank < *least) {
                best = Some((rank, silo));
            }
        }
        best.map(|(_, silo)| silo)
    }

    /// The last report of a silo of which this is `known`, and how many were placed on it since.
    pub(super) fn standing(
        &self,
        silo: &SiloAddress,
        known: Option<&Known>,
    ) -> (Option<LoadReport>, u32) {
        let (report, since) = known.and_then(|known| known.report).unzip();
        let placed = self.placed.get(silo).filter(|placed| placed.since == since);
        (report, placed.map_or(0, |placed| placed.count))
    }

    /// One more was placed on `silo`.
    pub(super) fn note(&mut self, silo: SiloAddress, context: &PlacementContext<'_>) {
        let since = context.loads.of(&silo).and_then(|known| known.report).map(|(_, at)| at);
        let placed = self.placed.entry(silo).or_insert(Placed { since, count: 0 });
        if placed.since != since {
            *placed = Placed { since, count: 0 };
        }
        placed.count = placed.count.saturating_add(1);
        // Entries of silos that left are of no use. Some that can be had another time may not be
        // candidates.
        if self.placed.len() > 2 * context.loads.iter().len().max(context.silos.len()) {
            let is_there = |silo: &SiloAddress| {
                context.loads.of(silo).is_some() || context.silos.contains(silo)
            };
            self.placed.retain(|silo, _| is_there(silo));
        }
    }

    /// Draws one of `len` silos that is not in `drawn`, whose places are in order.
    fn draw(&mut self, drawn: &[usize], len: usize) -> Option<usize> {
        let left = len.checked_sub(drawn.len()).filter(|left| *left > 0)?;
        let place = self.rng.index(left);
        Some(drawn.iter().fold(place, |place, before| place + usize::from(*before <= place)))
    }

    /// Returns true if a silo that was drawn is left out this once, since it has just become
    /// Active. In a cluster that is new as a whole its age counts together with that of the oldest.
    fn is_spared(&mut self, known: Option<&Known>, context: &PlacementContext<'_>) -> bool {
        let Some(known) = known else { return false };
        let age = |since| context.now.saturating_since(since).as_secs_f64();
        let warm_at = WARM_UP.as_secs_f64().min(age(context.loads.first_since()));
        let age = age(known.since);
        age < warm_at && !self.rng.chance(age / warm_at)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{loads, silos};
    use super::*;

    fn context<'a>(
        silos: &'a [SiloAddress],
        loads: &'a crate::load::Loads,
    ) -> PlacementContext<'a> {
        PlacementContext::new(silos[0], silos).with_loads(Instant::ZERO, loads)
    }

    #[test]
    fn what_was_placed_on_a_silo_is_kept_while_it_is_there_though_others_are_the_candidates() {
        let silos = silos(8);
        let mut draws = Draws::new(8);
        let seen = loads(&silos, &[0; 8], Instant::ZERO);
        for silo in &silos {
            draws.note(*silo, &context(&silos, &seen));
        }
        // Calls that may go to one silo only, for a while.
        for _ in 0..40 {
            draws.note(silos[7], &context(&silos[7..], &seen));
        }
        let placed = |silo| draws.standing(silo, seen.of(silo)).1;
        assert!(silos[..7].iter().all(|silo| placed(silo) == 1) && placed(&silos[7]) == 41);
        // A later report knows them.
        let later = loads(&silos, &[1; 8], Instant::from_millis(1));
        assert!(silos.iter().all(|silo| draws.standing(silo, later.of(silo)).1 == 0));
    }

    #[test]
    fn silos_that_left_are_forgotten() {
        let mut draws = Draws::new(9);
        for there in silos(100).chunks(4) {
            let seen = loads(there, &[0; 4], Instant::ZERO);
            for silo in there {
                draws.note(*silo, &context(there, &seen));
            }
            assert!(draws.placed.len() <= 8, "{} are kept", draws.placed.len());
        }
    }

    #[test]
    fn as_many_different_silos_are_drawn_as_are_asked_for_and_there_are() {
        let silos = silos(5);
        // So the number of busy activations tells which silo is ranked.
        let seen = loads(&silos, &[0, 1, 2, 3, 4], Instant::ZERO);
        for choices in 1..8 {
            let drawn = std::cell::RefCell::new(Vec::new());
            let rank = |report: Option<LoadReport>, _| {
                drawn.borrow_mut().push(silos[report.unwrap().busy as usize]);
                0.0
            };
            let best = Draws::new(4).best(choices, &context(&silos, &seen), rank);
            let mut drawn = drawn.into_inner();
            assert_eq!(best, drawn.first().copied(), "of equal ones the first");
            drawn.sort_unstable();
            drawn.dedup();
            assert_eq!(drawn.len(), choices.min(5));
        }
    }
}
