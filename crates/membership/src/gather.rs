//! Votes on their way into a commit: which suspects die, and which wait for more votes or for
//! company (improvement 5).
//!
//! Silos that fail together should cost few versions. A death by silence therefore waits a little
//! while there are suspicions of others with votes that do not suffice yet; one whose host says
//! that the process is gone does not.

use std::time::Duration;

use emmer_core::{Instant, Now, SiloAddress, SiloEntry, SiloStatus, Vote};

use crate::intent::{Evidence, Intent, Key};
use crate::membership::Membership;
use crate::rules::{count_votes, is_shown};
use crate::timers::Timer;
use crate::writer::{Draft, Queued, add_vote};

/// For how many undecided suspects a death waits, one `death_gather` for each.
const GATHER_TIMES_MAX: u32 = 10;

/// What the queued votes against one suspect come to.
enum Outcome {
    /// Nothing to write: no vote is left, or none that is new.
    Nothing,
    /// Dead, and nobody needs to wait.
    Gone(SiloEntry),
    /// Dead by silence.
    Silent(SiloEntry),
    /// Not enough votes; the row with them, and since when the first of them waits.
    Few(SiloEntry, Instant),
}

impl Membership {
    /// Evaluates every queued vote of `keys`, which are in order.
    pub(crate) fn write_suspicions(
        &mut self,
        now: Now,
        keys: &[Key],
        draft: &mut Draft,
        dropped: &mut Vec<Key>,
    ) {
        let mut targets: Vec<SiloAddress> = keys
            .iter()
            .filter_map(|key| if let Key::Vote(target, _) = key { Some(*target) } else { None })
            .collect();
        targets.dedup();
        let mut ripe = Vec::new();
        let mut few = Vec::new();
        for target in targets {
            if draft.room() < 2 {
                break;
            }
            match self.weigh_votes(now, target, draft, dropped) {
                Outcome::Nothing => {}
                Outcome::Gone(row) => draft.put(row),
                Outcome::Silent(row) => ripe.push(row),
                Outcome::Few(row, since) => few.push((row, since)),
            }
        }
        let undecided = few.len();
        let few = self.few_to_write(now, few);
        self.release_ripe(now, ripe, undecided, !few.is_empty(), draft);
        for row in few {
            if draft.room() < 2 {
                break;
            }
            draft.put(row);
        }
    }

    /// How long to wait for the decision about `undecided` suspects: the more at once, the likelier
    /// they failed together.
    fn gather_time(&self, undecided: usize) -> Duration {
        let times = u32::try_from(undecided).map_or(GATHER_TIMES_MAX, |n| n.min(GATHER_TIMES_MAX));
        self.facts.config().death_gather * times
    }

    /// Writes deaths by silence, unless some wait for company. Once there is something to commit,
    /// or enough for a commit, nobody waits.
    fn release_ripe(
        &mut self,
        now: Now,
        ripe: Vec<SiloEntry>,
        undecided: usize,
        at_once: bool,
        draft: &mut Draft,
    ) {
        let mut since = self.writer.take_ripe();
        since.retain(|silo, _| ripe.iter().any(|row| row.address == *silo));
        for row in &ripe {
            since.entry(row.address).or_insert(now.mono);
        }
        let Some(first) = since.values().min() else { return };
        let until = *first + self.gather_time(undecided);
        let at_once = at_once || !draft.is_empty() || ripe.len() + 1 >= draft.room();
        if !at_once && now.mono < until {
            self.writer.keep_ripe(since);
            self.out.timers().set_no_later(Timer::Flush, until);
            return;
        }
        for row in ripe {
            if draft.room() < 2 {
                break;
            }
            // I6: whoever dies by this very commit is no voter any more.
            let status = |silo: &SiloAddress| self.drafted(draft, silo).map(|row| row.status);
            let counted = count_votes(&self.facts, &status, &row.address, &row.votes);
            let is_gone = row.votes.iter().any(|vote| vote.gone);
            if counted >= self.votes.quorum().votes_required(&self.facts, &row.address, is_gone) {
                draft.put(row);
            }
        }
    }

    /// Which votes that do not suffice are to be written: those kept in memory for long enough, and
    /// with them those kept for half as long. Until then one death costs one commit.
    fn few_to_write(&mut self, now: Now, few: Vec<(SiloEntry, Instant)>) -> Vec<SiloEntry> {
        let hold = self.facts.config().vote_hold;
        let mut due = false;
        for (row, since) in &few {
            let until = *since + hold;
            if now.mono < until {
                self.out.timers().set_no_later(Timer::Flush, until);
            } else {
                due |= !self.only_renews(row);
            }
        }
        let old = |since: Instant| now.mono >= since + hold / 2;
        let ready =
            few.into_iter().filter(|(row, since)| due && old(*since) && !self.only_renews(row));
        ready.map(|(row, _)| row).collect()
    }

    /// A vote already written, only renewed, is not worth a version before half its life has
    /// passed.
    fn only_renews(&self, row: &SiloEntry) -> bool {
        let window = self.facts.config().vote_window();
        let Some(before) = self.facts.view().get(&row.address) else { return false };
        let none_gone = row.votes.len() >= before.votes.len();
        none_gone
            && row.votes.iter().all(|vote| {
                before
                    .votes
                    .iter()
                    .any(|b| b.voter == vote.voter && window.only_renews(b.at, vote.at))
            })
    }

    /// Whether a vote of `voter` counts in a commit: it must be Active in the view the commit is
    /// based on, and not be declared dead by the same commit (invariant I6).
    pub(crate) fn may_vote(&self, draft: &Draft, voter: &SiloAddress) -> bool {
        self.drafted(draft, voter).is_some_and(|row| row.status == SiloStatus::Active)
    }

    fn weigh_votes(
        &self,
        now: Now,
        target: SiloAddress,
        draft: &Draft,
        dropped: &mut Vec<Key>,
    ) -> Outcome {
        let queued: Vec<(Key, &Queued)> = self.writer.votes_against(target).collect();
        let row =
            self.drafted(draft, &target).filter(|row| row.status != SiloStatus::Dead).cloned();
        let Some(mut row) = row else {
            dropped.extend(queued.iter().map(|(key, _)| *key));
            return Outcome::Nothing;
        };
        // A vote from far in the future bears a wrong clock's time, and would expire all others.
        let window = self.facts.config().vote_window();
        row.votes.retain(|vote| !window.is_ahead(now.wall, vote.at));
        let mut waits_since: Option<Instant> = None;
        // Refusals count beside the word of a silo that knows the process to be gone.
        let knows = |intent: &Intent| matches!(intent, Intent::Vote { voter, evidence: Evidence::Gone, .. } if self.may_vote(draft, voter));
        let is_gone = queued.iter().any(|(_, queued)| knows(&queued.intent))
            || row.votes.iter().any(|vote| vote.gone && self.may_vote(draft, &vote.voter));
        for (key, queued) in &queued {
            if is_shown(self.facts.view(), &queued.intent)
                || !self.may_vote(draft, &queued.intent.owner())
            {
                dropped.push(*key);
                continue;
            }
            if let Intent::Retract { voter, .. } = &queued.intent {
                row.votes.retain(|vote| vote.voter != *voter);
                waits_since =
                    Some(waits_since.map_or(queued.since, |since| since.min(queued.since)));
            }
            let Intent::Vote { voter, at, evidence, .. } = &queued.intent else { continue };
            if *evidence == Evidence::Refusal && !is_gone {
                continue;
            }
            let gone = *evidence == Evidence::Gone;
            add_vote(&mut row.votes, Vote { voter: *voter, at: *at, gone });
            waits_since = Some(waits_since.map_or(queued.since, |since| since.min(queued.since)));
        }
        let Some(since) = waits_since else { return Outcome::Nothing };
        let status = |silo: &SiloAddress| self.drafted(draft, silo).map(|row| row.status);
        let counted = count_votes(&self.facts, &status, &target, &row.votes);
        if !self.facts.config().liveness_enabled
            || counted < self.votes.quorum().votes_required(&self.facts, &target, is_gone)
        {
            return Outcome::Few(row, since);
        }
        row.status = SiloStatus::Dead;
        if is_gone { Outcome::Gone(row) } else { Outcome::Silent(row) }
    }
}
