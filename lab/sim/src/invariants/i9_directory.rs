//! I9: an acknowledged registration is found until it is removed or its silo is Dead, and nothing
//! else is found. In every view the ranges of the silos are disjoint and cover the ring.
//!
//! Judged as a history: a command is an interval from its start to its outcome. A fact that holds
//! all through the interval must be its outcome; a fact that was over before must not be. Commands
//! that failed or were lost have unknown outcomes, but a failed registration must never be found
//! acknowledged.

use std::collections::BTreeMap;

use emmer_core::SiloAddress;
use emmer_directory::{RangeSet, Registration};

use crate::grains::{Asked, GrainTruth};
use crate::invariants::{Facts, Violation};

/// Views whose ranges are remembered.
const VIEWS_MAX: usize = 8;

/// The outcome of a lookup, or of a registration that was refused, on `number`: `found` is where
/// the grain is said to be.
pub(crate) fn check_found(
    facts: &Facts<'_>,
    truth: &GrainTruth,
    number: u32,
    grain: u32,
    asked: &Asked,
    found: Option<Registration>,
) -> Result<(), Violation> {
    let me = &facts.processes[number as usize];
    if me.dead_at.is_some() {
        // A silo that is Dead asks owners of old views, and may do nothing with any answer.
        return Ok(());
    }
    let known = truth.held.get(&grain).copied();
    if let Some((held, _)) =
        known.filter(|known| asked.known == Some(*known) && found != Some(known.0))
    {
        let found = found.map_or_else(|| "nothing".to_owned(), |found| found.to_string());
        let what = format!(
            "{} looked for grain {grain} and found {found}, while {held} is registered",
            me.address
        );
        return Err(facts.violated("I9", what));
    }
    let Some(found) = found else { return Ok(()) };
    if !truth.requested.contains(&(grain, found)) {
        let what =
            format!("{} found grain {grain} at {found}, which nobody ever asked for", me.address);
        return Err(facts.violated("I9", what));
    }
    let died = facts.process(&found.silo).and_then(|silo| silo.death_version);
    if died.is_some_and(|died| died <= asked.view) {
        let what = format!(
            "{} found grain {grain} at {found}, which was Dead in the view it asked by",
            me.address
        );
        return Err(facts.violated("I9", what));
    }
    let may_come_again = truth.may_be_left(grain, found, facts.now);
    let is_over = truth.removed.get(&(grain, found)).is_some_and(|place| *place <= asked.removals);
    if is_over && !may_come_again {
        let what = format!(
            "{} found grain {grain} at {found}, which was over before it asked",
            me.address
        );
        return Err(facts.violated("I9", what));
    }
    Ok(())
}

/// `number` heard that its `activation` is the one of `grain`.
pub(crate) fn check_registered(
    facts: &Facts<'_>,
    truth: &GrainTruth,
    number: u32,
    grain: u32,
    activation: u64,
) -> Result<(), Violation> {
    let me = &facts.processes[number as usize];
    let mine = Registration { silo: me.address, activation };
    let other = truth.held.get(&grain).map(|(held, _)| *held).filter(|held| *held != mine);
    match other {
        Some(other) if me.dead_at.is_none() => {
            let what = format!("{mine} was acknowledged for grain {grain}, which {other} holds");
            Err(facts.violated("I9", what))
        }
        _ => Ok(()),
    }
}

/// The ranges of the silos, by view.
#[derive(Debug, Default)]
pub(crate) struct Partition(BTreeMap<u64, Vec<(SiloAddress, RangeSet)>>);

impl Partition {
    /// `number` has put the view `version` with `active` Active silos in force.
    pub(crate) fn check(
        &mut self,
        facts: &Facts<'_>,
        number: u32,
        version: u64,
        active: usize,
    ) -> Result<(), Violation> {
        let me = &facts.processes[number as usize];
        let Some(shell) = me.shell.as_deref() else { return Ok(()) };
        let owned = shell.directory.owned_ranges();
        if owned.is_empty() || shell.directory.view_version() != version {
            return Ok(());
        }
        let ranges = self.0.entry(version).or_default();
        if let Some((other, _)) =
            ranges.iter().find(|(_, ranges)| !ranges.intersect(owned).is_empty())
        {
            let what = format!("{} and {other} own the same ranges in view {version}", me.address);
            return Err(facts.violated("I9", what));
        }
        ranges.push((me.address, owned.clone()));
        if ranges.len() == active {
            let whole =
                ranges.iter().fold(RangeSet::default(), |all, (_, ranges)| all.union(ranges));
            if whole.intervals() != [(0, u64::MAX)] {
                let what = format!("nobody owns some ranges in view {version}");
                return Err(facts.violated("I9", what));
            }
        }
        while self.0.len() > VIEWS_MAX {
            self.0.pop_first();
        }
        Ok(())
    }
}
