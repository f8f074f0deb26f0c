//! Stale rows: their silos have not touched them for too long (membership description, step 14;
//! improvement 8).
//!
//! The default judges by the local time since the value last moved, so that no two clocks are ever
//! compared; `classic` compares the written time with the own clock.

use std::collections::BTreeMap;
use std::time::Duration;

use emmer_core::{Instant, Now, SiloAddress, SiloEntry, SiloStatus, Timestamp};

use crate::config::Config;
use crate::view::View;

/// Age of the last read of the rows up to which a commit counts votes where some rows look stale.
/// Staleness lowers the number of votes for a death, so it must not outlive its evidence.
pub(crate) const EVIDENCE_MAX: Duration = Duration::from_millis(2_500);

/// Observations of the IAmAlive times of others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Staleness {
    seen: BTreeMap<SiloAddress, Seen>,
    /// The rows that were stale when the table was read last, with the status they had.
    stale: BTreeMap<SiloAddress, SiloStatus>,
    /// Time at which the table was read last.
    read_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Seen {
    value: Timestamp,
    /// Becoming Active is a sign of life too: a joiner does not touch its row.
    status: SiloStatus,
    /// Time at which the value was first seen to be this.
    moved_at: Instant,
    /// Time at which the last read that had this value in it was sent.
    read_at: Instant,
    /// The most silos that were Active since it moved. The silo may know of no later view.
    active: usize,
}

impl Staleness {
    /// The table was read by a request sent at `sent`: notes which values moved.
    pub(crate) fn observe(
        &mut self,
        config: &Config,
        view: &View,
        me: SiloAddress,
        now: Now,
        sent: Instant,
        rows: &[SiloEntry],
    ) {
        let active = view.active_count();
        let mut seen = BTreeMap::new();
        for row in rows.iter().filter(|row| row.status != SiloStatus::Dead && row.address != me) {
            // Any change of the value is a sign of life, also a step back of the writer's clock.
            let value = if config.moving_staleness {
                row.i_am_alive_time
            } else {
                row.start_time.max(row.i_am_alive_time)
            };
            let status = row.status;
            let same = |old: &&Seen| old.value == value && old.status == status;
            let old = self.seen.get(&row.address).filter(same);
            let moved_at = old.map_or(now.mono, |old| old.moved_at);
            let active = old.map_or(active, |old| old.active.max(active));
            seen.insert(row.address, Seen { value, status, moved_at, read_at: sent, active });
        }
        self.seen = seen;
        self.read_at = Some(now.mono);
        self.judge(config, now);
    }

    fn judge(&mut self, config: &Config, now: Now) {
        let is_stale = |seen: &Seen| {
            let limit = config.stale_after(seen.active);
            if config.moving_staleness {
                // Only a later read that still shows the old value proves anything.
                seen.read_at.saturating_since(seen.moved_at) > limit
            } else {
                now.wall.saturating_since(seen.value) > limit
            }
        };
        let stale = self.seen.iter().filter(|(_, seen)| is_stale(seen));
        self.stale = stale.map(|(silo, seen)| (*silo, seen.status)).collect();
    }

    /// The table did not answer for a while: standing still during that time proves nothing.
    pub(crate) fn forgive(&mut self, config: &Config, now: Now) {
        if config.moving_staleness {
            for seen in self.seen.values_mut() {
                (seen.moved_at, seen.read_at) = (now.mono, now.mono);
            }
            self.stale.clear();
        }
    }

    /// Time at which the table was read last.
    pub(crate) const fn read_at(&self) -> Option<Instant> {
        self.read_at
    }

    /// Returns true if the rows have to be read before votes are counted: some looked stale when
    /// they were read last, and that was a while ago.
    pub(crate) fn is_dated(&self, now: Now) -> bool {
        !self.stale.is_empty()
            && self.read_at.is_none_or(|at| now.mono.saturating_since(at) > EVIDENCE_MAX)
    }

    /// Returns true if the row of `silo` is stale. One whose status has changed since is not.
    pub(crate) fn is_stale(&self, view: &View, silo: &SiloAddress) -> bool {
        self.stale.get(silo).is_some_and(|status| view.status_of(silo) == Some(*status))
    }

    /// The stale rows of `view`.
    pub(crate) fn stale_members(&self, view: &View) -> impl Iterator<Item = SiloAddress> {
        self.stale
            .iter()
            .filter(|(silo, status)| view.status_of(silo) == Some(**status))
            .map(|(silo, _)| *silo)
    }

    /// Returns true if the value of `silo` has stood still over reads at least `span` apart.
    pub(crate) fn has_stood_still(&self, silo: &SiloAddress, span: Duration) -> bool {
        self.seen.get(silo).is_some_and(|seen| seen.read_at.saturating_since(seen.moved_at) > span)
    }
}
