//! Indirect probes (membership description, step 11): asking others to probe a suspect before
//! voting.

use std::collections::BTreeMap;
use std::time::Duration;

use emmer_core::{Instant, Now, SiloAddress, SiloStatus};

use crate::intent::{Evidence, Intent};
use crate::membership::Membership;
use crate::message::Message;

/// The most indirect probes one silo carries out for others at a time. One more is not answered.
const HELPED_MAX: usize = 64;

/// A probe carried out for somebody else.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Help {
    asker: SiloAddress,
    asker_seq: u64,
    target: SiloAddress,
    deadline: Instant,
}

/// The indirect probes under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Indirect {
    /// Asked of others, by number: suspect, intermediary, when.
    asked_for: BTreeMap<u64, (SiloAddress, SiloAddress, Instant)>,
    /// Carried out for others, by number.
    helping: BTreeMap<u64, Help>,
}

impl Membership {
    /// Whether the probe of `silo` that is being sent is one of the last before a vote.
    pub(crate) fn indirect_is_due(&self, silo: &SiloAddress) -> bool {
        let (limit, attempts) = (
            self.facts.config().num_missed_probes_limit,
            self.facts.config().num_indirect_attempts,
        );
        self.facts.config().enable_indirect_probes
            && self.probing.peer(silo).is_some_and(|peer| {
                !peer.is_gone()
                    && peer.misses() > 0
                    && peer.misses() + attempts >= limit
                    && peer.misses() < limit
            })
    }

    /// Asks randomly chosen others to probe `target`; whether there was anybody to ask.
    pub(crate) fn ask_indirectly(
        &mut self,
        now: Now,
        target: SiloAddress,
        timeout: Duration,
    ) -> bool {
        let helpers = self.pick_helpers(&target, self.facts.config().num_indirect_probes as usize);
        // The answer has to be back before the own probe counts as missed.
        let wait_ms = u64::try_from((timeout / 2).as_millis()).unwrap_or(u64::MAX).max(1);
        let found = !helpers.is_empty();
        for helper in helpers {
            let seq = self.out.new_seq();
            self.out.count().indirect_probes_sent += 1;
            self.indirect.asked_for.insert(seq, (target, helper, now.mono));
            self.out.send(helper, Message::ProbeFor { seq, target, wait_ms });
        }
        while self.indirect.asked_for.len() > HELPED_MAX {
            self.indirect.asked_for.pop_first();
        }
        found
    }

    fn pick_helpers(&mut self, target: &SiloAddress, wanted: usize) -> Vec<SiloAddress> {
        let members = self.facts.view().members();
        let me = self.facts.me();
        let mut picked = Vec::new();
        if members.is_empty() {
            return picked;
        }
        // A few random draws instead of a list of all candidates: clusters are large, suspects
        // rare.
        let draws: Vec<usize> = if members.len() <= 16 {
            let start = self.out.dice().index(members.len());
            (0..members.len()).map(|i| (start + i) % members.len()).collect()
        } else {
            (0..wanted * 8).map(|_| self.out.dice().index(members.len())).collect()
        };
        let members = self.facts.view().members();
        for at in draws {
            let row = &members[at];
            let silo = row.address;
            let usable = row.status == SiloStatus::Active
                && silo != me
                && silo != *target
                && !picked.contains(&silo)
                && !self.is_doubted(&silo)
                && !self.facts.is_stale(&silo);
            if usable {
                picked.push(silo);
                if picked.len() == wanted {
                    break;
                }
            }
        }
        picked
    }

    /// Somebody asks this silo to probe `target`.
    pub(crate) fn on_probe_for(
        &mut self,
        now: Now,
        asker: SiloAddress,
        asker_seq: u64,
        target: SiloAddress,
        wait: Duration,
    ) {
        let known =
            self.facts.view().get(&target).is_some_and(|row| row.status != SiloStatus::Dead);
        if !known || target == self.facts.me() || self.indirect.helping.len() >= HELPED_MAX {
            return;
        }
        let seq = self.out.new_seq();
        let deadline = now.mono + wait.min(self.facts.config().max_probe_timeout.saturating_mul(4));
        self.indirect.helping.insert(seq, Help { asker, asker_seq, target, deadline });
        self.out.send(
            target,
            Message::Probe { seq, version: self.facts.view().version(), misses: 0, echo: 0 },
        );
    }

    /// Whether the answer with number `seq` belongs to a probe for somebody else; passes it on.
    pub(crate) fn indirect_answered(&mut self, from: &SiloAddress, seq: u64) -> bool {
        let Some(help) =
            self.indirect.helping.get(&seq).filter(|help| help.target == *from).cloned()
        else {
            return false;
        };
        self.indirect.helping.remove(&seq);
        self.report_help(&help, true);
        true
    }

    /// The earliest moment an indirect probe has failed.
    pub(crate) fn next_help(&self) -> Option<Instant> {
        self.indirect.helping.values().map(|help| help.deadline).min()
    }

    /// Reports the indirect probes that nobody answered.
    pub(crate) fn run_help(&mut self, now: Now) {
        let late: Vec<u64> = self
            .indirect
            .helping
            .iter()
            .filter(|(_, help)| help.deadline <= now.mono)
            .map(|(seq, _)| *seq)
            .collect();
        for seq in late {
            if let Some(help) = self.indirect.helping.remove(&seq) {
                self.report_help(&help, false);
            }
        }
    }

    fn report_help(&mut self, help: &Help, answered: bool) {
        let score = self.health_score();
        let (seq, target) = (help.asker_seq, help.target);
        self.out.send(help.asker, Message::ProbedFor { seq, target, answered, score });
    }

    /// What became of an indirect probe that this silo asked for.
    pub(crate) fn on_probed_for(
        &mut self,
        now: Now,
        from: SiloAddress,
        seq: u64,
        answered: bool,
        score: u32,
    ) {
        let Some((target, helper, asked_at)) = self.indirect.asked_for.get(&seq).copied() else {
            return;
        };
        if helper != from {
            return;
        }
        self.indirect.asked_for.remove(&seq);
        let period = self.facts.config().probe_period;
        // The original holds every vote back while the connection was heard from lately, also this
        // one.
        let heard = self.is_heard_of(now, &target);
        let Some(peer) = self.probing.peer_mut(&target) else { return };
        if answered {
            // Alive, only not for this silo at this moment.
            peer.calm(now.mono, period);
            peer.probe_at(now.mono + period);
            self.withdraw(&target);
        } else if self.facts.config().indirect_probe_counts_as_vote
            && score == 0
            && !heard
            && peer.missed_since().is_some_and(|since| since <= asked_at)
        {
            // Classic: the negative answer of a healthy intermediary leads to a vote, and is one
            // itself.
            self.vote(target, Evidence::Silence);
            self.wish(
                now,
                Intent::Vote { target, voter: from, at: now.wall, evidence: Evidence::Silence },
            );
        }
    }
}
