//! I9 within the directories: the statements of `docs/directory.md` about silos that serve, checked
//! after every step that can change them.
//!
//! * Lemma 1: no two silos that are not Dead in the table have one grain's range unlocked.
//! * Lemma 2: whoever has it unlocked knows the registration that was acknowledged and is not being
//!   given back.
//! * Lemma 4: whoever has it unlocked knows the activation of a Dead silo that can still run turns
//!   (invariant I8: else it would grant the grain to somebody else).

use emmer_directory::{Directory, Registration};

use crate::grains::GrainTruth;
use crate::invariants::{Facts, Violation};
use crate::process::Process;

/// Looks at everything that `number` has unlocked.
pub(crate) fn check(facts: &Facts<'_>, truth: &GrainTruth, number: u32) -> Result<(), Violation> {
    let grains = u32::try_from(truth.ids.len()).unwrap_or(u32::MAX);
    (0..grains).try_for_each(|grain| check_grain(facts, truth, number, grain))
}

/// Checks the unlocked entries of one grain in all directories.
pub(crate) fn check_everywhere(
    facts: &Facts<'_>,
    truth: &GrainTruth,
    grain: u32,
) -> Result<(), Violation> {
    let numbers = 0..u32::try_from(facts.processes.len()).unwrap_or(u32::MAX);
    numbers.into_iter().try_for_each(|number| check_grain(facts, truth, number, grain))
}

/// The directory of a process that runs and is not Dead in the table, if it has the grain unlocked.
fn unlocked<'a>(process: &'a Process, truth: &GrainTruth, grain: u32) -> Option<&'a Directory> {
    let directory = &process.shell.as_deref().filter(|_| process.dead_at.is_none())?.directory;
    let id = &truth.ids[grain as usize];
    (directory.owned_ranges().covers(id) && !directory.is_locked(id)).then_some(directory)
}

fn check_grain(
    facts: &Facts<'_>,
    truth: &GrainTruth,
    number: u32,
    grain: u32,
) -> Result<(), Violation> {
    let me = &facts.processes[number as usize];
    let Some(directory) = unlocked(me, truth, grain) else { return Ok(()) };
    let entry = directory.entry(&truth.ids[grain as usize]);
    let knows = || entry.map_or_else(|| "nothing".to_owned(), |entry| entry.to_string());
    if let Some((held, _)) = truth.held.get(&grain)
        && entry != Some(*held)
    {
        let what = format!(
            "{} serves grain {grain} and has {}, while {held} holds it",
            me.address,
            knows()
        );
        return Err(facts.violated("I9", what));
    }
    let fenced = !facts.scenario.config.fence_timeout.is_zero();
    for (other_number, other) in (0u32..).zip(facts.processes) {
        if other_number == number || !other.is_running() {
            continue;
        }
        if unlocked(other, truth, grain).is_some() {
            let what = format!("{} and {} serve grain {grain} at once", me.address, other.address);
            return Err(facts.violated("I9", what));
        }
        if fenced
            && other.dead_at.is_some()
            && let Some(runs) = runs(other, grain)
            && entry != Some(runs)
            && other.would_run_turns(facts.now.max(other.paused_until))
        {
            let what = format!(
                "{} serves grain {grain} and has {}, while {runs} (Dead in the table) may run its \
                 turns",
                me.address,
                knows()
            );
            return Err(facts.violated("I8", what));
        }
    }
    Ok(())
}

/// The activation of `grain` there whose code would run.
fn runs(process: &Process, grain: u32) -> Option<Registration> {
    let activation =
        process.shell.as_deref()?.catalog.get(&grain).filter(|held| held.runs_code())?;
    Some(Registration { silo: process.address, activation: activation.number })
}
