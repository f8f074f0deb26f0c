//! Whom to probe (membership description, step 2), and the probes themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use emmer_core::{Instant, Now, SiloAddress, SiloStatus};

use crate::api::{Effect, Event};
use crate::dials::Purpose;
use crate::membership::Membership;
use crate::message::Message;
use crate::peer::{Answer, Peer};
use crate::view::View;

/// How many peers are probed once in a `probe_period`; fewer are probed more often, up to twice.
const PEERS_PER_PERIOD: u32 = 10;

/// After so many misses in a row a silo that answers dials gets a new connection: a firewall may
/// have forgotten the old one. A slow silo answers one of so many.
pub(crate) const RENEW_MISSES: u32 = 3;

/// The most stale silos probed beyond those of the rings.
const STALE_PROBED_MAX: usize = 64;

/// The silos that `me` probes in `view`: on each ring in turn the first successor not yet picked,
/// until there are enough. With one ring: the successors on it.
pub fn ring_targets(
    view: &View,
    me: &SiloAddress,
    rings: u32,
    wanted: u32,
) -> BTreeSet<SiloAddress> {
    let mut picked = Vec::with_capacity(wanted as usize);
    pick_targets(view, me, rings, wanted, &mut picked, |_| false);
    picked.into_iter().map(|at| view.members()[at as usize].address).collect()
}

/// Puts the positions of the targets into `picked`, in the order in which they are picked, until
/// `enough` says so of one.
fn pick_targets(
    view: &View,
    me: &SiloAddress,
    rings: u32,
    wanted: u32,
    picked: &mut Vec<u32>,
    enough: impl Fn(u32) -> bool,
) -> bool {
    picked.clear();
    let Some(mine) = view.position(me).and_then(|at| u32::try_from(at).ok()) else { return false };
    let (rings, wanted) = (rings.max(1) as usize, wanted as usize);
    for i in 0..wanted {
        let number = i % rings;
        let ring = view.ring(number);
        let Some(start) = view.place(number, mine).map(|place| place + 1) else { return false };
        let next = ring[start..]
            .iter()
            .chain(&ring[..start])
            .map(|(_, at)| *at)
            .find(|at| !picked.contains(at) && !view.address_at(*at).same_endpoint(me));
        let Some(next) = next else { break };
        picked.push(next);
        if enough(next) {
            return true;
        }
    }
    false
}

/// Whether `silo` is one of the [`monitors_of`] `target`.
fn is_monitored_by(
    view: &View,
    target: &SiloAddress,
    silo: &SiloAddress,
    rings: u32,
    wanted: u32,
) -> bool {
    let Some(at) = view.position(target).and_then(|at| u32::try_from(at).ok()) else {
        return false;
    };
    view.get(silo).is_some_and(|row| row.status == SiloStatus::Active)
        && pick_targets(view, silo, rings, wanted, &mut Vec::new(), |picked| picked == at)
}

/// The Active silos that probe `me` in `view`: exactly those whose [`ring_targets`] name it.
fn monitors_of(view: &View, me: &SiloAddress, rings: u32, wanted: u32) -> BTreeSet<SiloAddress> {
    find_monitors(view, me, rings, wanted, |status| status == SiloStatus::Active)
}

/// The same with those that are Joining: a later view, which has not come yet, may say that they
/// are Active.
pub(crate) fn monitors_to_be(
    view: &View,
    me: &SiloAddress,
    rings: u32,
    wanted: u32,
) -> BTreeSet<SiloAddress> {
    find_monitors(view, me, rings, wanted, |status| {
        matches!(status, SiloStatus::Active | SiloStatus::Joining)
    })
}

/// A silo picks `me` on a ring only if it has already picked everybody between the two, and it
/// picks one silo at a time: so it stands, on that ring, no further before `me` than it has picked
/// others by then.
fn find_monitors(
    view: &View,
    me: &SiloAddress,
    rings: u32,
    wanted: u32,
    probes: impl Fn(SiloStatus) -> bool,
) -> BTreeSet<SiloAddress> {
    let mut found = BTreeSet::new();
    let Some(mine) = view.position(me).and_then(|at| u32::try_from(at).ok()) else { return found };
    let mut picked = Vec::with_capacity(wanted as usize);
    let mut refused = Vec::new();
    let used = rings.max(1).min(wanted.max(1)) as usize;
    for number in 0..used {
        let ring = view.ring(number);
        let Some(start) = view.place(number, mine) else { return found };
        // The last pick on this ring comes after all others but those on later rings.
        let last_pick = (wanted as usize - 1 - number) / used * used + number;
        let before = ring[..start].iter().rev().chain(ring[start..].iter().rev());
        let mut next = mine;
        for (_, at) in before.take(last_pick + 1) {
            let (silo, after) = (*view.address_at(*at), std::mem::replace(&mut next, *at));
            if !probes(view.status_at(*at))
                || silo == *me
                || found.contains(&silo)
                || refused.contains(&silo)
            {
                continue;
            }
            if wanted as usize <= used && after != mine && stops_at(view, *at, after, number) {
                continue;
            }
            if pick_targets(view, &silo, rings, wanted, &mut picked, |target| target == mine) {
                found.insert(silo);
            } else {
                refused.push(silo);
            }
        }
    }
    found
}

/// Whether the silo at `at`, which picks once on each ring, picks on ring `number` the one at
/// `after`, which follows it there: it has not picked that one before, because it stands too far
/// from it on all earlier rings. A quick answer for almost all silos of a large cluster; false says
/// nothing.
fn stops_at(view: &View, at: u32, after: u32, number: usize) -> bool {
    let is_near = |earlier: usize| {
        let (Some(from), Some(to)) = (view.place(earlier, at), view.place(earlier, after)) else {
            return true;
        };
        // By then it has picked `earlier` others.
        let count = view.ring(earlier).len();
        (to + count - from) % count <= earlier + 1
    };
    // It skips silos of its own endpoint, if there are any.
    !view.shares_endpoint(at) && !(0..number).any(is_near)
}

/// The silos that this one probes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Probing {
    peers: BTreeMap<SiloAddress, Peer>,
    /// The number of the last probe, of whatever kind.
    last_seq: u64,
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

    /// A number that no probe of this silo has had.
    pub(crate) const fn new_seq(&mut self) -> u64 {
        self.last_seq += 1;
        self.last_seq
    }
}

impl Membership {
    /// The Active silos that probe `silo` in the view in force.
    pub(crate) fn monitors_of(&self, silo: &SiloAddress) -> BTreeSet<SiloAddress> {
        monitors_of(&self.view, silo, self.config.num_probe_rings, self.config.num_probed_silos)
    }

    /// The same with those that are Joining.
    pub(crate) fn monitors_to_be_of(&self, silo: &SiloAddress) -> BTreeSet<SiloAddress> {
        monitors_to_be(&self.view, silo, self.config.num_probe_rings, self.config.num_probed_silos)
    }

    /// Whether `silo` is one of the Active silos that probe `target` in the view in force; much
    /// cheaper than all of them.
    pub(crate) fn is_monitored_by(&self, target: &SiloAddress, silo: &SiloAddress) -> bool {
        is_monitored_by(
            &self.view,
            target,
            silo,
            self.config.num_probe_rings,
            self.config.num_probed_silos,
        )
    }

    /// Adjusts the probed set to the view in force. Peers that stay keep their counts.
    pub(crate) fn choose_peers(&mut self, now: Now) {
        let mut targets = BTreeSet::new();
        if self.standing.status() == SiloStatus::Active && self.standing.is_in_table() {
            let me = self.me.address;
            let config = &self.config;
            targets =
                ring_targets(&self.view, &me, config.num_probe_rings, config.num_probed_silos);
            let stale = self.stale_members().filter(|silo| !silo.same_endpoint(&me));
            targets.extend(stale.take(STALE_PROBED_MAX));
        }
        self.forget_doubts_about_the_dead();
        let gone: Vec<SiloAddress> =
            self.probing.peers.keys().filter(|p| !targets.contains(*p)).copied().collect();
        let mut changed = !gone.is_empty();
        for silo in gone {
            self.drop_peer(&silo);
        }
        for silo in targets {
            if !self.probing.peers.contains_key(&silo) {
                changed = true;
                let first = self.dice.duration_below(self.probe_period());
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
        if self.config.connection_hints {
            let probed = self.probing.peers.keys().copied().collect();
            self.effects.push_back(Effect::Watch(probed));
        }
    }

    /// How often each peer is probed. In a small cluster few silos probe each other, so the second
    /// vote of a death would have to wait for almost a whole period; there each of them is probed
    /// more often, at the same cost.
    fn probe_period(&self) -> Duration {
        let period = self.config.probe_period;
        if !self.config.burst_reprobes {
            return period;
        }
        let peers = u32::try_from(self.probing.len()).unwrap_or(u32::MAX).min(PEERS_PER_PERIOD);
        (period * peers / PEERS_PER_PERIOD).max(period / 2)
    }

    fn drop_peer(&mut self, silo: &SiloAddress) {
        self.probing.peers.remove(silo);
        self.dials.forget(Purpose::Hint, silo);
        self.unwish(&crate::intent::Key::Vote(*silo, self.me.address));
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
        let until = now.mono + self.config.min_probe_timeout.min(Duration::from_secs(1));
        for peer in self.probing.peers.values_mut() {
            peer.grace(now.mono, until);
        }
    }

    pub(crate) fn send_probe(&mut self, now: Now, silo: SiloAddress) {
        let stretch = if self.config.extend_probe_timeout_during_degradation {
            1 + self.health_score()
        } else {
            1
        };
        let version = self.view.version();
        let seq = self.probing.new_seq();
        let witnessed = self.has_witness(&silo);
        self.press_doubt(now, &silo);
        let confirms = self.may_confirm(now, &silo);
        let Some(peer) = self.probing.peer_mut(&silo) else { return };
        peer.witness(witnessed);
        let timeout = peer.timeout(&self.config, stretch);
        peer.on_sent(now.mono, seq, timeout);
        let (misses, echo) = (peer.misses(), if confirms { peer.echo() } else { 0 });
        let asked = self.indirect_is_due(&silo) && self.ask_indirectly(now, silo, timeout);
        // Classic: the attempt is the intermediary's, if there is one.
        if !(asked && self.config.indirect_probe_counts_as_vote) {
            self.counters.probes_sent += 1;
            self.send(silo, Message::Probe { seq, version, misses, echo });
        }
    }

    fn on_probe_missed(&mut self, now: Now, silo: SiloAddress) {
        let Some(peer) = self.probing.peer_mut(&silo) else { return };
        peer.on_miss();
        let misses = peer.misses();
        self.counters.probes_missed += 1;
        self.effects.push_back(Effect::Event(Event::ProbeMissed { peer: silo, in_a_row: misses }));
        if misses == 1 || misses == RENEW_MISSES {
            self.dial_peer(silo);
        }
        self.want_table_witness(&silo);
        if misses > 1 && !self.config.fence_timeout.is_zero() {
            // If too few are left for a vote, the time since this read decides.
            self.read_for_staleness(now);
        }
        if misses >= self.misses_to_vote(&silo) {
            self.consider_vote(now, silo);
        }
        self.schedule_next_probe(now, silo);
    }

    fn schedule_next_probe(&mut self, now: Now, silo: SiloAddress) {
        let (period, limit) = (self.probe_period(), self.config.num_missed_probes_limit);
        let burst = self.config.burst_reprobes;
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
        self.counters.probes_received += 1;
        self.health.probed(now);
        self.fence_heard(now, &from, misses, echo);
        self.acknowledge(now, from, seq);
    }

    /// A silo in no view asks whether this one lives.
    pub(crate) fn answer_stranger(&mut self, now: Now, from: SiloAddress, seq: u64) {
        self.counters.probes_received += 1;
        self.fence_probed(now);
        self.acknowledge(now, from, seq);
    }

    fn acknowledge(&mut self, now: Now, from: SiloAddress, seq: u64) {
        let stamp = now.mono.as_nanos();
        self.send(from, Message::Ack { seq, version: self.view.version(), stamp });
    }

    pub(crate) fn on_ack(&mut self, now: Now, from: SiloAddress, seq: u64, stamp: u64) {
        self.join_answered(now, &from);
        if self.indirect_answered(&from, seq) {
            return;
        }
        let period = self.probe_period();
        // Where the fence is short the stamp goes back at once, not with the next probe.
        let short = !self.config.fence_timeout.is_zero()
            && self.config.fence_timeout < self.config.probe_period * 3;
        let seen = short && self.may_confirm(now, &from);
        let Some(peer) = self.probing.peer_mut(&from) else { return };
        peer.stamp(stamp);
        let longest = peer.longest_sample(&self.config);
        let answer =
            peer.on_answer(now.mono, seq, period, self.config.num_answers_to_clear, longest);
        if answer == Answer::Counted {
            self.health.answered(now);
        }
        if answer == Answer::Lives {
            if seen {
                self.effects.push_back(Effect::Send { to: from, message: Message::Seen { stamp } });
            }
            if self.config.connection_liveness_window > Duration::ZERO {
                // The original counts whatever came over the connection, answers to probes too.
                peer.hear(now.mono);
            }
            self.counters.probes_answered += 1;
            self.health.answered(now);
            self.withdraw(&from);
            self.retract(now, from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use emmer_core::{SiloEntry, TableVersion, Timestamp};
    use std::sync::Arc;

    fn view(n: u16) -> (View, Vec<SiloAddress>) {
        let silos: Vec<SiloAddress> =
            (0..n).map(|i| format!("10.0.0.1:{}:1", 1000 + i).parse().unwrap()).collect();
        let rows = silos
            .iter()
            .map(|s| Arc::new(SiloEntry::new(*s, SiloStatus::Active, Timestamp::default())))
            .collect();
        (
            View::new(
                TableVersion { number: 1, etag: "1".into(), ..TableVersion::default() },
                rows,
            ),
            silos,
        )
    }

    #[test]
    fn everybody_is_probed_by_exactly_as_many_as_it_probes_on_one_ring() {
        let (view, silos) = view(40);
        let mut probed = BTreeMap::new();
        for silo in &silos {
            let targets = ring_targets(&view, silo, 1, 3);
            assert!(targets.len() == 3 && !targets.contains(silo));
            for target in targets {
                *probed.entry(target).or_insert(0) += 1;
            }
        }
        assert!(probed.len() == 40 && probed.values().all(|n| *n == 3));
    }

    #[test]
    fn small_clusters_probe_everybody() {
        let (view, silos) = view(3);
        assert_eq!(ring_targets(&view, &silos[0], 10, 10).len(), 2);
        assert_eq!(monitors_of(&view, &silos[0], 10, 10).len(), 2);
    }

    #[test]
    fn a_silo_knows_exactly_who_probes_it() {
        for n in [2, 5, 11, 12, 64, 65, 100, 300] {
            let (view, silos) = view(n);
            for (rings, wanted) in [(10, 10), (1, 3), (3, 10), (4, 6)] {
                for silo in &silos {
                    let known = monitors_of(&view, silo, rings, wanted);
                    let probing = silos
                        .iter()
                        .filter(|s| ring_targets(&view, s, rings, wanted).contains(silo));
                    let probing: BTreeSet<SiloAddress> = probing.copied().collect();
                    assert_eq!(known, probing, "{n} silos, {rings} rings, {wanted} probed: {silo}");
                    let said =
                        silos.iter().filter(|s| is_monitored_by(&view, silo, s, rings, wanted));
                    assert_eq!(said.copied().collect::<BTreeSet<_>>(), known, "{n} silos: {silo}");
                }
            }
        }
    }

    #[test]
    fn several_rings_spread_the_monitors() {
        let (view, silos) = view(100);
        let mut least = usize::MAX;
        for silo in &silos {
            let monitors =
                silos.iter().filter(|s| ring_targets(&view, s, 10, 10).contains(silo)).count();
            least = least.min(monitors);
        }
        assert!(least >= 5, "{least}");
    }
}
