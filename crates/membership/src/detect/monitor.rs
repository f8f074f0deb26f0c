//! Whom to probe (membership description, step 2), and when.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use emmer_core::{Instant, SiloAddress, SiloStatus};

use super::peer::Peer;
use crate::api::Effect;
use crate::config::Config;
use crate::dials::Purpose;
use crate::facts::Facts;
use crate::inner::Inner;
use crate::intent::Key;
use crate::out::Out;
use crate::rings::ring_targets;

/// Number of peers that are probed once in a `probe_period`; fewer are probed more often, up to
/// twice.
const PEERS_PER_PERIOD: u32 = 10;

/// The most stale silos probed beyond those of the rings.
const STALE_PROBED_MAX: usize = 64;

/// The silos that this one probes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Probing {
    peers: BTreeMap<SiloAddress, Peer>,
}

impl Probing {
    pub(super) fn peer(&self, silo: &SiloAddress) -> Option<&Peer> {
        self.peers.get(silo)
    }

    pub(super) fn peer_mut(&mut self, silo: &SiloAddress) -> Option<&mut Peer> {
        self.peers.get_mut(silo)
    }

    pub(super) fn peers(&self) -> impl Iterator<Item = &Peer> {
        self.peers.values()
    }

    pub(super) fn silos(&self) -> impl Iterator<Item = &SiloAddress> {
        self.peers.keys()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&SiloAddress, &Peer)> {
        self.peers.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&SiloAddress, &mut Peer)> {
        self.peers.iter_mut()
    }

    pub(super) fn len(&self) -> usize {
        self.peers.len()
    }

    /// Probes no silo, and leaves the lifelines as they are.
    pub(super) fn end(&mut self) {
        self.peers.clear();
    }

    /// Adjusts the probed set to the view in force. Peers that stay keep their counts.
    pub(super) fn choose(&mut self, facts: &Facts, out: &mut Out) {
        let mut targets = BTreeSet::new();
        if facts.status() == SiloStatus::Active && facts.standing().is_in_table() {
            let (me, config) = (facts.me(), facts.config());
            targets =
                ring_targets(facts.view(), &me, config.num_probe_rings, config.num_probed_silos);
            let stale = facts.stale_members().filter(|silo| !silo.same_endpoint(&me));
            targets.extend(stale.take(STALE_PROBED_MAX));
        }
        let gone: Vec<SiloAddress> =
            self.peers.keys().filter(|p| !targets.contains(*p)).copied().collect();
        let mut changed = !gone.is_empty();
        for silo in gone {
            self.peers.remove(&silo);
            out.dials().forget(Purpose::Hint, &silo);
            out.tell(Inner::Unwish(Key::Vote(silo, facts.me())));
        }
        for silo in targets {
            if !self.peers.contains_key(&silo) {
                changed = true;
                let first = out.dice().duration_below(self.period(facts.config()));
                self.peers.insert(silo, Peer::new(facts.now().mono + first));
            }
        }
        if changed {
            self.watch(facts, out);
        }
    }

    /// Probes no silo any longer, and watches none.
    pub(super) fn stop(&mut self, facts: &Facts, out: &mut Out) {
        if !self.peers.is_empty() {
            self.peers.clear();
            self.watch(facts, out);
        }
    }

    /// Asks for a lifeline to each silo that is probed: its end is a hint that no reset can hide.
    fn watch(&self, facts: &Facts, out: &mut Out) {
        if facts.config().connection_hints {
            out.effect(Effect::Watch(self.peers.keys().copied().collect()));
        }
    }

    /// Time between two probes of a peer. In a small cluster few silos probe each other, and the
    /// second vote of a death would wait for almost a whole period. There each peer is probed more
    /// often, at the same total cost.
    pub(super) fn period(&self, config: &Config) -> Duration {
        let period = config.probe_period;
        if !config.burst_reprobes {
            return period;
        }
        let peers = u32::try_from(self.len()).unwrap_or(u32::MAX).min(PEERS_PER_PERIOD);
        (period * peers / PEERS_PER_PERIOD).max(period / 2)
    }

    /// The earliest moment a probe is due or missed.
    pub(super) fn next(&self) -> Option<Instant> {
        self.peers.values().map(Peer::due).min()
    }

    /// Peers of which a probe is due or missed.
    pub(super) fn due(&self, now: Instant) -> Vec<SiloAddress> {
        let due = self.peers.iter().filter(|(_, peer)| peer.due() <= now);
        due.map(|(silo, _)| *silo).collect()
    }
}
