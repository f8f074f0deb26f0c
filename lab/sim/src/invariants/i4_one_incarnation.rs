//! I4: at most one living incarnation per `ip:port` in any view.

use emmer_core::SiloStatus;

use crate::invariants::{Facts, Violation};
use crate::table::Record;

/// Looks at the endpoints that the newest commit touched.
pub(super) fn check(facts: &Facts<'_>, record: &Record) -> Result<(), Violation> {
    for change in &record.changes {
        if change.after.is_none() {
            continue;
        }
        let living = facts
            .table
            .incarnations_of(&change.address)
            .filter(|row| row.status != SiloStatus::Dead);
        let living: Vec<_> = living.map(|row| row.address).collect();
        if living.len() > 1 {
            return Err(facts.violated("I4", format!("{living:?} are alive at once")));
        }
    }
    Ok(())
}
