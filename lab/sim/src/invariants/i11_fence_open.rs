//! I11: the fence of a silo that is connected is open.
//!
//! A silo is connected if it is Active and runs well: its process, its host and its links had no
//! trouble lately, and
//!
//! * it reaches a store that answers quickly and truly, whatever happens to the others: the table
//!   confirms it; or
//! * nothing at all happened to anybody lately but to the store, which has been away for less than
//!   makes rows stale: its monitors confirm it.

use std::time::Duration;

use emmer_core::SiloStatus;

use crate::invariants::{Facts, Violation};

/// Time for which nothing may have been wrong.
const LATELY: Duration = Duration::from_secs(15);

/// Time without events before the store went away: what silos doubt of each other is settled by the
/// store.
const SETTLED: Duration = Duration::from_secs(22);

/// Time that a request to the store may take, there and back, for the table to confirm a silo all
/// the time.
const STORE_MAX: Duration = Duration::from_millis(40);

/// Number of silos that have to be Active.
const ACTIVE_MIN: usize = 3;

/// The fence of `number` has closed.
pub(super) fn check(facts: &Facts<'_>, number: u32) -> Result<(), Violation> {
    let process = &facts.processes[number as usize];
    let active = |status: SiloStatus| status == SiloStatus::Active;
    let is_member = process.machine.as_ref().is_some_and(|machine| active(machine.status()))
        && facts.table.row(&process.address).is_some_and(|row| active(row.status))
        && process.active_at.is_some_and(|at| facts.now.since(at) >= LATELY);
    // A silo that is alone, or was a moment ago, is not confirmed by monitors.
    let active_count = facts.table.rows().filter(|row| active(row.status)).count();
    let is_member = is_member && active_count >= ACTIVE_MIN;
    if !is_member || !facts.expects.tight || facts.was_troubled(process.host, LATELY) {
        return Ok(());
    }
    let by_table = facts.expects.store <= STORE_MAX
        && facts.calm.store_open == 0
        && facts.now.since(facts.calm.store_at) >= LATELY;
    let still = facts.table.alive_at(&process.address).map(|at| facts.now.since(at));
    let fresh = facts.scenario.config.stale_after(1) / 2;
    // After an earlier outage others may have found it stale: it wants to be confirmed by all for a
    // while.
    let before = facts.calm.store_since.since(facts.calm.disturbed_at);
    let by_monitors = facts.calm.store_times <= 1
        && before >= SETTLED
        && facts.calm.was_undisturbed(facts.now, LATELY)
        && still.is_some_and(|still| still < fresh)
        && all_run(facts);
    if by_table || by_monitors {
        let by = if by_table { "reaches the store" } else { "and all others run well" };
        return Err(
            facts.violated("I11", format!("the fence of {} closes, which {by}", process.address))
        );
    }
    Ok(())
}

/// Returns true if there are some silos, every row that is not Dead is Active for long, its process
/// runs, and no silo died lately.
fn all_run(facts: &Facts<'_>) -> bool {
    let changed = facts.table.history().last().map(|record| record.at);
    let settled = changed.is_some_and(|at| facts.now.since(at) >= LATELY);
    settled
        && facts.table.rows().filter(|row| row.status != SiloStatus::Dead).all(|row| {
            facts.process(&row.address).is_some_and(|process| {
                process.is_running()
                    && process.active_at.is_some_and(|at| facts.now.since(at) >= LATELY)
            })
        })
}
