//! I6: a Dead row carries enough distinct, unexpired votes of silos Active at that version (or the silo's own, or
//! its successor's).
//!
//! Two further ways to die come from the seeds: a joiner evicts a row whose IAmAliveTime has not moved for too
//! long (seed 000 step 3, disaster recovery), and a silo that stays Joining for too long is evicted.

use std::collections::BTreeSet;
use std::sync::Arc;

use emmer_core::{SiloAddress, SiloEntry, SiloStatus, TableVersion};
use emmer_membership::{View, ring_targets};

use crate::invariants::{Facts, Violation};
use crate::table::{Change, Record};

/// Clocks drift and stores are slow: how much of a bound must have passed for it to count as passed.
const NEARLY: f64 = 0.9;

/// Looks at the deaths in the newest commit.
pub(super) fn check(facts: &Facts<'_>, record: &Record) -> Result<(), Violation> {
    for change in &record.changes {
        let (Some(before), Some(after)) = (&change.before, &change.after) else { continue };
        if before.status == SiloStatus::Dead || after.status != SiloStatus::Dead {
            continue;
        }
        let excused = of_its_own(facts, record, change)
            || succeeded(facts, change)
            || stale(facts, record, change)
            || stuck(facts, before);
        if excused {
            continue;
        }
        let votes = valid_votes(facts, record, after);
        let needed = votes_needed(facts, record);
        if votes.len() < needed && votes.len() < monitors(facts, record, &change.address).max(1) {
            let what = format!(
                "{} was declared dead with {} of {needed} votes that count: {votes:?} of {:?}",
                change.address,
                votes.len(),
                after.votes
            );
            return Err(facts.violated("I6", what));
        }
    }
    Ok(())
}

/// Left, gave its join up, or wrote its own death.
fn of_its_own(facts: &Facts<'_>, record: &Record, change: &Change) -> bool {
    facts.processes[record.writer as usize].address == change.address
        || facts.process(&change.address).is_some_and(|p| p.leaving)
}

/// A later incarnation of its endpoint is in the table, or writes itself in with this very commit.
fn succeeded(facts: &Facts<'_>, change: &Change) -> bool {
    facts.table.incarnations_of(&change.address).any(|row| change.address.is_succeeded_by(&row.address))
        || facts.has_successor(&change.address)
}

/// Its row was not touched for as long as makes a row stale, and a joiner wrote.
fn stale(facts: &Facts<'_>, record: &Record, change: &Change) -> bool {
    let bound = facts.scenario.config.stale_after().mul_f64(NEARLY);
    let joiner = facts.processes[record.writer as usize].address;
    let by_joiner = status_before(facts, record, &joiner).is_none_or(|status| status < SiloStatus::Active);
    let silent = facts.table.alive_at(&change.address).is_some_and(|at| facts.now.since(at) >= bound);
    (by_joiner || facts.scenario.config.batch_writes) && silent
}

/// It was Joining for longer than a join may take.
fn stuck(facts: &Facts<'_>, before: &SiloEntry) -> bool {
    let bound = facts.scenario.config.max_join_attempt_time.mul_f64(NEARLY);
    let process = facts.process(&before.address);
    before.status == SiloStatus::Joining && process.is_some_and(|p| facts.now.since(p.started) >= bound)
}

/// The distinct voters whose votes count: Active before this commit, and voted within the window that ends with
/// the row's newest vote or with what the writer's clock showed when it asked. The clock may step, and the votes grow old, while
/// the request is on its way: a writer is judged by what it could know.
fn valid_votes(facts: &Facts<'_>, record: &Record, after: &SiloEntry) -> BTreeSet<SiloAddress> {
    let wall = record.asked;
    let slack = std::time::Duration::from_secs(15);
    let end = after.votes.iter().map(|vote| vote.at).max().map_or(wall, |at| at.max(wall));
    after
        .votes
        .iter()
        .filter(|vote| {
            end.saturating_since(vote.at) < facts.scenario.config.death_vote_expiration_timeout + slack
        })
        .filter(|vote| status_before(facts, record, &vote.voter) == Some(SiloStatus::Active))
        .map(|vote| vote.voter)
        .collect()
}

/// As many as configured, fewer in small clusters: a majority of the Active silos that are not stale. Counted here
/// is the least that any silo could have thought: a row that may have looked stale to somebody is left out.
fn votes_needed(facts: &Facts<'_>, record: &Record) -> usize {
    let config = &facts.scenario.config;
    let writer = &facts.processes[record.writer as usize];
    let active = facts
        .table
        .rows()
        .filter(|row| status_before(facts, record, &row.address) == Some(SiloStatus::Active))
        .filter(|row| !facts.may_look_stale(&row.address, writer, 0.8))
        .count();
    (config.num_votes_for_death_declaration as usize).min(active.div_ceil(2)).max(1)
}

/// How many Active silos probed `silo` in the version before `record`: where there are fewer than a death takes votes, all of them are
/// enough.
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
