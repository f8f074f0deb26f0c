//! Whom to probe (membership description, step 2), and the probes themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use emmer_core::{Instant, Now, SiloAddress, SiloStatus};

use crate::api::{Effect, Event};
use crate::dials::Purpose;
use crate::membership::Membership;
use crate::message::Message;
use crate::peer::{Answer, Peer, RENEW_MISSES};
use crate::rings::ring_targets;
use crate::rules::misses_to_vote;

/// How many peers are probed once in a `probe_period`; fewer are probed more often, up to twice.
const PEERS_PER_PERIOD: u32 = 10;

/// The most stale silos probed beyond those of the rings.
const STALE_PROBED_MAX: usize = 64;

/// The silos that this one probes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Probing {
    peers: BTreeMap<SiloAddress, Peer>,
    /// When the next probe, or indirect one, is due or missed.
    due_at: Option<Instant>,
}

impl Probing {
    pub(crate) fn peer(&self, silo: &SiloAddress) -> Option<&Peer> {
        self.peers.get(silo)
    }

    pub(crate) fn peer_mut(&mut self, silo: &SiloAddress) -> Option<&mut Peer> {
        self.peers.get_mut(silo)
    }

    pub(crate) fn peers(&self) -> impl Iterator<Item = &Peer> {
        self.peers.values()
    }

    pub(crate) fn silos(&self) -> impl Iterator<Item = &SiloAddress> {
        self.peers.keys()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&SiloAddress, &Peer)> {
        self.peers.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&SiloAddress, &mut Peer)> {
        self.peers.iter_mut()
    }

    pub(crate) fn len(&self) -> usize {
        self.peers.len()
    }

    pub(crate) fn stop(&mut self) {
        self.peers.clear();
        self.due_at = None;
    }

    /// When something has to be done for a probe.
    pub(crate) const fn due_at(&self) -> Option<Instant> {
        self.due_at
    }

    pub(crate) const fn due_next(&mut self, at: Option<Instant>) {
        self.due_at = at;
    }
}

impl Membership {
    /// Adjusts the probed set to the view in force. Peers that stay keep their counts.
    pub(crate) fn choose_peers(&mut self, now: Now) {
        let mut targets = BTreeSet::new();
        if self.facts.standing().status() == SiloStatus::Active
            && self.facts.standing().is_in_table()
        {
            let me = self.facts.me();
            let config = &self.facts.config();
            targets = ring_targets(
                &self.facts.view(),
                &me,
                config.num_probe_rings,
                config.num_probed_silos,
            );
            let stale = self.facts.stale_members().filter(|silo| !silo.same_endpoint(&me));
            targets.extend(stale.take(STALE_PROBED_MAX));
        }
        self.votes.forget_doubts_about_the_dead(&self.facts);
        let gone: Vec<SiloAddress> =
            self.probing.peers.keys().filter(|p| !targets.contains(*p)).copied().collect();
        let mut changed = !gone.is_empty();
        for silo in gone {
            self.drop_peer(&silo);
        }
        for silo in targets {
            if !self.probing.peers.contains_key(&silo) {
                changed = true;
                let period = self.probe_period();
                let first = self.out.dice().duration_below(period);
                self.probing.peers.insert(silo, Peer::new(now.mono + first));
            }
        }
        if changed {
            self.watch_peers();
        }
    }

    /// As [`Probing::stop`], and watches nobody either.
    pub(crate) fn stop_probing(&mut self) {
        if !self.probing.peers.is_empty() {
            self.probing.stop();
            self.watch_peers();
        }
    }

    /// Asks for a lifeline to each silo that is probed: its end is a hint that no reset can hide.
    fn watch_peers(&mut self) {
        if self.facts.config().connection_hints {
            let probed = self.probing.peers.keys().copied().collect();
            self.out.effect(Effect::Watch(probed));
        }
    }

    /// How often each peer is probed. In a small cluster few silos probe each other, so the second
    /// vote of a death would have to wait for almost a whole period; there each of them is probed
    /// more often, at the same cost.
    fn probe_period(&self) -> Duration {
        let period = self.facts.config().probe_period;
        if !self.facts.config().burst_reprobes {
            return period;
        }
        let peers = u32::try_from(self.probing.len()).unwrap_or(u32::MAX).min(PEERS_PER_PERIOD);
        (period * peers / PEERS_PER_PERIOD).max(period / 2)
    }

    fn drop_peer(&mut self, silo: &SiloAddress) {
        self.probing.peers.remove(silo);
        self.out.dials().forget(Purpose::Hint, silo);
        self.unwish(&crate::intent::Key::Vote(*silo, self.facts.me()));
    }

    /// The earliest moment a probe is due or missed.
    pub(crate) fn next_probe(&self) -> Option<Instant> {
        self.probing.peers.values().map(Peer::due).min()
    }

    /// Sends what is due, counts what was missed.
    pub(crate) fn run_probes(&mut self, now: Now) {
        let due: Vec<SiloAddress> = self
            .probing
            .peers
            .iter()
            .filter(|(_, p)| p.due() <= now.mono)
            .map(|(silo, _)| *silo)
            .collect();
        for silo in due {
            let Some(peer) = self.probing.peer_mut(&silo) else { continue };
            if peer.is_in_flight() {
                self.on_probe_missed(now, silo);
            } else {
                self.send_probe(now, silo);
            }
        }
    }

    /// This process was paused: answers may lie unread in its sockets, so every probe in flight
    /// gets one more short wait before it counts as missed.
    pub(crate) fn grace_probes(&mut self, now: Now) {
        let until = now.mono + self.facts.config().min_probe_timeout.min(Duration::from_secs(1));
        for peer in self.probing.peers.values_mut() {
            peer.grace(now.mono, until);
        }
    }

    pub(crate) fn send_probe(&mut self, now: Now, silo: SiloAddress) {
        let stretch = if self.facts.config().extend_probe_timeout_during_degradation {
            1 + self.health_score()
        } else {
            1
        };
        let version = self.facts.view().version();
        let seq = self.out.new_seq();
        let witnessed = self.has_witness(&silo);
        self.votes.press_doubt(&self.facts, &mut self.out, &silo);
        self.drain();
        let confirms = self.may_confirm(&silo);
        let Some(peer) = self.probing.peer_mut(&silo) else { return };
        peer.witness(witnessed);
        let timeout = peer.timeout(&self.facts.config(), stretch);
        peer.on_sent(now.mono, seq, timeout);
        let (misses, echo) = (peer.misses(), if confirms { peer.echo() } else { 0 });
        let asked = self.indirect_is_due(&silo) && self.ask_indirectly(now, silo, timeout);
        // Classic: the attempt is the intermediary's, if there is one.
        if !(asked && self.facts.config().indirect_probe_counts_as_vote) {
            self.out.count().probes_sent += 1;
            self.out.send(silo, Message::Probe { seq, version, misses, echo });
        }
    }

    fn on_probe_missed(&mut self, now: Now, silo: SiloAddress) {
        let Some(peer) = self.probing.peer_mut(&silo) else { return };
        peer.on_miss();
        let misses = peer.misses();
        self.out.count().probes_missed += 1;
        self.out.event(Event::ProbeMissed { peer: silo, in_a_row: misses });
        if misses == 1 || misses == RENEW_MISSES {
            self.dial_peer(silo);
        }
        self.want_table_witness(&silo);
        if misses > 1 && !self.facts.config().fence_timeout.is_zero() {
            // If too few are left for a vote, the time since this read decides.
            self.read_for_staleness(now);
        }
        if misses >= misses_to_vote(&self.facts, &silo) {
            self.consider_vote(now, silo);
        }
        self.schedule_next_probe(now, silo);
    }

    fn schedule_next_probe(&mut self, now: Now, silo: SiloAddress) {
        let (period, limit) = (self.probe_period(), self.facts.config().num_missed_probes_limit);
        let burst = self.facts.config().burst_reprobes;
        let Some(peer) = self.probing.peer_mut(&silo) else { return };
        let at_once = burst && peer.misses() < limit;
        let next_at = if at_once { now.mono } else { peer.regular(now.mono, period) };
        peer.probe_at(next_at);
        if next_at <= now.mono {
            self.send_probe(now, silo);
        }
    }

    /// A probe arrived: the only thing it needs is an answer.
    pub(crate) fn on_probe(
        &mut self,
        now: Now,
        from: SiloAddress,
        seq: u64,
        misses: u32,
        echo: u64,
    ) {
        self.out.count().probes_received += 1;
        self.health.probed(now);
        self.fence_heard(&from, misses, echo);
        self.acknowledge(now, from, seq);
    }

    /// A silo in no view asks whether this one lives.
    pub(crate) fn answer_stranger(&mut self, now: Now, from: SiloAddress, seq: u64) {
        self.out.count().probes_received += 1;
        let is_behind = self.is_behind();
        self.fence.probed_by_stranger(&self.facts, &mut self.out, is_behind);
        self.drain();
        self.acknowledge(now, from, seq);
    }

    fn acknowledge(&mut self, now: Now, from: SiloAddress, seq: u64) {
        let stamp = now.mono.as_nanos();
        self.out.send(from, Message::Ack { seq, version: self.facts.view().version(), stamp });
    }

    pub(crate) fn on_ack(&mut self, now: Now, from: SiloAddress, seq: u64, stamp: u64) {
        self.join_answered(now, &from);
        if self.indirect_answered(&from, seq) {
            return;
        }
        let period = self.probe_period();
        // Where the fence is short the stamp goes back at once, not with the next probe.
        let short = !self.facts.config().fence_timeout.is_zero()
            && self.facts.config().fence_timeout < self.facts.config().probe_period * 3;
        let seen = short && self.may_confirm(&from);
        let Some(peer) = self.probing.peer_mut(&from) else { return };
        peer.stamp(stamp);
        let longest = peer.longest_sample(&self.facts.config());
        let answer = peer.on_answer(
            now.mono,
            seq,
            period,
            self.facts.config().num_answers_to_clear,
            longest,
        );
        if answer == Answer::Counted {
            self.health.answered(now);
        }
        if answer == Answer::Lives {
            if seen {
                self.out.effect(Effect::Send { to: from, message: Message::Seen { stamp } });
            }
            if self.facts.config().connection_liveness_window > Duration::ZERO {
                // The original counts whatever came over the connection, answers to probes too.
                peer.hear(now.mono);
            }
            self.out.count().probes_answered += 1;
            self.health.answered(now);
            self.withdraw(&from);
            self.retract(from);
        }
    }
}
