//! I15: a grain that moves remembers every turn that has run, and no other.
//!
//! The memory of an activation is the life in which it grew and the number of its turns. A turn
//! finds the memory that the turn before it left, on whatever silo that ran; or a life begins.
//! Parameter sets without a fence promise it only among silos that are not Dead in the table.

use crate::grains::{GrainTruth, Memory};
use crate::invariants::{Facts, Violation};

/// A turn of `grain` begins on `number` with this memory.
pub(crate) fn check(
    facts: &Facts<'_>,
    truth: &GrainTruth,
    number: u32,
    grain: u32,
    memory: Memory,
) -> Result<(), Violation> {
    let (me, last) = (&facts.processes[number as usize], truth.memories.get(&grain));
    if last == Some(&memory) {
        return Ok(());
    }
    let what = format!(
        "grain {grain} runs on {} with {memory:?}, and the last turn left {last:?}",
        me.address
    );
    Err(facts.violated("I15", what))
}
