//! From missed probes to the evidence for a vote: hints, witnesses (membership description, steps 3
//! to 5; improvements 3 and 4).

use emmer_core::{SiloAddress, SiloStatus};

use super::monitor::Probing;
use super::peer::Peer;
use crate::dials::Purpose;
use crate::facts::Facts;
use crate::inner::Inner;
use crate::intent::Evidence;
use crate::out::Out;
use crate::rules::{live_active_count, misses_to_vote};

/// Up to how many Active silos the table may stand in for a third silo as the witness.
const TABLE_WITNESS_SILOS_MAX: usize = 3;

/// Votes if the evidence is sufficient: the process is gone; the suspect was silent for the whole
/// patience and nothing speaks for it; or its host refuses connections after one broke.
pub(super) fn consider(probing: &mut Probing, facts: &Facts, out: &mut Out, target: SiloAddress) {
    if facts.status() != SiloStatus::Active || facts.view().get(&target).is_none() {
        return;
    }
    let Some(peer) = probing.peer(&target) else { return };
    let silent = peer.misses() >= misses_to_vote(facts, &target)
        && !is_heard(peer, facts)
        && (!facts.config().vote_needs_witness || peer.is_witnessed());
    let evidence = if peer.is_gone() {
        Evidence::Gone
    } else if silent {
        Evidence::Silence
    } else if peer.is_refused_after_loss() {
        Evidence::Refusal
    } else {
        return;
    };
    suspect(probing, out, target, evidence);
}

/// Votes against `target`.
pub(super) fn suspect(
    probing: &mut Probing,
    out: &mut Out,
    target: SiloAddress,
    evidence: Evidence,
) {
    if probing.peer_mut(&target).is_some_and(Peer::suspect) {
        out.count().votes_cast += 1;
    }
    out.tell(Inner::Suspect { target, evidence });
}

/// The suspect answered: `directly`, or by way of another silo.
pub(super) fn clear(peer: &mut Peer, out: &mut Out, silo: SiloAddress, directly: bool) {
    if !peer.is_stuck() {
        if peer.clear() {
            out.count().suspicions_withdrawn += 1;
        }
        out.tell(Inner::Answered { silo, directly });
    }
}

/// Returns true if application bytes from the suspect speak against a vote.
pub(super) fn is_heard(peer: &Peer, facts: &Facts) -> bool {
    let config = facts.config();
    config.enable_connection_liveness_check
        && peer.is_heard(facts.now().mono, config.connection_liveness_window)
}

/// Returns true if this silo has completed a round trip with a third one since the first miss of
/// `target`. A silo that is itself cut off gets no such answer.
pub(super) fn has_witness(probing: &Probing, facts: &Facts, target: &SiloAddress) -> bool {
    let Some(since) = probing.peer(target).and_then(Peer::missed_since) else {
        return false;
    };
    let third = probing.iter().any(|(silo, peer)| silo != target && peer.has_answered_since(since));
    third || (needs_table(facts) && facts.table_answered().is_some_and(|sent| sent >= since))
}

/// Returns true if the cluster has not enough third silos, so that the table may be the witness.
pub(super) fn needs_table(facts: &Facts) -> bool {
    live_active_count(facts) <= TABLE_WITNESS_SILOS_MAX
}

/// Asks on a fresh connection whether the process is still there.
pub(super) fn dial(probing: &Probing, facts: &Facts, out: &mut Out, silo: SiloAddress) {
    if facts.config().connection_hints
        && probing.peer(&silo).is_some()
        && !out.dials().is_under_way(Purpose::Hint, &silo)
    {
        out.dial(silo, Purpose::Hint, facts.config().hint_dial_timeout);
    }
}
