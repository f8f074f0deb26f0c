//! I10: once faults stop, within a bound, every crashed silo is Dead, every living silo is Active,
//! and all have the same view.

use std::sync::Arc;

use emmer_core::{SiloAddress, SiloStatus};
use emmer_membership::View;

use crate::invariants::Facts;
use crate::process::Process;
use crate::table::row_hash;

/// Reason why the cluster is not whole, in words; none when it is.
pub fn why_not_whole(facts: &Facts<'_>) -> Option<String> {
    let version = facts.table.version().number;
    let mut anybody = false;
    for process in facts.processes.iter().filter(|p| p.is_running()) {
        anybody = true;
        if process.leaving {
            return Some(format!("{} is still leaving", process.address));
        }
        match facts.table.row(&process.address).map(|row| row.status) {
            Some(SiloStatus::Active) if process.installed == version => {}
            Some(SiloStatus::Active) => {
                let (address, has) = (process.address, process.installed);
                return Some(format!("{address} has version {has}, the table {version}"));
            }
            Some(status) => return Some(format!("{} runs and is {status}", process.address)),
            None => return Some(format!("{} runs and has no row", process.address)),
        }
    }
    if !anybody {
        // No silo is left that could declare another dead.
        return None;
    }
    let content = facts.table.content_at(version).unwrap_or_default();
    let same = |view: &View| {
        view.members().iter().fold(0u64, |sum, row| sum.wrapping_add(row_hash(row))) == content
    };
    // Most machines share one view: it is compared once.
    let mut compared = None;
    let mut differs = |view: &Arc<View>| {
        let differs = !compared.as_ref().is_some_and(|last| Arc::ptr_eq(last, view)) && !same(view);
        compared = Some(view.clone());
        differs
    };
    let machines = facts.processes.iter().filter_map(|process| process.machine.as_deref());
    if let Some(other) = machines.into_iter().find(|machine| differs(machine.view())) {
        return Some(format!("{} has another version {version} than the table", other.me()));
    }
    let runs = |silo: &SiloAddress| facts.process(silo).is_some_and(Process::is_running);
    let gone = facts.table.rows().find(|row| row.status != SiloStatus::Dead && !runs(&row.address));
    gone.map(|row| format!("{} is gone and {}", row.address, row.status))
}
