//! From missed probes to votes: hints, witnesses, and who may vote (membership description, steps 3
//! to 5; improvements 3 and 4).

use emmer_core::{Now, SiloAddress, SiloStatus};

use crate::api::{ConnectionEvent, DialOutcome, Effect};
use crate::dials::Purpose;
use crate::inner::Read;
use crate::intent::{Evidence, Key};
use crate::membership::Membership;
use crate::peer::Peer;
use crate::rules::{live_active_count, misses_to_vote};

/// Up to how many Active silos the table may stand in for a third silo as the witness.
const TABLE_WITNESS_SILOS_MAX: usize = 3;

impl Membership {
    /// Votes, if there is evidence enough: the process is gone, or the suspect has been silent for
    /// the whole patience and nothing speaks for it, or its host refuses connections after one
    /// broke.
    pub(crate) fn consider_vote(&mut self, now: Now, target: SiloAddress) {
        if self.facts.standing().status() != SiloStatus::Active
            || self.facts.view().get(&target).is_none()
        {
            return;
        }
        let Some(peer) = self.probing.peer(&target) else { return };
        let silent = peer.misses() >= misses_to_vote(&self.facts, &target)
            && !self.is_heard_of(now, &target)
            && self.witness_ok(&target);
        let evidence = if peer.is_gone() {
            Evidence::Gone
        } else if silent {
            Evidence::Silence
        } else if peer.is_refused_after_loss() {
            Evidence::Refusal
        } else {
            return;
        };
        self.vote(target, evidence);
    }

    /// The suspect answered.
    pub(crate) fn withdraw(&mut self, target: &SiloAddress) {
        let Some(peer) = self.probing.peer_mut(target).filter(|peer| !peer.is_stuck()) else {
            return;
        };
        if peer.clear() {
            self.out.count().suspicions_withdrawn += 1;
        }
        let key = Key::Vote(*target, self.facts.me());
        if !self.wishes.retracts(&key) {
            self.unwish(&key);
        }
    }

    /// Whether application bytes from the suspect speak against a vote.
    pub(crate) fn is_heard_of(&self, now: Now, target: &SiloAddress) -> bool {
        if !self.facts.config().enable_connection_liveness_check {
            return false;
        }
        let window = self.facts.config().connection_liveness_window;
        self.probing.peer(target).is_some_and(|peer| peer.is_heard(now.mono, window))
    }

    fn witness_ok(&self, target: &SiloAddress) -> bool {
        !self.facts.config().vote_needs_witness
            || self.probing.peer(target).is_some_and(Peer::is_witnessed)
    }

    /// Whether this silo has completed a round trip with somebody else since the first miss of
    /// `target`: if it is this silo that is cut off, nobody answers it.
    pub(crate) fn has_witness(&self, target: &SiloAddress) -> bool {
        let Some(since) = self.probing.peer(target).and_then(Peer::missed_since) else {
            return false;
        };
        let third = self
            .probing
            .iter()
            .any(|(silo, peer)| silo != target && peer.has_answered_since(since));
        third || (self.is_small() && self.table.has_answered_since(since))
    }

    fn is_small(&self) -> bool {
        live_active_count(&self.facts) <= TABLE_WITNESS_SILOS_MAX
    }

    /// In a cluster without enough third silos, the table is asked to be the witness.
    pub(crate) fn want_table_witness(&mut self, target: &SiloAddress) {
        if self.facts.config().vote_needs_witness && self.is_small() && !self.has_witness(target) {
            self.table.want(Read::Version);
        }
    }

    /// Whether this silo has reason to think that `silo` will not answer.
    pub(crate) fn is_doubted(&self, silo: &SiloAddress) -> bool {
        self.probing.peer(silo).is_some_and(|peer| peer.misses() > 0 || peer.is_refused())
            || self.join_doubts(silo)
    }

    // ---- hints
    // ------------------------------------------------------------------------------------------

    /// Asks on a fresh connection whether the process is still there.
    pub(crate) fn dial_peer(&mut self, silo: SiloAddress) {
        if !self.facts.config().connection_hints {
            return;
        }
        if self.probing.peer(&silo).is_some()
            && !self.out.dials().is_under_way(Purpose::Hint, &silo)
        {
            self.out.dial(silo, Purpose::Hint, self.facts.config().hint_dial_timeout);
        }
    }

    pub(crate) fn on_connection(&mut self, now: Now, silo: SiloAddress, event: ConnectionEvent) {
        match event {
            ConnectionEvent::Heard => {
                if let Some(peer) = self.probing.peer_mut(&silo) {
                    peer.hear(now.mono);
                }
            }
            ConnectionEvent::Closed | ConnectionEvent::Broken => {
                if let Some(peer) = self.probing.peer_mut(&silo) {
                    peer.lose_connection(now.mono, event == ConnectionEvent::Closed);
                    if peer.is_refused() {
                        self.consider_vote(now, silo);
                    }
                }
                self.dial_peer(silo);
            }
            // It will write its own Dead; if it does not, its row is probed like any other.
            ConnectionEvent::Goodbye => {}
        }
    }

    /// A dial that was to give a hint ended.
    pub(crate) fn hint_dialled(&mut self, now: Now, silo: SiloAddress, outcome: DialOutcome) {
        let Some(peer) = self.probing.peer_mut(&silo) else { return };
        match outcome {
            DialOutcome::Answered => {
                let renews = peer.renews();
                if renews {
                    self.out.effect(Effect::Renew(silo));
                }
                if renews || peer.repeats_probe() {
                    self.send_probe(now, silo);
                }
            }
            DialOutcome::OtherEpoch(other) if !silo.is_succeeded_by(&other) => {}
            // Something answers for the host, and says that no such process is there (any more).
            // Together with a connection that the host's kernel ended it is proof; alone it may be
            // a firewall.
            DialOutcome::Refused | DialOutcome::OtherEpoch(_) => {
                self.out.count().dials_refused += 1;
                peer.refuse(now.mono);
                self.consider_vote(now, silo);
                self.probe_now(now, silo);
            }
            DialOutcome::NoAnswer => self.probe_now(now, silo),
        }
    }

    /// Probes `silo` before its turn, unless a probe is on its way or was missed.
    fn probe_now(&mut self, now: Now, silo: SiloAddress) {
        if self.probing.peer(&silo).is_some_and(|peer| peer.misses() == 0 && !peer.is_in_flight()) {
            self.send_probe(now, silo);
        }
    }
}
