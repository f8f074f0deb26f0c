//! Which rows are stale: their silos have not touched them for too long (membership description,
//! step 14; improvement 8).
//!
//! The default judges by the local time since the value last moved, so that no two clocks are ever
//! compared; `classic` compares the written time with the own clock.

use std::collections::BTreeMap;
use std::time::Duration;

use emmer_core::{Instant, Now, SiloAddress, SiloEntry, SiloStatus, Timestamp};

use crate::membership::Membership;
use crate::peer::Peer;
use crate::table::Read;
use crate::timers::Timer;

/// What was seen of the IAmAlive times of others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Staleness {
    seen: BTreeMap<SiloAddress, Seen>,
    /// The rows that were stale when the table was read last, with the status they had.
    stale: BTreeMap<SiloAddress, SiloStatus>,
    /// When the table was read last.
    read_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Seen {
    value: Timestamp,
    /// Becoming Active is a sign of life too: a joiner does not touch its row.
    status: SiloStatus,
    /// When the value was first seen to be this.
    moved_at: Instant,
    /// When the last read that had this value in it was sent.
    read_at: Instant,
    /// The most silos that were Active since it moved. The silo may know of no later view.
    active: usize,
}

/// How old the last read of the rows may be when a commit counts votes and some rows look stale.
/// Staleness lowers the number of votes that a death takes, so it must not outlive its evidence.
pub(crate) const EVIDENCE_MAX: Duration = Duration::from_millis(2_500);

impl Membership {
    /// The table was read by a request sent at `sent`: notes which values moved.
    pub(crate) fn observe_alive(&mut self, now: Now, sent: Instant, rows: &[SiloEntry]) {
        let me = self.me.address;
        let active = self.view.active_count();
        let mut seen = BTreeMap::new();
        for row in rows.iter().filter(|row| row.status != SiloStatus::Dead && row.address != me) {
            // Any change of the value is a sign of life, also a step back of the writer's clock.
            let value = if self.config.moving_staleness {
                row.i_am_alive_time
            } else {
                row.start_time.max(row.i_am_alive_time)
            };
            let status = row.status;
            let same = |old: &&Seen| old.value == value && old.status == status;
            let old = self.staleness.seen.get(&row.address).filter(same);
            let moved_at = old.map_or(now.mono, |old| old.moved_at);
            let active = old.map_or(active, |old| old.active.max(active));
            seen.insert(row.address, Seen { value, status, moved_at, read_at: sent, active });
        }
        self.staleness.seen = seen;
        self.staleness.read_at = Some(now.mono);
        self.judge_staleness(now);
    }

    fn judge_staleness(&mut self, now: Now) {
        let mut stale = BTreeMap::new();
        for (silo, seen) in &self.staleness.seen {
            let limit = self.config.stale_after(seen.active);
            let is_stale = if self.config.moving_staleness {
                // Only a later read that still shows the old value proves anything.
                seen.read_at.saturating_since(seen.moved_at) > limit
            } else {
                now.wall.saturating_since(seen.value) > limit
            };
            if is_stale {
                stale.insert(*silo, seen.status);
            }
        }
        self.staleness.stale = stale;
    }

    /// The table did not answer for a while: standing still during that time proves nothing.
    pub(crate) fn forgive_staleness(&mut self, now: Now) {
        if self.config.moving_staleness {
            for seen in self.staleness.seen.values_mut() {
                (seen.moved_at, seen.read_at) = (now.mono, now.mono);
            }
            self.staleness.stale.clear();
        }
    }

    /// Reads the table now and then while votes do not suffice: perhaps those who could vote are
    /// stale.
    pub(crate) fn look_for_staleness(&mut self, now: Now) {
        let limit = self.config.num_missed_probes_limit;
        let silent = |peer: &Peer| peer.is_suspected() || peer.misses() >= limit;
        if self.probing.peers().any(silent) || self.writer.has_votes() {
            self.read_for_staleness(now);
        }
    }

    /// Has the rows read, unless they were lately: as often as a silo touches its own.
    pub(crate) fn read_for_staleness(&mut self, now: Now) {
        let period = self.publish_period();
        let due = self.staleness.read_at.map_or(now.mono, |at| at + period);
        if now.mono >= due {
            self.table.want(Read::All);
        }
        if !self.config.fence_timeout.is_zero() {
            let next = if now.mono >= due { now.mono + period } else { due };
            self.timers.set(Timer::Stale, next);
        }
    }

    /// Votes again against the silos whose rows have just been found stale: fewer votes are enough
    /// now, and their next probes may be seconds away.
    pub(crate) fn vote_against_stale(&mut self, now: Now) {
        // The original waits for the next probe.
        if self.config.fence_timeout.is_zero() {
            return;
        }
        let suspects = self.stale_members().filter(|silo| {
            let limit = self.misses_to_vote(silo);
            self.probing.peer(silo).is_some_and(|peer| peer.misses() >= limit)
        });
        let suspects: Vec<SiloAddress> = suspects.collect();
        for silo in suspects {
            self.consider_vote(now, silo);
        }
    }

    /// Whether the rows have to be read before votes are counted: some looked stale when they were
    /// read last, and that was a while ago.
    pub(crate) fn staleness_is_dated(&self, now: Now) -> bool {
        !self.staleness.stale.is_empty()
            && self.staleness.read_at.is_none_or(|at| now.mono.saturating_since(at) > EVIDENCE_MAX)
    }

    /// Whether the row of `silo` is stale, as far as this silo has read the table. One whose status
    /// has changed since is not.
    pub(crate) fn is_stale(&self, silo: &SiloAddress) -> bool {
        self.staleness
            .stale
            .get(silo)
            .is_some_and(|status| self.view.status_of(silo) == Some(*status))
    }

    /// The stale rows of the view in force.
    pub(crate) fn stale_members(&self) -> impl Iterator<Item = SiloAddress> + '_ {
        self.staleness
            .stale
            .iter()
            .filter(|(silo, status)| self.view.status_of(silo) == Some(**status))
            .map(|(silo, _)| *silo)
    }

    /// Whether the value of `silo` has stood still over reads at least `span` apart.
    pub(crate) fn has_stood_still(&self, silo: &SiloAddress, span: Duration) -> bool {
        self.staleness
            .seen
            .get(silo)
            .is_some_and(|seen| seen.read_at.saturating_since(seen.moved_at) > span)
    }
}
