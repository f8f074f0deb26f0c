//! I3: Dead is final for `ip:port:epoch`, also after its row is cleaned up; and no status ever
//! moves back.

use std::collections::BTreeSet;

use emmer_core::{SiloAddress, SiloStatus};

use crate::invariants::{Facts, Violation};
use crate::scenario::Fault;
use crate::table::Record;

/// Every identity that was ever Dead.
#[derive(Debug, Default)]
pub(super) struct EverDead(BTreeSet<SiloAddress>);

impl EverDead {
    /// Looks at the newest commit.
    pub(super) fn check(&mut self, facts: &Facts<'_>, record: &Record) -> Result<(), Violation> {
        for change in &record.changes {
            let (who, before) = (change.address, change.before.as_ref().map(|row| row.status));
            let Some(after) = change.after.as_ref().map(|row| row.status) else {
                if before.is_some_and(|status| status != SiloStatus::Dead) {
                    return Err(facts
                        .violated("I3", format!("the row of {who} was deleted while {before:?}")));
                }
                check_deleted(facts, record, who)?;
                continue;
            };
            if before.is_some_and(|before| before > after) {
                return Err(
                    facts.violated("I3", format!("{who} went from {before:?} back to {after}"))
                );
            }
            if after == SiloStatus::Dead {
                self.0.insert(who);
            } else if self.0.contains(&who) {
                return Err(facts.violated("I3", format!("{who} was Dead and is {after} again")));
            }
        }
        Ok(())
    }
}

/// Share of a time that must be over when it is said to be: clocks drift.
const NEARLY: f64 = 0.9;

/// Number of calls of a caller of which one goes to a grain that was never called before.
fn check_deleted(facts: &Facts<'_>, record: &Record, who: SiloAddress) -> Result<(), Violation> {
    let config = &facts.scenario.config;
    let Some(died) = facts.process(&who).and_then(|process| process.dead_at) else { return Ok(()) };
    let rests = facts.now.since(died);
    let deleted = record.changes.iter().filter(|change| change.after.is_none()).count();
    let dead = facts.table.rows().filter(|row| row.status == SiloStatus::Dead).count() + deleted;
    let max = config.max_defunct_silo_entries as usize;
    let stepped =
        facts.scenario.steps.iter().any(|step| matches!(step.fault, Fault::StepClock { .. }));
    let sure = !stepped && facts.scenario.clocks.offset_ms_max == 0;
    let mut keep = config.death_vote_expiration_timeout.max(config.max_join_attempt_time * 2);
    if sure && (max == 0 || dead <= max) {
        keep = keep.max(config.defunct_silo_expiration);
    }
    if rests >= keep.mul_f64(NEARLY) {
        return Ok(());
    }
    let what = format!("the row of {who} was deleted {} ms after its death", rests.as_millis());
    Err(facts.violated("I3", what))
}
