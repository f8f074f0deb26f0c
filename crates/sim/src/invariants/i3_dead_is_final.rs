//! I3: Dead is final for `ip:port:epoch`, also after its row is cleaned up; and no status ever moves back.

use std::collections::BTreeSet;

use emmer_core::{SiloAddress, SiloStatus};

use crate::invariants::{Facts, Violation};
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
                    return Err(
                        facts.violated("I3", format!("the row of {who} was deleted while {before:?}"))
                    );
                }
                continue;
            };
            if before.is_some_and(|before| before > after) {
                return Err(facts.violated("I3", format!("{who} went from {before:?} back to {after}")));
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
