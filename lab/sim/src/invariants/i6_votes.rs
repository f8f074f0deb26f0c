//! I6: a Dead row carries enough distinct, unexpired votes of silos Active at that version (or the
//! silo's own, or its successor's).
//!
//! Two further deaths come from the seeds: a joiner evicts a row whose IAmAliveTime has not moved
//! for too long (membership description, step 14), and a silo that stays Joining for too long is
//! evicted.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use emmer_core::{SiloAddress, SiloEntry, SiloStatus, TableVersion};
use emmer_membership::{View, ring_targets};

use crate::invariants::{Facts, Violation};
use crate::scenario::Fault;
use crate::table::{Change, Record};

/// Clocks drift and stores are slow: how much of a bound must have passed for it to count as
/// passed.
const NEARLY: f64 = 0.9;

/// Looks at the deaths in the newest commit. A voter may die by the very commit that its vote is
/// in, but only after its vote was counted: there must be an order of the deaths in which each has
/// its votes from silos that are not dead before it. Looked for from the last one back.
pub(super) fn check(facts: &Facts<'_>, record: &Record) -> Result<(), Violation> {
    check_dates(facts, record)?;
    let mut dying = Vec::new();
    let mut dead: BTreeSet<SiloAddress> = BTreeSet::new();
    for change in &record.changes {
        let (Some(before), Some(after)) = (&change.before, &change.after) else { continue };
        if before.status == SiloStatus::Dead || after.status != SiloStatus::Dead {
            continue;
        }
        let excused = of_its_own(facts, record, change)
            || succeeded(facts, change)
            || stale(facts, record, change)
            || stuck(facts, before);
        if !excused {
            dying.push((change, after, valid_votes(facts, record, after)));
            dead.insert(change.address);
        }
    }
    if dying.is_empty() {
        return Ok(());
    }
    let needed = votes_needed(facts, record);
    loop {
        let enough = |address: &SiloAddress, votes: &BTreeSet<SiloAddress>| {
            let living = votes.difference(&dead).count();
            living >= needed || living >= monitors(facts, record, address).max(1)
        };
        let last = dying.iter().position(|(change, _, votes)| enough(&change.address, votes));
        let Some(last) = last else { break };
        let (change, ..) = dying.remove(last);
        dead.remove(&change.address);
    }
    match dying.first() {
        None => Ok(()),
        Some((change, after, votes)) => {
            let votes: Vec<_> = votes.difference(&dead).collect();
            let what = format!(
                "{} was declared dead with {} of {needed} votes that count: {votes:?} of {:?}",
                change.address,
                votes.len(),
                after.votes
            );
            Err(facts.violated("I6", what))
        }
    }
}

/// Left, gave its join up, or wrote its own death.
fn of_its_own(facts: &Facts<'_>, record: &Record, change: &Change) -> bool {
    facts.processes[record.writer as usize].address == change.address
        || facts.process(&change.address).is_some_and(|p| p.leaving)
}

/// A later incarnation of its endpoint is in the table, or writes itself in with this very commit.
fn succeeded(facts: &Facts<'_>, change: &Change) -> bool {
    facts
        .table
        .incarnations_of(&change.address)
        .any(|row| change.address.is_succeeded_by(&row.address))
        || facts.has_successor(&change.address)
}

/// Its row was not touched for as long as makes a row stale, and a joiner wrote.
fn stale(facts: &Facts<'_>, record: &Record, change: &Change) -> bool {
    let bound = facts.scenario.config.stale_after(1).mul_f64(NEARLY);
    let joiner = facts.processes[record.writer as usize].address;
    let by_joiner =
        status_before(facts, record, &joiner).is_none_or(|status| status < SiloStatus::Active);
    let silent =
        facts.table.alive_at(&change.address).is_some_and(|at| facts.now.since(at) >= bound);
    (by_joiner || facts.scenario.config.batch_writes) && silent
}

/// It was Joining for longer than a join may take.
fn stuck(facts: &Facts<'_>, before: &SiloEntry) -> bool {
    let bound = facts.scenario.config.max_join_attempt_time.mul_f64(NEARLY);
    let process = facts.process(&before.address);
    before.status == SiloStatus::Joining
        && process.is_some_and(|p| facts.now.since(p.started) >= bound)
}

/// The distinct voters whose votes count: Active before this commit, with a vote inside the window,
/// which ends at the row's newest vote or at the writer's clock when it asked. The clock may step,
/// and votes grow old, while the request is on its way: a writer is judged by its knowledge then.
fn valid_votes(facts: &Facts<'_>, record: &Record, after: &SiloEntry) -> BTreeSet<SiloAddress> {
    let wall = record.asked;
    let slack = Duration::from_secs(15);
    let end = after.votes.iter().map(|vote| vote.at).max().map_or(wall, |at| at.max(wall));
    after
        .votes
        .iter()
        .filter(|vote| {
            end.saturating_since(vote.at)
                < facts.scenario.config.death_vote_expiration_timeout + slack
        })
        .filter(|vote| status_before(facts, record, &vote.voter) == Some(SiloStatus::Active))
        .map(|vote| vote.voter)
        .collect()
}

/// The configured number, less in small clusters: a majority of the Active silos that are not
/// stale. This counts the least that any silo could have thought, so it leaves out rows that may
/// have looked stale to some silo. The writer's clock when it asked decides.
fn votes_needed(facts: &Facts<'_>, record: &Record) -> usize {
    let config = &facts.scenario.config;
    let active = facts
        .table
        .rows()
        .filter(|row| status_before(facts, record, &row.address) == Some(SiloStatus::Active))
        .filter(|row| !facts.may_look_stale(&row.address, record.asked, 0.8))
        .count();
    (config.num_votes_for_death_declaration as usize).min(active.div_ceil(2)).max(1)
}

/// Number of Active silos that probed `silo` in the version before `record`: where fewer than a
/// death takes votes, all of them are enough.
fn monitors(facts: &Facts<'_>, record: &Record, silo: &SiloAddress) -> usize {
    let config = &facts.scenario.config;
    let before = facts.table.rows().filter_map(|row| {
        let mut row = row.clone();
        row.status = status_before(facts, record, &row.address)?;
        Some(Arc::new(row))
    });
    let view = View::new(TableVersion::default(), before.collect());
    let probes = |other: &SiloAddress| {
        ring_targets(&view, other, config.num_probe_rings, config.num_probed_silos).contains(silo)
    };
    view.active().filter(|row| row.address != *silo && probes(&row.address)).count()
}

/// The status of `silo` in the version before `record`.
fn status_before(facts: &Facts<'_>, record: &Record, silo: &SiloAddress) -> Option<SiloStatus> {
    match record.changes.iter().find(|change| change.address == *silo) {
        Some(change) => change.before.as_ref().map(|row| row.status),
        None => facts.table.row(silo).map(|row| row.status),
    }
}

/// Tolerance for the date of a vote after its voter's end, in addition to a quarter of the window,
/// when a writer dates it by its own clock.
const DATE_SLACK: Duration = Duration::from_millis(800);

/// No vote bears a time after its voter has ended, by clocks that are right.
fn check_dates(facts: &Facts<'_>, record: &Record) -> Result<(), Violation> {
    let stepped =
        facts.scenario.steps.iter().any(|step| matches!(step.fault, Fault::StepClock { .. }));
    if stepped || facts.scenario.clocks.offset_ms_max > 0 {
        return Ok(());
    }
    let slack = DATE_SLACK + facts.scenario.config.death_vote_expiration_timeout / 4;
    for change in &record.changes {
        for vote in change.after.iter().flat_map(|row| &row.votes) {
            let Some(voter) = facts.process(&vote.voter) else { continue };
            let Some(ended) = voter.ended_at.filter(|_| change.address != vote.voter) else {
                continue;
            };
            let last = voter.now(ended).wall;
            let succeeds = change.address.is_succeeded_by(&vote.voter);
            if !succeeds && vote.at.saturating_since(last) > slack {
                let late = vote.at.saturating_since(last).as_millis();
                let what = format!(
                    "{} voted against {} {late} ms after its end",
                    vote.voter, change.address
                );
                return Err(facts.violated("I6", what));
            }
        }
    }
    Ok(())
}
