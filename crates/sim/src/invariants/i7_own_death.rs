//! I7: a silo that installs its own death stops within one step.
//!
//! Its own death is a view that shows it Dead, a view without its row after one with it (it was declared dead and
//! cleaned up), or a view with a later incarnation on its `ip:port`.

use std::collections::BTreeMap;

use emmer_core::SiloStatus;
use emmer_membership::View;

use crate::invariants::{Facts, Violation};

/// Who installed its own death in the step that is going on, with the version.
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
            let what = format!("{} installed its own death (version {version}) and goes on", process.address);
            return Err(facts.violated("I7", what));
        }
        Ok(())
    }
}
