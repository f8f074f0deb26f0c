//! Votes on their way into a commit: which suspects die, and which wait for more votes or for
//! company (improvement 5).
//!
//! Silos that fail together should cost few versions. A death by silence waits a little while other
//! silos have insufficient votes against them. A death whose host says that the process is gone
//! does not wait.

use std::collections::BTreeMap;
use std::time::Duration;

use emmer_core::{Instant, SiloAddress, SiloEntry, SiloStatus, Vote};

use super::draft::{Draft, add_vote};
use super::queue::Queue;
use crate::config::Config;
use crate::facts::Facts;
use crate::intent::{Evidence, Intent, Key};
use crate::out::Out;
use crate::rules::{Quorum, count_votes, is_shown};
use crate::timers::Timer;

/// For how many undecided suspects a death waits, one `death_gather` for each.
const GATHER_TIMES_MAX: u32 = 10;

/// The suspects with enough votes to be declared dead that wait for others, and since when.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Ripe(BTreeMap<SiloAddress, Instant>);

/// Result of the queued votes against one suspect.
enum Outcome {
    /// Nothing to write: no vote is left, or none that is new.
    Nothing,
    /// Dead, without a wait.
    Gone(SiloEntry),
    /// Dead by silence.
    Silent(SiloEntry),
    /// Not enough votes; the row with them, and since when the first of them waits.
    Few(SiloEntry, Instant),
}

impl Ripe {
    /// Evaluates every vote of `queue`, whose keys these are, in order. Puts the keys of those that
    /// are done into `dropped`.
    pub(super) fn write_suspicions(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        quorum: Quorum,
        queue: &Queue,
        draft: &mut Draft,
        dropped: &mut Vec<Key>,
    ) {
        let target = |key: &Key| if let Key::Vote(target, _) = key { Some(*target) } else { None };
        let mut targets: Vec<SiloAddress> = queue.keys().filter_map(target).collect();
        targets.dedup();
        let mut ripe = Vec::new();
        let mut few = Vec::new();
        for target in targets {
            if draft.room() < 2 {
                break;
            }
            match weigh(facts, quorum, queue, target, draft, dropped) {
                Outcome::Nothing => {}
                Outcome::Gone(row) => draft.put(row),
                Outcome::Silent(row) => ripe.push(row),
                Outcome::Few(row, since) => few.push((row, since)),
            }
        }
        let undecided = few.len();
        let few = few_to_write(facts, out, few);
        let until = gather_time(facts.config(), undecided);
        self.release(facts, out, quorum, ripe, until, !few.is_empty(), draft);
        for row in few {
            if draft.room() < 2 {
                break;
            }
            draft.put(row);
        }
    }

    /// Writes deaths by silence, unless some wait for company: `gather`, from the first on. Once
    /// there is something to commit, or enough for a commit, none waits.
    #[expect(clippy::too_many_arguments, reason = "one step of the function above")]
    fn release(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        quorum: Quorum,
        ripe: Vec<SiloEntry>,
        gather: Duration,
        at_once: bool,
        draft: &mut Draft,
    ) {
        let now = facts.now().mono;
        let mut since = std::mem::take(&mut self.0);
        since.retain(|silo, _| ripe.iter().any(|row| row.address == *silo));
        for row in &ripe {
            since.entry(row.address).or_insert(now);
        }
        let Some(first) = since.values().min() else { return };
        let until = *first + gather;
        let at_once = at_once || !draft.is_empty() || ripe.len() + 1 >= draft.room();
        if !at_once && now < until {
            self.0 = since;
            out.timers().set_no_later(Timer::Flush, until);
            return;
        }
        for row in ripe {
            if draft.room() < 2 {
                break;
            }
            // I6: a silo that dies by this very commit is no longer a voter.
            let is_gone = row.votes.iter().any(|vote| vote.gone);
            if suffice(facts, quorum, draft, &row, is_gone) {
                draft.put(row);
            }
        }
    }
}

/// Time to wait for the decision about `undecided` suspects: the more at once, the likelier they
/// failed together.
fn gather_time(config: &Config, undecided: usize) -> Duration {
    let times = u32::try_from(undecided).map_or(GATHER_TIMES_MAX, |n| n.min(GATHER_TIMES_MAX));
    config.death_gather * times
}

/// Insufficient votes to write: those kept in memory for long enough, and with them those kept for
/// half as long. Until then one death costs one commit.
fn few_to_write(facts: &Facts, out: &mut Out, few: Vec<(SiloEntry, Instant)>) -> Vec<SiloEntry> {
    let (now, hold) = (facts.now().mono, facts.config().vote_hold);
    let mut due = false;
    for (row, since) in &few {
        let until = *since + hold;
        if now < until {
            out.timers().set_no_later(Timer::Flush, until);
        } else {
            due |= !only_renews(facts, row);
        }
    }
    let old = |since: Instant| now >= since + hold / 2;
    let ready =
        few.into_iter().filter(|(row, since)| due && old(*since) && !only_renews(facts, row));
    ready.map(|(row, _)| row).collect()
}

/// A vote already written, only renewed, is not worth a version before half its life has passed.
fn only_renews(facts: &Facts, row: &SiloEntry) -> bool {
    let window = facts.config().vote_window();
    let Some(before) = facts.view().get(&row.address) else { return false };
    let none_gone = row.votes.len() >= before.votes.len();
    none_gone
        && row.votes.iter().all(|vote| {
            before.votes.iter().any(|b| b.voter == vote.voter && window.only_renews(b.at, vote.at))
        })
}

/// Returns true if the votes of `row` make its silo Dead.
fn suffice(facts: &Facts, quorum: Quorum, draft: &Draft, row: &SiloEntry, is_gone: bool) -> bool {
    let status = |silo: &SiloAddress| draft.status(facts.view(), silo);
    let counted = count_votes(facts, &status, &row.address, &row.votes);
    counted >= quorum.votes_required(facts, &row.address, is_gone)
}

fn weigh(
    facts: &Facts,
    quorum: Quorum,
    queue: &Queue,
    target: SiloAddress,
    draft: &Draft,
    dropped: &mut Vec<Key>,
) -> Outcome {
    let view = facts.view();
    let queued: Vec<(Key, &Intent, Instant)> = queue.votes_against(target).collect();
    let row = draft.row(view, &target).filter(|row| row.status != SiloStatus::Dead).cloned();
    let Some(mut row) = row else {
        dropped.extend(queued.iter().map(|(key, ..)| *key));
        return Outcome::Nothing;
    };
    // I6: a voter must be Active in the view the commit is based on, and not be declared dead by
    // the same commit.
    let may_vote = |voter: &SiloAddress| draft.status(view, voter) == Some(SiloStatus::Active);
    // A vote from far in the future bears a wrong clock's time, and would expire all others.
    let window = facts.config().vote_window();
    row.votes.retain(|vote| !window.is_ahead(facts.now().wall, vote.at));
    // Refusals count together with the word of a silo that knows the process to be gone.
    let knows = |intent: &Intent| match intent {
        Intent::Vote { voter, evidence, .. } => *evidence == Evidence::Gone && may_vote(voter),
        _ => false,
    };
    let is_gone = queued.iter().any(|(_, intent, _)| knows(intent))
        || row.votes.iter().any(|vote| vote.gone && may_vote(&vote.voter));
    let mut waits_since: Option<Instant> = None;
    let mut waits = |since: Instant| {
        waits_since = Some(waits_since.map_or(since, |first| first.min(since)));
    };
    for (key, intent, since) in &queued {
        if is_shown(view, intent) || !may_vote(&intent.owner()) {
            dropped.push(*key);
            continue;
        }
        match intent {
            Intent::Retract { voter, .. } => {
                row.votes.retain(|vote| vote.voter != *voter);
                waits(*since);
            }
            Intent::Vote { voter, at, evidence, .. }
                if *evidence != Evidence::Refusal || is_gone =>
            {
                let gone = *evidence == Evidence::Gone;
                add_vote(&mut row.votes, Vote { voter: *voter, at: *at, gone });
                waits(*since);
            }
            _ => {}
        }
    }
    let Some(since) = waits_since else { return Outcome::Nothing };
    if !facts.config().liveness_enabled || !suffice(facts, quorum, draft, &row, is_gone) {
        return Outcome::Few(row, since);
    }
    row.status = SiloStatus::Dead;
    if is_gone { Outcome::Gone(row) } else { Outcome::Silent(row) }
}
