//! Indirect probes (membership description, step 11): asking others to probe a suspect before
//! voting.

use std::collections::BTreeMap;
use std::time::Duration;

use emmer_core::{Instant, SiloAddress, SiloStatus};

use super::peer::Peer;
use crate::facts::Facts;
use crate::message::Message;
use crate::out::Out;

/// The most indirect probes one silo carries out for others at a time. One more is not answered.
const HELPED_MAX: usize = 64;

/// A probe carried out for another silo.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Help {
    asker: SiloAddress,
    asker_seq: u64,
    target: SiloAddress,
    deadline: Instant,
}

/// The indirect probes under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Indirect {
    /// Asked of others, by number: suspect, intermediary, when.
    asked_for: BTreeMap<u64, (SiloAddress, SiloAddress, Instant)>,
    /// Carried out for others, by number.
    helping: BTreeMap<u64, Help>,
}

/// Returns true if the probe of `peer` that is being sent is one of the last before a vote.
pub(super) fn is_due(peer: &Peer, facts: &Facts) -> bool {
    let config = facts.config();
    let (limit, attempts) = (config.num_missed_probes_limit, config.num_indirect_attempts);
    config.enable_indirect_probes
        && !peer.is_gone()
        && peer.misses() > 0
        && peer.misses() + attempts >= limit
        && peer.misses() < limit
}

impl Indirect {
    /// Asks random other silos, none of which `is_doubted`, to probe `target`. Returns true if
    /// there was one to ask.
    pub(super) fn ask(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        target: SiloAddress,
        timeout: Duration,
        is_doubted: impl Fn(&SiloAddress) -> bool,
    ) -> bool {
        let helpers = pick_helpers(facts, out, &target, is_doubted);
        // The answer has to be back before the own probe counts as missed.
        let wait_ms = u64::try_from((timeout / 2).as_millis()).unwrap_or(u64::MAX).max(1);
        let found = !helpers.is_empty();
        for helper in helpers {
            let seq = out.new_seq();
            out.count().indirect_probes_sent += 1;
            self.asked_for.insert(seq, (target, helper, facts.now().mono));
            out.send(helper, Message::ProbeFor { seq, target, wait_ms });
        }
        while self.asked_for.len() > HELPED_MAX {
            self.asked_for.pop_first();
        }
        found
    }

    /// Another silo asks this one to probe `target`.
    pub(super) fn help(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        asker: SiloAddress,
        asker_seq: u64,
        target: SiloAddress,
        wait: Duration,
    ) {
        let view = facts.view();
        let known = view.get(&target).is_some_and(|row| row.status != SiloStatus::Dead);
        if !known || target == facts.me() || self.helping.len() >= HELPED_MAX {
            return;
        }
        let seq = out.new_seq();
        let wait = wait.min(facts.config().max_probe_timeout.saturating_mul(4));
        let deadline = facts.now().mono + wait;
        self.helping.insert(seq, Help { asker, asker_seq, target, deadline });
        out.send(target, Message::Probe { seq, version: view.version(), misses: 0, echo: 0 });
    }

    /// Returns true if the answer with number `seq` belongs to a probe for another silo, and passes
    /// it on with this silo's `score`.
    pub(super) fn answered(
        &mut self,
        out: &mut Out,
        from: &SiloAddress,
        seq: u64,
        score: impl Fn() -> u32,
    ) -> bool {
        if self.helping.get(&seq).is_none_or(|help| help.target != *from) {
            return false;
        }
        if let Some(help) = self.helping.remove(&seq) {
            report(out, &help, true, score());
        }
        true
    }

    /// The earliest moment an indirect probe has failed.
    pub(super) fn next(&self) -> Option<Instant> {
        self.helping.values().map(|help| help.deadline).min()
    }

    /// Reports the indirect probes that no silo answered.
    pub(super) fn run(&mut self, facts: &Facts, out: &mut Out, score: impl Fn() -> u32) {
        let now = facts.now().mono;
        let late: Vec<u64> = self
            .helping
            .iter()
            .filter(|(_, help)| help.deadline <= now)
            .map(|(seq, _)| *seq)
            .collect();
        for seq in late {
            if let Some(help) = self.helping.remove(&seq) {
                report(out, &help, false, score());
            }
        }
    }

    /// Takes the indirect probe number `seq`, of which `from` reports: the suspect, and when this
    /// silo asked.
    pub(super) fn reported(
        &mut self,
        from: SiloAddress,
        seq: u64,
    ) -> Option<(SiloAddress, Instant)> {
        let (target, helper, asked_at) = self.asked_for.get(&seq).copied()?;
        (helper == from).then(|| {
            self.asked_for.remove(&seq);
            (target, asked_at)
        })
    }
}

fn report(out: &mut Out, help: &Help, answered: bool, score: u32) {
    let (seq, target) = (help.asker_seq, help.target);
    out.send(help.asker, Message::ProbedFor { seq, target, answered, score });
}

fn pick_helpers(
    facts: &Facts,
    out: &mut Out,
    target: &SiloAddress,
    is_doubted: impl Fn(&SiloAddress) -> bool,
) -> Vec<SiloAddress> {
    let (members, me) = (facts.view().members(), facts.me());
    let wanted = facts.config().num_indirect_probes as usize;
    let mut picked = Vec::new();
    if members.is_empty() {
        return picked;
    }
    // A few random draws instead of a list of all candidates: clusters are large, suspects rare.
    let draws: Vec<usize> = if members.len() <= 16 {
        let start = out.dice().index(members.len());
        (0..members.len()).map(|i| (start + i) % members.len()).collect()
    } else {
        (0..wanted * 8).map(|_| out.dice().index(members.len())).collect()
    };
    for at in draws {
        let (silo, status) = (members[at].address, members[at].status);
        let usable = status == SiloStatus::Active
            && silo != me
            && silo != *target
            && !picked.contains(&silo)
            && !is_doubted(&silo)
            && !facts.is_stale(&silo);
        if usable {
            picked.push(silo);
            if picked.len() == wanted {
                break;
            }
        }
    }
    picked
}
