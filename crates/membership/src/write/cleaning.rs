//! Dead rows that no silo needs.

use std::collections::BTreeMap;
use std::time::Duration;

use emmer_core::limits::MEMBERSHIP_ROWS_PER_COMMIT_MAX;
use emmer_core::{Instant, SiloAddress, SiloEntry, SiloStatus, Timestamp};

use crate::facts::Facts;

/// Wall clocks are wrong by hours at most: those that wrote the rows, and this silo's.
const WALL_CLOCK_ERROR_MAX: Duration = Duration::from_secs(86_400);

/// Memory about rows that are to be deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Cleaning {
    /// Time at which Dead rows were looked for last.
    looked_at: Option<Instant>,
    /// Times at which each Dead row was first seen to be Dead, by this silo's own clock: the wall
    /// clocks that wrote the rows, and this one's, may be wrong by hours.
    dead_since: BTreeMap<SiloAddress, Instant>,
}

impl Cleaning {
    /// The Dead rows to delete, through a versioned commit like every other change, so that equal
    /// versions always mean equal rows. Done by the Active silo with the lowest address. None when
    /// it is not the time to look.
    pub(super) fn look(&mut self, facts: &Facts) -> Option<Vec<SiloAddress>> {
        let (now, config, view) = (facts.now(), facts.config(), facts.view());
        let period = config.defunct_silo_cleanup_period;
        let lowest = view.active().next().is_some_and(|row| row.address == facts.me());
        if period.is_zero() || !lowest || facts.standing().is_leaving() {
            return None;
        }
        let is_dead =
            |silo: &SiloAddress| view.get(silo).is_some_and(|row| row.status == SiloStatus::Dead);
        self.dead_since.retain(|silo, _| is_dead(silo));
        for row in view.members().iter().filter(|row| row.status == SiloStatus::Dead) {
            self.dead_since.entry(row.address).or_insert(now.mono);
        }
        let due = self.looked_at.is_none_or(|at| now.mono.saturating_since(at) >= period);
        let max = config.max_defunct_silo_entries as usize;
        let dead = view.members().iter().filter(|row| row.status == SiloStatus::Dead);
        let mut dead: Vec<(Timestamp, SiloAddress)> =
            dead.map(|row| (last_change(row), row.address)).collect();
        let excess = if max == 0 { 0 } else { dead.len().saturating_sub(max) };
        if !due && excess == 0 {
            return None;
        }
        self.looked_at = Some(now.mono);
        dead.sort_unstable();
        // A silo that was frozen while it joined must not find its dead row gone and join again
        // (I3): its max_join_attempt_time is over before the row goes.
        let keep = config.death_vote_expiration_timeout.max(config.max_join_attempt_time * 2);
        let expiration = config.defunct_silo_expiration.max(keep);
        let age = |at: Timestamp| now.wall.saturating_since(at);
        let seen = |silo: &SiloAddress| self.dead_since.get(silo).copied().unwrap_or(now.mono);
        // A silo in a crash loop never lives as long. What its wall clock says counts as well where
        // no clock is that wrong.
        let rested = |at: Timestamp, silo: &SiloAddress| {
            now.mono.saturating_since(seen(silo)) > keep || age(at) > keep + WALL_CLOCK_ERROR_MAX
        };
        let deletes = dead
            .iter()
            .enumerate()
            .filter(|(i, (at, silo))| rested(*at, silo) && (age(*at) > expiration || *i < excess))
            .map(|(_, (_, silo))| *silo)
            .take(MEMBERSHIP_ROWS_PER_COMMIT_MAX)
            .collect();
        Some(deletes)
    }
}

/// The latest time that `row` bears: a Dead row has at least the vote that killed it.
fn last_change(row: &SiloEntry) -> Timestamp {
    let votes = row.votes.iter().map(|v| v.at).max().unwrap_or_default();
    row.start_time.max(row.i_am_alive_time).max(votes)
}
