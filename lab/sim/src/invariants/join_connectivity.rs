//! J: a silo becomes Active only after it proved its connectivity to the Active silos (membership
//! description, step 8).
//!
//! Any two silos that are Active in one version have made a round trip: one of them answered a
//! probe or a dial of the other. Every silo that was Active before a joiner started has answered
//! that joiner. In clusters above 64 silos only the second half is checked.
//!
//! In a form that holds for every order of joins: a joiner becomes Active only after it has heard
//! (by a message or an answered dial) every silo that was Active before it started, still is, and
//! is not stale. It need not hear a silo whose row has stood still for longer than a living silo's
//! would (`Config::overlooked_after`), or for a little more than one publish period where the host
//! says that the silo is gone.

use emmer_core::SiloStatus;

use crate::invariants::{Facts, READ_AGE, Violation};
use crate::process::Process;
use crate::table::Record;

/// Clocks drift, and a joiner may count fewer Active silos than the table has: how much of a bound
/// must have passed for it to count as passed.
const NEARLY: f64 = 0.8;

/// Number of Active silos above which only small commits are checked: the check costs joiners times
/// members.
const THOROUGH_MEMBERS_MAX: usize = 256;

/// Looks at the silos that the newest commit made Active.
pub(super) fn check(facts: &Facts<'_>, record: &Record) -> Result<(), Violation> {
    if !facts.scenario.thorough && facts.table.len() > THOROUGH_MEMBERS_MAX {
        return Ok(());
    }
    let active = facts.table.rows().filter(|row| row.status == SiloStatus::Active).count();
    let config = &facts.scenario.config;
    let overlooked_after = config.overlooked_after(active).mul_f64(NEARLY);
    let refused_after = config.overlooked_when_refused_after(active).mul_f64(NEARLY);
    for change in &record.changes {
        let is_active = |row: &emmer_core::SiloEntry| row.status == SiloStatus::Active;
        if !change.after.as_ref().is_some_and(is_active)
            || change.before.as_ref().is_some_and(is_active)
        {
            continue;
        }
        let Some(joiner_number) = facts.hosts.process_of(facts.processes, &change.address) else {
            continue;
        };
        let joiner = &facts.processes[joiner_number as usize];
        check_reached(facts, joiner, record)?;
        for (number, member) in (0u32..).zip(facts.processes) {
            let before = member.active_at.is_some_and(|at| at < joiner.started);
            if member.address == joiner.address || !(before || facts.scenario.thorough) {
                continue;
            }
            let Some(row) = facts.table.row(&member.address) else { continue };
            let alive = !facts.may_look_stale(&member.address, joiner.now(facts.now).wall, 0.5);
            // Another process answers dials to its address, and says that it is not this one.
            let successors = facts.hosts.incarnations(member.host).iter();
            let replaced = successors
                .filter(|n| **n > number)
                .any(|n| facts.processes[*n as usize].is_running());
            let after =
                if member.is_running() && !replaced { overlooked_after } else { refused_after };
            let overlooked = facts
                .table
                .alive_at(&member.address)
                .is_some_and(|at| facts.now.since(at) >= after)
                || facts.table.stood_still(&member.address, facts.now, READ_AGE) >= after;
            let met = joiner.has_heard(number) || (!before && member.has_heard(joiner_number));
            if is_active(row) && alive && !overlooked && !met {
                let what = format!(
                    "{} became Active and made no round trip with {}",
                    joiner.address, member.address
                );
                return Err(facts.violated("J", what));
            }
        }
    }
    Ok(())
}

/// Returns true if a member has reached the joiner at its address, if there was a member that could
/// try. An answer while the commit is on its way comes too late for that.
fn check_reached(facts: &Facts<'_>, joiner: &Process, record: &Record) -> Result<(), Violation> {
    let config = &facts.scenario.config;
    let in_time = joiner.answered_at.is_some_and(|at| at < record.sent);
    if joiner.reached || !in_time || !config.connection_hints {
        return Ok(());
    }
    let tries = |row: &&emmer_core::SiloEntry| {
        let member = facts.process(&row.address);
        row.status == SiloStatus::Active
            && row.address != joiner.address
            && member.is_some_and(|member| member.active_at.is_some_and(|at| at < joiner.started))
            && facts
                .hosts
                .process_of(facts.processes, &row.address)
                .is_some_and(|n| joiner.answered.contains(n))
    };
    match facts.table.rows().find(tries) {
        None => Ok(()),
        Some(member) => {
            let (joiner, member) = (joiner.address, member.address);
            let what = format!("{joiner} became Active, heard {member}, and was reached by nobody");
            Err(facts.violated("J", what))
        }
    }
}
