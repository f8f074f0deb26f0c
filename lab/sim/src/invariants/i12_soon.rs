//! I12: what happens alone is over soon.
//!
//! In a world with a quick network and a reliable store, after ten quiet seconds that end with a
//! whole cluster: a silo that starts, leaves, stops, is killed or lost leaves a cluster that is
//! whole again within a bound (`Expects::whole_after`). A view is at every silo within the time of
//! its tree. A silo that is Dead and connected has ended soon.

use std::sync::Arc;
use std::time::Duration;

use emmer_core::{SiloAddress, SiloEntry, SiloStatus, TableVersion};
use emmer_membership::{View, ring_targets};

use crate::calm::{Alone, QUIET};
use crate::invariants::{Facts, Violation, i10_convergence};
use crate::process::Process;
use crate::time::VirtualTime;

/// Time for which a Dead silo that reaches its peers may continue: a probe is on its way after at
/// most a second, and may have to be sent again after three.
const END_MAX: Duration = Duration::from_secs(6);

/// The cluster has to be whole again after `what`, which happened at `since`.
pub(super) fn whole(facts: &Facts<'_>, what: Alone, since: VirtualTime) -> Result<(), Violation> {
    let alone = facts.calm.disturbed_at == since && !facts.calm.at_once;
    if !alone || facts.calm.open > 0 || facts.calm.store_at > since {
        return Ok(());
    }
    match i10_convergence::why_not_whole(facts) {
        None => Ok(()),
        Some(why) => {
            let took = facts.now.since(since).as_millis();
            Err(facts.violated("I12", format!("not whole {took} ms after {what:?} alone: {why}")))
        }
    }
}

/// Everybody has to have `version`, which was committed at `since`.
pub(super) fn spread(facts: &Facts<'_>, version: u64, since: VirtualTime) -> Result<(), Violation> {
    let members = facts.table.rows().filter(|row| row.status == SiloStatus::Active);
    // The tree leads over silos that are gone and not Dead yet.
    if !facts.calm.was_quiet(facts.now, facts.now.since(since) + QUIET) || !all_run(facts) {
        return Ok(());
    }
    let settled = Duration::from_secs(1);
    let mut members = members.filter_map(|row| facts.process(&row.address));
    let late = members.find(|process| {
        process.is_running()
            && process.active_at.is_some_and(|at| since.since(at) >= settled)
            && process.installed < version
    });
    match late {
        None => Ok(()),
        Some(process) => {
            let (address, took) = (process.address, facts.now.since(since).as_millis());
            let what =
                format!("{address} does not have version {version} {took} ms after its commit");
            Err(facts.violated("I12", what))
        }
    }
}

/// Returns true if every silo that is not Dead runs, and did so before the newest commit.
fn all_run(facts: &Facts<'_>) -> bool {
    let runs = |silo: &SiloAddress| facts.process(silo).is_some_and(Process::is_running);
    facts.table.rows().all(|row| row.status == SiloStatus::Dead || runs(&row.address))
        && facts.newest().is_some_and(|(record, _)| {
            let dies = |row: &SiloEntry| row.status == SiloStatus::Dead;
            record.changes.iter().all(|change| !change.after.as_ref().is_some_and(dies))
        })
}

/// Process `number`, which was Dead at `since`, has to have ended, unless something stood between
/// it and the others.
pub(super) fn ended(facts: &Facts<'_>, number: u32) -> Result<Option<VirtualTime>, Violation> {
    let process = &facts.processes[number as usize];
    let Some(died) = process.dead_at.filter(|_| process.is_running() && process.seen_itself) else {
        return Ok(None);
    };
    let since = facts.calm.disturbed_at.max(died);
    if facts.calm.open > 0 || facts.now.since(since) < END_MAX {
        return Ok(Some((since + END_MAX).max(facts.now + END_MAX / 6)));
    }
    // A silo that thinks that it is alone probes no other, and silos that came after its own view
    // do not know it. Silos that have not heard of its death cannot tell it either.
    let Some(machine) = &process.machine else { return Ok(None) };
    let others = facts.processes.iter().any(|other| {
        let active = other.active_at.is_some() && other.dead_at.is_none() && other.is_running();
        let known = machine.view().status_of(&other.address) == Some(SiloStatus::Active);
        let told =
            other.machine.as_ref().and_then(|machine| machine.view().status_of(&process.address));
        other.address != process.address
            && active
            && known
            && told.is_none_or(|status| status == SiloStatus::Dead)
    });
    if !others {
        return Ok(None);
    }
    let what = format!("{} is Dead since {died} s and connected, and goes on", process.address);
    Err(facts.violated("I12", what))
}

/// Time after the last trouble by which every vote is taken back: until none can be on its way, and
/// some time to write.
const VOTES_GONE_AFTER: Duration = Duration::from_secs(30);

/// In a cluster that is whole no vote stands whose voter hears the suspect.
pub(super) fn votes_gone(facts: &Facts<'_>) -> Result<(), Violation> {
    let config = &facts.scenario.config;
    let quiet = facts.expects.tight && facts.calm.was_quiet(facts.now, VOTES_GONE_AFTER);
    let suspects: Vec<&SiloEntry> = facts
        .table
        .rows()
        .filter(|row| row.status == SiloStatus::Active && !row.votes.is_empty())
        .collect();
    if !quiet
        || !config.retract_votes
        || suspects.is_empty()
        || i10_convergence::why_not_whole(facts).is_some()
    {
        return Ok(());
    }
    let view = View::new(
        TableVersion::default(),
        facts.table.rows().map(|row| Arc::new(row.clone())).collect(),
    );
    for row in suspects {
        for vote in &row.votes {
            let is_active =
                view.get(&vote.voter).is_some_and(|voter| voter.status == SiloStatus::Active);
            let probes = is_active
                && ring_targets(
                    &view,
                    &vote.voter,
                    config.num_probe_rings,
                    config.num_probed_silos,
                )
                .contains(&row.address);
            if probes {
                let what = format!("{} hears {}, and its vote stands", vote.voter, row.address);
                return Err(facts.violated("I12", what));
            }
        }
    }
    Ok(())
}
