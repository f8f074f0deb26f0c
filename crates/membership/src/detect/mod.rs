//! The probes of this silo: its own, the missed ones, and those on behalf of others.

mod evidence;
mod health;
mod indirect;
mod monitor;
mod peer;

use std::time::Duration;

use emmer_core::{Instant, SiloAddress, SiloStatus};

use self::health::Health;
use self::indirect::Indirect;
use self::monitor::Probing;
use self::peer::{Answer, Peer, RENEW_MISSES};
use crate::api::{ConnectionEvent, DialOutcome, Effect, Event, HealthSample};
use crate::facts::Facts;
use crate::inner::{Inner, Read};
use crate::intent::{Evidence, Intent};
use crate::message::Message;
use crate::out::Out;
use crate::rules::misses_to_vote;

/// The probes of a silo, and its own health.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Detect {
    probing: Probing,
    indirect: Indirect,
    health: Health,
    /// Time at which the next probe, or indirect one, is due or missed.
    due_at: Option<Instant>,
}

impl Detect {
    // ---- what the others may know
    // ---------------------------------------------------------------------------------

    /// Time at which something has to be done for a probe.
    pub(crate) const fn due_at(&self) -> Option<Instant> {
        self.due_at
    }

    /// Returns true if this silo probes no other.
    pub(crate) fn is_idle(&self) -> bool {
        self.probing.len() == 0
    }

    /// The silos that this one probes.
    pub(crate) fn silos(&self) -> impl Iterator<Item = &SiloAddress> {
        self.probing.silos()
    }

    /// Returns true if there is reason to think that `silo` will not answer.
    pub(crate) fn is_doubted(&self, silo: &SiloAddress) -> bool {
        is_doubted(&self.probing, silo)
    }

    /// Time since when the process of `silo` is known to be gone.
    pub(crate) fn gone_since(&self, silo: &SiloAddress) -> Option<Instant> {
        self.probing.peer(silo).and_then(Peer::gone_since)
    }

    /// Returns true if a silo is suspected, or has been silent for the whole patience.
    pub(crate) fn suspects_any(&self, facts: &Facts) -> bool {
        let limit = facts.config().num_missed_probes_limit;
        self.probing.peers().any(|peer| peer.is_suspected() || peer.misses() >= limit)
    }

    /// The self-health score, 0 (well) to 8.
    pub(crate) fn score(&self, facts: &Facts) -> u32 {
        self.health.score(facts, self.probing.len())
    }

    // ---- whom to probe
    // --------------------------------------------------------------------------------------------

    /// Adjusts the probed set to the view in force.
    pub(crate) fn choose(&mut self, facts: &Facts, out: &mut Out) {
        self.probing.choose(facts, out);
    }

    /// Probes no silo any longer.
    pub(crate) fn stop(&mut self, facts: &Facts, out: &mut Out) {
        self.probing.stop(facts, out);
    }

    /// This silo ends.
    pub(crate) fn end(&mut self) {
        self.probing.end();
        self.indirect = Indirect::default();
        self.due_at = None;
    }

    /// Sees when something has to be done next.
    pub(crate) fn schedule(&mut self) {
        self.due_at = self.probing.next().into_iter().chain(self.indirect.next()).min();
    }

    // ---- the own probes
    // -------------------------------------------------------------------------------------------

    /// The silos of which a probe is due or missed.
    pub(crate) fn due(&self, facts: &Facts) -> Vec<SiloAddress> {
        self.probing.due(facts.now().mono)
    }

    /// Sends the probe that is due, or counts the one that was missed.
    pub(crate) fn run(&mut self, facts: &Facts, out: &mut Out, silo: SiloAddress) {
        match self.probing.peer(&silo).map(Peer::is_in_flight) {
            Some(true) => self.on_missed(facts, out, silo),
            Some(false) => out.tell(Inner::Probe(silo)),
            None => {}
        }
    }

    /// Reports the indirect probes that no silo answered.
    pub(crate) fn run_help(&mut self, facts: &Facts, out: &mut Out) {
        let score = || self.health.score(facts, self.probing.len());
        self.indirect.run(facts, out, score);
    }

    /// This process was paused: answers may lie unread in its sockets, so every probe in flight
    /// gets one more short wait.
    pub(crate) fn grace(&mut self, facts: &Facts) {
        let now = facts.now().mono;
        let until = now + facts.config().min_probe_timeout.min(Duration::from_secs(1));
        for (_, peer) in self.probing.iter_mut() {
            peer.grace(now, until);
        }
    }

    /// Probes `silo`; `confirms`: and confirms to it that it was heard.
    pub(crate) fn probe(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        silo: SiloAddress,
        confirms: bool,
    ) {
        let config = facts.config();
        let stretch =
            if config.extend_probe_timeout_during_degradation { 1 + self.score(facts) } else { 1 };
        let seq = out.new_seq();
        let witnessed = evidence::has_witness(&self.probing, facts, &silo);
        let Some(peer) = self.probing.peer_mut(&silo) else { return };
        peer.witness(witnessed);
        let timeout = peer.timeout(config, stretch);
        peer.on_sent(facts.now().mono, seq, timeout);
        let (misses, echo) = (peer.misses(), if confirms { peer.echo() } else { 0 });
        let due = indirect::is_due(peer, facts);
        let doubted = |other: &SiloAddress| is_doubted(&self.probing, other);
        let asked = due && self.indirect.ask(facts, out, silo, timeout, doubted);
        // Classic: the attempt is the intermediary's, if there is one.
        if !(asked && config.indirect_probe_counts_as_vote) {
            out.count().probes_sent += 1;
            let version = facts.view().version();
            out.send(silo, Message::Probe { seq, version, misses, echo });
        }
    }

    fn on_missed(&mut self, facts: &Facts, out: &mut Out, silo: SiloAddress) {
        let Some(peer) = self.probing.peer_mut(&silo) else { return };
        peer.on_miss();
        let misses = peer.misses();
        out.count().probes_missed += 1;
        out.event(Event::ProbeMissed { peer: silo, in_a_row: misses });
        if misses == 1 || misses == RENEW_MISSES {
            evidence::dial(&self.probing, facts, out, silo);
        }
        // In a cluster without enough third silos, the table is asked to be the witness.
        if facts.config().vote_needs_witness
            && evidence::needs_table(facts)
            && !evidence::has_witness(&self.probing, facts, &silo)
        {
            out.tell(Inner::Want(Read::Version));
        }
        if misses > 1 && facts.has_fence() {
            // If too few are left for a vote, the time since this read decides.
            out.tell(Inner::ReadRows);
        }
        if misses >= misses_to_vote(facts, &silo) {
            self.consider(facts, out, silo);
        }
        self.schedule_next(facts, out, silo);
    }

    fn schedule_next(&mut self, facts: &Facts, out: &mut Out, silo: SiloAddress) {
        let (now, config) = (facts.now().mono, facts.config());
        let period = self.probing.period(config);
        let Some(peer) = self.probing.peer_mut(&silo) else { return };
        let at_once = config.burst_reprobes && peer.misses() < config.num_missed_probes_limit;
        let next_at = if at_once { now } else { peer.regular(now, period) };
        peer.probe_at(next_at);
        if next_at <= now {
            out.tell(Inner::Probe(silo));
        }
    }

    /// An answer to one of its own probes. `is_seen`: the stamp goes back at once.
    pub(crate) fn on_ack(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        from: SiloAddress,
        seq: u64,
        stamp: u64,
        is_seen: bool,
    ) {
        let (now, config) = (facts.now().mono, facts.config());
        let period = self.probing.period(config);
        let Some(peer) = self.probing.peer_mut(&from) else { return };
        peer.stamp(stamp);
        let longest = peer.longest_sample(config);
        if let Some(waited) = peer.waits_since(now, seq) {
            let counters = out.count();
            counters.longest_answer = counters.longest_answer.max(waited);
        }
        let answer = peer.on_answer(now, seq, period, config.num_answers_to_clear, longest);
        if answer != Answer::Unknown {
            self.health.answered(facts);
        }
        if answer == Answer::Lives {
            if is_seen {
                out.send(from, Message::Seen { stamp });
            }
            if config.connection_liveness_window > Duration::ZERO {
                // The original counts whatever came over the connection, answers to probes too.
                peer.hear(now);
            }
            out.count().probes_answered += 1;
            evidence::clear(peer, out, from, true);
        }
    }

    // ---- suspicions
    // -----------------------------------------------------------------------------------------------

    /// Votes, if there is evidence enough.
    fn consider(&mut self, facts: &Facts, out: &mut Out, target: SiloAddress) {
        evidence::consider(&mut self.probing, facts, out, target);
    }

    /// Votes again against the silos whose rows have just been found stale: fewer votes are enough
    /// now, and their next probes may be seconds away. The original waits for the next probe.
    pub(crate) fn consider_stale(&mut self, facts: &Facts, out: &mut Out) {
        if !facts.has_fence() {
            return;
        }
        let suspects = facts.stale_members().filter(|silo| {
            let limit = misses_to_vote(facts, silo);
            self.probing.peer(silo).is_some_and(|peer| peer.misses() >= limit)
        });
        let suspects: Vec<SiloAddress> = suspects.collect();
        for silo in suspects {
            self.consider(facts, out, silo);
        }
    }

    /// EvictWhenMaxJoinAttemptTimeExceeded: a silo that has been Joining for longer than a join may
    /// take will not get any further. Judged by the own clock, by the silos that probe it.
    pub(crate) fn suspect_stuck_joiners(&mut self, facts: &Facts, out: &mut Out) {
        if !facts.config().evict_when_max_join_attempt_time_exceeded {
            return;
        }
        let (now, limit) = (facts.now().mono, facts.config().max_join_attempt_time);
        let mut stuck = Vec::new();
        for (silo, peer) in self.probing.iter_mut() {
            if facts.view().get(silo).is_some_and(|row| row.status == SiloStatus::Joining) {
                if peer.is_joining(now, limit) {
                    stuck.push(*silo);
                }
            } else {
                peer.has_joined();
            }
        }
        for silo in stuck {
            evidence::suspect(&mut self.probing, out, silo, Evidence::Silence);
        }
    }

    /// Something was noticed about the connection to `silo`.
    pub(crate) fn on_connection(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        silo: SiloAddress,
        event: ConnectionEvent,
    ) {
        let now = facts.now().mono;
        match event {
            ConnectionEvent::Heard => {
                if let Some(peer) = self.probing.peer_mut(&silo) {
                    peer.hear(now);
                }
            }
            ConnectionEvent::Closed | ConnectionEvent::Broken => {
                if let Some(peer) = self.probing.peer_mut(&silo) {
                    peer.lose_connection(now, event == ConnectionEvent::Closed);
                    if peer.is_refused() {
                        self.consider(facts, out, silo);
                    }
                }
                evidence::dial(&self.probing, facts, out, silo);
            }
            // It will write its own death; otherwise its row is probed like any other.
            ConnectionEvent::Goodbye => {}
        }
    }

    /// A dial that was to give a hint ended.
    pub(crate) fn on_dialled(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        silo: SiloAddress,
        outcome: DialOutcome,
    ) {
        let Some(peer) = self.probing.peer_mut(&silo) else { return };
        match outcome {
            DialOutcome::Answered => {
                let renews = peer.renews();
                if renews {
                    out.effect(Effect::Renew(silo));
                }
                if renews || peer.repeats_probe() {
                    out.tell(Inner::Probe(silo));
                }
            }
            DialOutcome::OtherEpoch(other) if !silo.is_succeeded_by(&other) => {}
            // Something answers for the host, and says that no such process is there. Together with
            // a connection that the host's kernel ended it is proof; alone it may be a firewall.
            DialOutcome::Refused | DialOutcome::Vacant | DialOutcome::OtherEpoch(_) => {
                out.count().dials_refused += 1;
                if outcome == DialOutcome::Vacant && facts.is_on_own_host(&silo) {
                    peer.vacate(facts.now().mono);
                } else {
                    peer.refuse(facts.now().mono);
                }
                self.consider(facts, out, silo);
                self.probe_before_its_turn(out, silo);
            }
            DialOutcome::NoAnswer => self.probe_before_its_turn(out, silo),
        }
    }

    /// Probes `silo`, unless a probe is on its way or was missed.
    fn probe_before_its_turn(&self, out: &mut Out, silo: SiloAddress) {
        if self.probing.peer(&silo).is_some_and(|peer| peer.misses() == 0 && !peer.is_in_flight()) {
            out.tell(Inner::Probe(silo));
        }
    }

    /// Dials `silo` if this silo probes it: it may be gone.
    pub(crate) fn dial(&self, facts: &Facts, out: &mut Out, silo: SiloAddress) {
        evidence::dial(&self.probing, facts, out, silo);
    }

    // ---- the probes of others
    // -------------------------------------------------------------------------------------

    /// A probe arrived.
    pub(crate) fn on_probed(&mut self, facts: &Facts, out: &mut Out) {
        out.count().probes_received += 1;
        self.health.probed(facts);
    }

    /// Another silo asks this one to probe `target`.
    pub(crate) fn on_probe_for(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        asker: SiloAddress,
        asker_seq: u64,
        target: SiloAddress,
        wait: Duration,
    ) {
        self.indirect.help(facts, out, asker, asker_seq, target, wait);
    }

    /// Returns true if the answer with number `seq` belongs to a probe for another silo.
    pub(crate) fn help_answered(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        from: &SiloAddress,
        seq: u64,
    ) -> bool {
        let score = || self.health.score(facts, self.probing.len());
        self.indirect.answered(out, from, seq, score)
    }

    /// Handles the outcome of an indirect probe that this silo asked for; `score` is the
    /// intermediary's.
    pub(crate) fn on_probed_for(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        from: SiloAddress,
        seq: u64,
        answered: bool,
        score: u32,
    ) {
        let Some((target, asked_at)) = self.indirect.reported(from, seq) else { return };
        let (now, config) = (facts.now(), facts.config());
        let Some(peer) = self.probing.peer_mut(&target) else { return };
        if answered {
            // Alive, only not for this silo at this moment.
            peer.calm(now.mono, config.probe_period);
            peer.probe_at(now.mono + config.probe_period);
            evidence::clear(peer, out, target, false);
        } else if config.indirect_probe_counts_as_vote
            && score == 0
            // The original holds every vote back while the connection was heard from lately, also
            // this one.
            && !evidence::is_heard(peer, facts)
            && peer.missed_since().is_some_and(|since| since <= asked_at)
        {
            // Classic: the negative answer of a healthy intermediary leads to a vote, and is one
            // itself.
            let evidence = Evidence::Silence;
            evidence::suspect(&mut self.probing, out, target, evidence);
            out.tell(Inner::Wish(Intent::Vote { target, voter: from, at: now.wall, evidence }));
        }
    }

    // ---- the own health
    // -------------------------------------------------------------------------------------------

    /// The shell measured how well this process runs.
    pub(crate) fn on_health(&mut self, facts: &Facts, sample: HealthSample) {
        self.health.sample(facts, sample);
    }

    /// This silo has become Active.
    pub(crate) fn became_active(&mut self, facts: &Facts) {
        self.health.became_active(facts);
    }
}

/// Answers a probe: the only thing that it needs.
pub(crate) fn acknowledge(facts: &Facts, out: &mut Out, from: SiloAddress, seq: u64) {
    let stamp = facts.now().mono.as_nanos();
    out.send(from, Message::Ack { seq, version: facts.view().version(), stamp });
}

/// Returns true if the fence is so short that a stamp has to go back at once, not with the next
/// probe.
pub(crate) fn is_fence_short(facts: &Facts) -> bool {
    facts.has_fence() && facts.config().fence_timeout < facts.config().probe_period * 3
}

fn is_doubted(probing: &Probing, silo: &SiloAddress) -> bool {
    probing.peer(silo).is_some_and(|peer| peer.misses() > 0 || peer.is_refused())
}
