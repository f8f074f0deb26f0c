//! I8: no turn starts, and no suspended turn goes on, on a silo once anybody else may be granted one of its grains.
//!
//! In a world without grains that moment is the first one at which another silo, which runs and is Active by its own view, has
//! installed the death and no longer takes the dead silo for fading (`Membership::fading`, by its own clock). From then on
//! the dead silo is looked at after every input that it takes; between inputs its fence can only close. One that stands still is
//! judged by what its code would do at the moment at which it goes on, before anything reaches its machine.
//!
//! There is no exemption. Parameter sets without a fence promise nothing.

use crate::invariants::{Facts, Violation};
use crate::time::VirtualTime;

/// Looks at a silo whose grains may be granted to others.
pub(super) fn check(facts: &Facts<'_>, number: u32) -> Result<(), Violation> {
    let process = &facts.processes[number as usize];
    let at = facts.now.max(process.paused_until);
    if !process.would_run_turns(at) {
        return Ok(());
    }
    let millis = |at: Option<VirtualTime>| {
        at.map_or_else(|| "?".to_owned(), |at| format!("{} ms ago", facts.now.since(at).as_millis()))
    };
    let what = format!(
        "{} may run turns until {}{}; its death was committed {}, its grains may be granted since {}",
        process.address,
        process.turns_until().map_or_else(|| "for ever".to_owned(), |until| format!("{until} s")),
        if process.leaving { " (it was told to leave)" } else { "" },
        millis(process.dead_at),
        millis(process.granted_at),
    );
    Err(facts.violated("I8", what))
}
