//! I8 among grains: at any moment at most one silo runs, or could start or resume, a turn of a
//! grain.
//!
//! Checked whenever code of a grain begins to run and whenever a registration is acknowledged: no
//! other silo may be running the grain's code, and no silo with an activation of the grain may have
//! its fence open. A process that stands still is judged by its next step when it wakes up.
//!
//! Parameter sets without a fence promise it only among silos that are not Dead in the table.

use crate::grains::Segment;
use crate::invariants::{Facts, Violation};

/// Looks for another silo than `number` that runs `grain` or could. `runs`: code of the grain
/// begins to run on `number` now; else it was acknowledged to be there. `last`: the grain's last
/// segment.
pub(crate) fn check(
    facts: &Facts<'_>,
    number: u32,
    grain: u32,
    runs: bool,
    last: Option<&Segment>,
) -> Result<(), Violation> {
    let me = &facts.processes[number as usize];
    let fenced = !facts.scenario.config.fence_timeout.is_zero();
    if !fenced && me.dead_at.is_some() {
        return Ok(());
    }
    if !me.would_run_turns(facts.now) {
        // An old acknowledgement that comes late grants nothing to a silo whose fence is closed.
        if !runs {
            return Ok(());
        }
        if fenced && me.granted_at.is_some() {
            let what = format!("{} runs grain {grain} while others may be granted it", me.address);
            return Err(facts.violated("I8", what));
        }
    }
    if let Some(segment) = last.filter(|s| s.process != number && s.end > facts.now) {
        let other = &facts.processes[segment.process as usize];
        // Code of a killed process no longer runs.
        if other.is_running() && (fenced || other.dead_at.is_none()) {
            let what = format!(
                "grain {grain} runs on {} while its code on {} runs from {} to {} s",
                me.address, other.address, segment.start, segment.end
            );
            return Err(facts.violated("I8", what));
        }
    }
    for (other_number, other) in (0u32..).zip(facts.processes) {
        if other_number == number || !other.is_running() || (!fenced && other.dead_at.is_some()) {
            continue;
        }
        let Some(shell) = other.shell.as_deref() else { continue };
        let there = shell.catalog.get(&grain).is_some_and(|activation| activation.runs_code());
        if there && other.would_run_turns(facts.now.max(other.paused_until)) {
            let what = format!(
                "grain {grain} is granted to {} while {} (dead in the table: {}) holds it and may \
                 run turns until {}",
                me.address,
                other.address,
                other.dead_at.is_some(),
                other
                    .turns_until()
                    .map_or_else(|| "for ever".to_owned(), |until| format!("{until} s")),
            );
            return Err(facts.violated("I8", what));
        }
    }
    Ok(())
}
