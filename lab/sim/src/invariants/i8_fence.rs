//! I8: no turn starts, and no suspended turn continues, on a silo once another one may be granted
//! one of its grains.
//!
//! In a world without grains that moment is the first one at which another silo, which runs and is
//! Active by its own view, has installed the death and no longer counts the dead silo as fading
//! (`Membership::fading`, by its own clock). From then on the dead silo is checked after each of
//! its inputs; between inputs its fence can only close. A process that stands still is judged by
//! its next step when it continues, before anything reaches its machine.
//!
//! A poll that began just before the fence closed may run on for `POLL_GRACE`, so the fence must
//! have closed earlier than that moment by as much.
//!
//! There is no exemption. Parameter sets without a fence promise nothing.

use std::time::Duration;

use crate::invariants::{Facts, Violation};
use crate::process::Process;
use crate::time::VirtualTime;

/// Time for which a poll may run that checked the fence just before it closed: a little less than
/// `POLL_GRACE`.
const POLL_MAX: Duration = Duration::from_millis(49);

/// Looks at a silo whose grains may be granted to others.
pub(super) fn check(facts: &Facts<'_>, number: u32) -> Result<(), Violation> {
    let process = &facts.processes[number as usize];
    let at = facts.now.max(process.paused_until);
    if !process.would_run_turns(at) {
        return check_poll(facts, process);
    }
    let millis = |at: Option<VirtualTime>| {
        at.map_or_else(
            || "?".to_owned(),
            |at| format!("{} ms ago", facts.now.since(at).as_millis()),
        )
    };
    let what = format!(
        "{} may run turns until {}{}; its death was committed {}, its grains may be granted since \
         {}",
        process.address,
        process.turns_until().map_or_else(|| "for ever".to_owned(), |until| format!("{until} s")),
        if process.leaving { " (it was told to leave)" } else { "" },
        millis(process.dead_at),
        millis(process.granted_at),
    );
    Err(facts.violated("I8", what))
}

/// Looks at a poll that may have begun at the very end of the time for which the fence was open.
fn check_poll(facts: &Facts<'_>, process: &Process) -> Result<(), Violation> {
    let (Some(until), Some(granted)) = (process.turns_until(), process.granted_at) else {
        return Ok(());
    };
    let ran = process.is_running() && process.hosted && process.paused_until < until;
    if !ran || until + POLL_MAX <= granted || until > facts.now {
        return Ok(());
    }
    let what = format!(
        "{} may have begun a poll just before {until} s, which may run on for {} ms; its grains \
         may be granted since {granted} s",
        process.address,
        POLL_MAX.as_millis(),
    );
    Err(facts.violated("I8", what))
}
