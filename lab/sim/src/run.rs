//! Running a scenario to its end.

use std::time::Duration;

use crate::invariants::Violation;
use crate::measure::Measures;
use crate::scenario::Scenario;
use crate::sometimes::Sometimes;
use crate::store::StoreStats;
use crate::time::VirtualTime;
use crate::world::{Prepare, World};

/// Interval at which the liveness phase looks whether the cluster is whole.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The hash of the whole trace: the same scenario always gives the same.
    pub hash: u64,
    /// Number of events that were processed.
    pub events: u64,
    /// The first invariant violated; nothing was run after it.
    pub violation: Option<Violation>,
    /// Time after the end of the faults at which the cluster was whole, if there was a liveness
    /// phase.
    pub whole_after: Option<Duration>,
    /// When the run ended.
    pub ended_at: VirtualTime,
    /// The last version of the table.
    pub version: u64,
    /// Requests to the store.
    pub store: StoreStats,
    /// Counts and times.
    pub measures: Measures,
    /// Rare situations that came up, and how often.
    pub sometimes: Sometimes,
    /// Number of stretches of grains' code that ran.
    pub turns: u64,
    /// One line for each event, when asked for.
    pub lines: Vec<String>,
}

/// Runs `scenario` to its end, or to the first violation.
pub fn run(scenario: &Scenario) -> Outcome {
    run_world(World::new(scenario.clone(), false))
}

/// Like [`run`]; each machine is handed to `prepare` before it joins.
pub fn run_prepared(scenario: &Scenario, prepare: &Prepare) -> Outcome {
    run_world(World::prepared(scenario.clone(), false, Some(prepare.clone())))
}

/// Like [`run`], with a line for each event.
pub fn run_traced(scenario: &Scenario) -> Outcome {
    run_world(World::new(scenario.clone(), true))
}

fn run_world(mut world: World) -> Outcome {
    let calm_at = world.scenario().calm_at;
    let bound = world.scenario().liveness_bound;
    world.run_until(calm_at);
    let mut whole_after = None;
    let mut late = None;
    if !bound.is_zero() && world.violation().is_none() {
        let whole_at = world.run_while(calm_at + bound, LOOK_EVERY, World::is_whole);
        whole_after = whole_at.map(|at| at.since(calm_at));
        if whole_at.is_none() && world.violation().is_none() {
            let why = world.why_not_whole().unwrap_or_default();
            let what = format!("not whole {} s after the last fault: {why}", bound.as_secs());
            late = Some(Violation { invariant: "I10", at: world.now(), what });
        } else {
            world.come_to_rest();
        }
    }
    let (ended_at, store) = (world.now(), world.store().stats);
    let version = world.store().table.version().number;
    let turns = world.truth().ran;
    let (trace, measures, sometimes, violation) = world.into_parts();
    Outcome {
        hash: trace.hash(),
        events: trace.events(),
        violation: violation.or(late),
        whole_after,
        ended_at,
        version,
        store,
        measures,
        sometimes,
        turns,
        lines: trace.into_lines(),
    }
}
