//! I1: the version grows by exactly one per committed write, and rows and version change together.
//!
//! The table model numbers its versions without gaps and refuses a commit on any other base. A silo
//! could still commit nothing (a version without a change, as when a commit of unknown outcome is
//! applied twice). One such commit is allowed: a silo that does not know the outcome of its last
//! commit writes its own row unchanged, so that the lost commit can no longer apply.

use crate::invariants::{Facts, Violation};
use crate::table::{Record, row_hash};

/// Looks at the newest commit.
pub(super) fn check(facts: &Facts<'_>, record: &Record, version: u64) -> Result<(), Violation> {
    if facts.table.history().len() as u64 != version {
        return Err(facts.violated("I1", format!("version {version} is not the number of commits")));
    }
    let changed = record.changes.iter().any(|change| match (&change.before, &change.after) {
        (Some(before), Some(after)) => row_hash(before) != row_hash(after),
        _ => true,
    });
    let writer = facts.processes[record.writer as usize].address;
    let settles = record.changes.len() == 1 && record.changes[0].address == writer;
    if changed || settles {
        return Ok(());
    }
    let rows: Vec<_> = record.changes.iter().map(|change| change.address).collect();
    Err(facts.violated(
        "I1",
        format!("{writer} made version {version} without changing anything in {rows:?}"),
    ))
}
