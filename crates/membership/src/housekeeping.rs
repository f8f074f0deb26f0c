//! What a silo looks after now and then: the dead who still speak, rows nobody needs any more,
//! stuck joiners.

use std::collections::BTreeMap;
use std::time::Duration;

use emmer_core::limits::MEMBERSHIP_ROWS_PER_COMMIT_MAX;
use emmer_core::{Instant, Now, SiloAddress, SiloEntry, SiloStatus, Timestamp};

use crate::api::TerminateReason;
use crate::inner::Read;
use crate::membership::Membership;
use crate::message::Message;
use crate::timers::Timer;

/// Wall clocks are wrong by hours at most: those that wrote the rows, and this silo's.
const WALL_CLOCK_ERROR_MAX: Duration = Duration::from_secs(86_400);

/// How often, at least, there is something to look after.
const HOUSEKEEPING_MAX: Duration = Duration::from_secs(10);

/// What is remembered about rows that are to be deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Cleaning {
    /// When Dead rows were looked for last.
    looked_at: Option<Instant>,
    /// When each Dead row was first seen to be Dead, by this silo's own clock: the wall clocks that
    /// wrote the rows, and this one's, may be wrong by hours.
    dead_since: BTreeMap<SiloAddress, Instant>,
}

impl Membership {
    pub(crate) fn schedule_housekeeping(&mut self, now: Now) {
        let pause = HOUSEKEEPING_MAX / 2 + self.out.dice().duration_below(HOUSEKEEPING_MAX / 2);
        self.out.timers().set(Timer::Housekeeping, now.mono + pause);
    }

    pub(crate) fn housekeep(&mut self, now: Now) {
        self.schedule_housekeeping(now);
        self.choose_peers();
        self.detect.suspect_stuck_joiners(&self.facts, &mut self.out);
        self.drain();
        self.clean_up(now);
        self.look_for_staleness(now);
    }

    /// Deletes Dead rows that nobody needs any more, through a versioned commit like every other
    /// change, so that equal versions always mean equal rows. Done by the Active silo with the
    /// lowest address.
    fn clean_up(&mut self, now: Now) {
        let period = self.facts.config().defunct_silo_cleanup_period;
        let lowest =
            self.facts.view().active().next().is_some_and(|row| row.address == self.facts.me());
        if period.is_zero() || !lowest || self.facts.standing().is_leaving() {
            return;
        }
        let view = self.facts.view().clone();
        let is_dead =
            |silo: &SiloAddress| view.get(silo).is_some_and(|row| row.status == SiloStatus::Dead);
        self.cleaning.dead_since.retain(|silo, _| is_dead(silo));
        for row in view.members().iter().filter(|row| row.status == SiloStatus::Dead) {
            self.cleaning.dead_since.entry(row.address).or_insert(now.mono);
        }
        let due = self.cleaning.looked_at.is_none_or(|at| now.mono.saturating_since(at) >= period);
        let max = self.facts.config().max_defunct_silo_entries as usize;
        let dead = self.facts.view().members().iter().filter(|row| row.status == SiloStatus::Dead);
        let mut dead: Vec<(Timestamp, SiloAddress)> =
            dead.map(|row| (last_change(row), row.address)).collect();
        let excess = if max == 0 { 0 } else { dead.len().saturating_sub(max) };
        if !due && excess == 0 {
            return;
        }
        self.cleaning.looked_at = Some(now.mono);
        dead.sort_unstable();
        // A silo that was frozen while it joined must not find its dead row gone and join again
        // (I3): by the time the row goes, its max_join_attempt_time is over.
        let keep = self
            .facts
            .config()
            .death_vote_expiration_timeout
            .max(self.facts.config().max_join_attempt_time * 2);
        let expiration = self.facts.config().defunct_silo_expiration.max(keep);
        let age = |at: Timestamp| now.wall.saturating_since(at);
        let seen =
            |silo: &SiloAddress| self.cleaning.dead_since.get(silo).copied().unwrap_or(now.mono);
        // A silo in a crash loop never lives for so long. What its wall clock says counts as well
        // where no clock is that wrong.
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
        self.writer.delete(deletes);
    }

    /// Whether `from` is dead in the view in force. It is told, and nothing it says counts:
    /// "everyone stops communicating with it". A silo whose row is missing from a later view than
    /// its own has been cleaned up.
    pub(crate) fn is_from_the_dead(
        &mut self,
        _now: Now,
        from: SiloAddress,
        message: &Message,
    ) -> bool {
        let dead = match self.facts.view().status_of(&from) {
            Some(status) => status == SiloStatus::Dead,
            None => match message {
                Message::Probe { version, .. } => {
                    *version > 0
                        && *version < self.facts.view().version()
                        && self.facts.standing().is_in_table()
                }
                _ => false,
            },
        };
        if dead && !matches!(message, Message::Obituary { .. }) {
            self.out.send(from, Message::Obituary { version: self.facts.view().version() });
        }
        dead
    }

    /// Somebody with a later view says that this silo is dead.
    pub(crate) fn on_obituary(&mut self, version: u64) {
        if version <= self.facts.view().version() {
            return;
        }
        if !self.facts.standing().is_in_table() {
            // It may have been inserted and declared dead before it saw its row: the table says so.
            self.table.want(Read::All);
        } else {
            let reason = if self.facts.standing().is_finishing() {
                TerminateReason::Left
            } else {
                TerminateReason::DeclaredDead
            };
            self.terminate(reason);
        }
    }
}

/// The latest time that `row` bears: a Dead row has at least the vote that killed it.
fn last_change(row: &SiloEntry) -> Timestamp {
    let votes = row.votes.iter().map(|v| v.at).max().unwrap_or_default();
    row.start_time.max(row.i_am_alive_time).max(votes)
}
