//! Several silos' machines on one table, under faults.

mod judge;
mod world;

use std::ops::Range;

/// The events of a run, so that a test can tell that it tested something.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    kills: u64,
    joins: u64,
    freezes: u64,
    outages: u64,
    delivered: u64,
    repeated: u64,
    missed: u64,
    failed: u64,
    conflicts: u64,
    changed: u64,
    removed: u64,
    lost_messages: u64,
}

impl Seen {
    fn each(&mut self) -> [&mut u64; 12] {
        let Self { kills, joins, freezes, outages, delivered, repeated, .. } = self;
        let Self { missed, failed, conflicts, changed, removed, lost_messages, .. } = self;
        [
            kills,
            joins,
            freezes,
            outages,
            delivered,
            repeated,
            missed,
            failed,
            conflicts,
            changed,
            removed,
            lost_messages,
        ]
    }
}

fn run(seeds: Range<u64>) {
    let mut all = Seen::default();
    for seed in seeds {
        let mut seen = world::run(seed);
        for (all, one) in all.each().into_iter().zip(seen.each()) {
            *all += *one;
        }
    }
    // The faults happened, and their consequences.
    assert!(all.each().into_iter().all(|count| *count > 0), "{all:?}");
}

#[test]
fn every_occurrence_is_accounted_for() {
    run(0..300);
}

#[test]
#[ignore = "nightly: a minute"]
fn every_occurrence_is_accounted_for_in_five_thousand_worlds() {
    run(0..5_000);
}
