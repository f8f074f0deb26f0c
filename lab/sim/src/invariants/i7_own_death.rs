//! I7: a silo that installs its own death stops within one step, and one that ends itself has a
//! reason.
//!
//! Its own death is a view that shows it Dead, a view without its row after one with it (it was
//! declared dead and cleaned up), or a view with a later incarnation on its `ip:port`.

use std::collections::BTreeMap;

use emmer_core::{SiloAddress, SiloStatus};
use emmer_membership::{TerminateReason, View};

use crate::invariants::{Facts, Violation};

/// Process that installed its own death in the present step, with the version.
#[derive(Debug, Default)]
pub(super) struct OwnDeath(BTreeMap<u32, u64>);

impl OwnDeath {
    /// Looks at a view as it is put in force.
    pub(super) fn look(&mut self, facts: &Facts<'_>, number: u32, view: &View) {
        let process = &facts.processes[number as usize];
        let dead = match view.get(&process.address) {
            Some(row) => row.status == SiloStatus::Dead,
            None => process.seen_itself || view.successor_of(&process.address).is_some(),
        };
        if dead {
            self.0.insert(number, view.version());
        }
    }

    /// Looks at the process after the step.
    pub(super) fn check(&mut self, facts: &Facts<'_>, number: u32) -> Result<(), Violation> {
        let Some(version) = self.0.remove(&number) else { return Ok(()) };
        let process = &facts.processes[number as usize];
        if process.is_running() {
            let what = format!(
                "{} installed its own death (version {version}) and goes on",
                process.address
            );
            return Err(facts.violated("I7", what));
        }
        Ok(())
    }
}

/// Of the time that a join may take, so much must be over when a silo gives it up: clocks drift.
const NEARLY: f64 = 0.9;

/// Returns true if what `number` says as it ends is true.
pub(super) fn check_reason(
    facts: &Facts<'_>,
    number: u32,
    reason: TerminateReason,
) -> Result<(), Violation> {
    let process = &facts.processes[number as usize];
    let config = &facts.scenario.config;
    let is_true = match reason {
        TerminateReason::DeclaredDead | TerminateReason::RowMissing => process.dead_at.is_some(),
        TerminateReason::Superseded(_) => facts.has_successor(&process.address),
        // Where the store goes back nothing further is checked.
        TerminateReason::TableWentBack
        | TerminateReason::TableReplaced
        | TerminateReason::TableGone => false,
        TerminateReason::JoinTimedOut => {
            facts.now.since(process.started) >= config.max_join_attempt_time.mul_f64(NEARLY)
        }
        TerminateReason::Left => process.leaving,
    };
    if is_true {
        return Ok(());
    }
    Err(facts
        .violated("I7", format!("{} ends itself, and this is not true: {reason}", process.address)))
}

/// Process `number` answers a probe of `to`, which must not be Dead in its view: no silo continues
/// to talk with the dead.
pub(super) fn check_answer(
    facts: &Facts<'_>,
    number: u32,
    to: &SiloAddress,
) -> Result<(), Violation> {
    let process = &facts.processes[number as usize];
    let view = process.machine.as_ref().map(|machine| machine.view());
    if view.is_none_or(|view| view.status_of(to) != Some(SiloStatus::Dead)) {
        return Ok(());
    }
    Err(facts
        .violated("I7", format!("{} answers {to}, which is Dead in its view", process.address)))
}

/// Returns true if process `number` should have given its join up; it has not, if it is still
/// joining.
pub(super) fn check_joined(facts: &Facts<'_>, number: u32) -> Result<(), Violation> {
    let process = &facts.processes[number as usize];
    let joins =
        process.machine.as_ref().is_some_and(|machine| machine.status() < SiloStatus::Active);
    if process.active_at.is_some() || !joins || process.leaving || process.paused_until > facts.now
    {
        return Ok(());
    }
    let took = facts.now.since(process.started).as_secs();
    Err(facts.violated("I7", format!("{} still joins after {took} s", process.address)))
}
