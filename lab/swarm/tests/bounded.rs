//! The part of the swarm that every test run takes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::collections::BTreeMap;

use emmer_swarm::{Plan, Report, run};

/// Seeds that reach much in little time; they come first.
const RICH: [u64; 6] = [86, 47, 12, 52, 2, 71];

/// Fewest seeds of a test run.
const SEEDS_MIN: usize = 10;

/// Most seeds of a test run, while something was not reached. `cargo xtask nightly` runs hundreds.
const SEEDS_MAX: usize = 64;

/// Situations that they have to reach: a situation that never comes up is not tested.
const MUST: &[&str] = &[
    "a call that a turn kept",
    "a call that not every silo serves",
    "a grain that went for a newer version",
    "a call that was given up at once",
    "a broken connection between silos that live",
    "a caller that gave up",
    "a future that was kept",
    "a grain active again",
    "a grain active elsewhere",
    "a grain that moved",
    "a panic in Drop",
    "a panic in a turn",
    "a panic in the activate hook",
    "a panic in the deactivate hook",
    "a deactivate hook that never ends",
    "a death of which everybody has heard",
    "a death while leaving",
    "a leave that met its limit",
    "a slow activate hook",
    "a write in the activate hook",
    "a silo that left in time",
    "a silo that was declared dead",
    "a write of unknown outcome",
    "cut off from its peers",
    "deadlock",
    "kill",
    "leave",
    "overloaded",
    "pause",
    "rejected",
    "store away",
    "timeout",
    "unplug",
    "unreachable",
];

fn well(plan: &Plan) -> Report {
    let report = run(plan);
    if let Some(violation) = &report.violation {
        panic!(
            "{}: {}\nto replay it: cargo run --profile sim -p emmer-swarm --example runtime -- \
             {plan}",
            violation.rule, violation.what
        );
    }
    report
}

#[test]
fn no_rule_is_broken_and_every_rare_thing_happens() {
    let mut sometimes: BTreeMap<&str, u64> = BTreeMap::new();
    let missing = |sometimes: &BTreeMap<&str, u64>| -> Vec<&str> {
        MUST.iter().copied().filter(|what| !sometimes.contains_key(what)).collect()
    };
    let others = (0..).filter(|seed| !RICH.contains(seed));
    for (count, seed) in RICH.into_iter().chain(others).take(SEEDS_MAX).enumerate() {
        if count >= SEEDS_MIN && missing(&sometimes).is_empty() {
            return;
        }
        for (what, times) in well(&Plan::new(seed)).sometimes {
            *sometimes.entry(what).or_default() += times;
        }
    }
    let missing = missing(&sometimes);
    assert!(missing.is_empty(), "never reached: {missing:?}; reached: {sometimes:?}");
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in [3, 42, 47] {
        let first = well(&Plan::new(seed));
        assert_eq!(well(&Plan::new(seed)), first, "seed {seed}");
    }
}

#[test]
fn plans_that_broke_a_rule_once_break_none() {
    let lines = include_str!("../seeds.txt").lines();
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        well(&line.parse().unwrap());
    }
}
