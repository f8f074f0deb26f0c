//! When the rows are read to see which of them are stale.

use emmer_core::{Now, SiloAddress};

use crate::inner::Read;
use crate::membership::Membership;
use crate::peer::Peer;
use crate::rules::misses_to_vote;
use crate::timers::Timer;

impl Membership {
    /// Reads the table now and then while votes do not suffice: perhaps those who could vote are
    /// stale.
    pub(crate) fn look_for_staleness(&mut self, now: Now) {
        let limit = self.facts.config().num_missed_probes_limit;
        let silent = |peer: &Peer| peer.is_suspected() || peer.misses() >= limit;
        if self.probing.peers().any(silent) || self.writer.has_votes() {
            self.read_for_staleness(now);
        }
    }

    /// Has the rows read, unless they were lately: as often as a silo touches its own.
    pub(crate) fn read_for_staleness(&mut self, now: Now) {
        let period = self.facts.publish_period();
        let due = self.facts.rows().read_at().map_or(now.mono, |at| at + period);
        if now.mono >= due {
            self.table.want(Read::All);
        }
        if !self.facts.config().fence_timeout.is_zero() {
            let next = if now.mono >= due { now.mono + period } else { due };
            self.out.timers().set(Timer::Stale, next);
        }
    }

    /// Votes again against the silos whose rows have just been found stale: fewer votes are enough
    /// now, and their next probes may be seconds away.
    pub(crate) fn vote_against_stale(&mut self, now: Now) {
        // The original waits for the next probe.
        if self.facts.config().fence_timeout.is_zero() {
            return;
        }
        let suspects = self.facts.stale_members().filter(|silo| {
            let limit = misses_to_vote(&self.facts, silo);
            self.probing.peer(silo).is_some_and(|peer| peer.misses() >= limit)
        });
        let suspects: Vec<SiloAddress> = suspects.collect();
        for silo in suspects {
            self.consider_vote(now, silo);
        }
    }
}
