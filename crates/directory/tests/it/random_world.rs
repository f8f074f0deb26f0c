//! Randomised worlds: hundreds of seeds, each with its own cluster, delays, faults and workload.

use crate::world::{Options, Stats, Tamper, World};

const CALM: Options = Options {
    silos: 4,
    skip_views: false,
    burst: false,
    loss: 0.0,
    faults: false,
    tamper: Tamper::Nothing,
};

fn options(seed: u64) -> Options {
    Options {
        silos: 2 + (seed % 5) as u16,
        skip_views: seed % 2 == 1,
        burst: seed % 7 >= 4,
        loss: if seed % 3 == 2 { 0.03 } else { 0.0 },
        faults: true,
        ..CALM
    }
}

/// Number of faulty worlds: 600, or the number in the environment.
#[allow(
    clippy::disallowed_methods,
    reason = "more worlds by hand; each is still given by its seed"
)]
fn seeds() -> u64 {
    std::env::var("EMMER_DIRECTORY_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(600).max(600)
}

fn run(seed: u64, options: Options) -> Stats {
    match World::new(seed, options).run() {
        Ok(stats) => stats,
        Err(error) => panic!("seed {seed}, {options:?}: {error}"),
    }
}

#[test]
fn faulty_worlds_keep_one_registration_per_grain() {
    let mut total = Stats::default();
    for seed in 0..seeds() {
        let stats = run(seed, options(seed));
        total.add(&stats);
    }
    // A workload that is too small would prove nothing.
    assert!(total.registered > 10_000 && total.taken > 3_000 && total.found > 3_000, "{total:?}");
    assert!(total.views > 3_000 && total.delivered > 100_000, "{total:?}");
    assert!(total.by_zombies > 50 && total.after_zombies > 200, "{total:?}");
    // Every way in which a new owner learns its entries.
    assert!(total.told > 1_000 && total.reported > 500 && total.collected > 500, "{total:?}");
    assert!(total.credits > 500 && total.awaits > 20 && total.unknown > 5, "{total:?}");
    assert!(total.handed > 1_000 && total.unheld > 100, "{total:?}");
    // Every end of a move.
    assert!(total.turns > 3_000 && total.arrived > 500 && total.moved > 500, "{total:?}");
    assert!(total.returned > 200 && total.nowhere > 20, "{total:?}");
}

#[test]
fn a_calm_world_settles_too() {
    for seed in 0..50 {
        run(seed, CALM);
    }
}

/// The seed to replay: put in the one that a failure printed and run
/// `cargo test -p emmer-directory --test it one_seed`.
const REPLAY: u64 = 17;

#[test]
fn one_seed() {
    run(REPLAY, options(REPLAY));
}

#[test]
fn planted_bugs_are_found() {
    for tamper in [
        Tamper::EmptyReports,
        Tamper::EmptyCollections,
        Tamper::EmptyHandovers,
        Tamper::SlowShells,
        Tamper::NoFadingEntries,
        Tamper::NoFadingRecoveries,
        Tamper::ReportedDepartures,
        Tamper::TurnsAfterSending,
        Tamper::UnaskedReturns,
        Tamper::OldNumbers,
        Tamper::OldViews,
        Tamper::FreshArrivals,
    ] {
        let found = (0..1500).find_map(|seed| {
            let options = Options { tamper, ..options(seed) };
            World::new(seed, options).run().err()
        });
        assert!(found.is_some(), "nobody notices {tamper:?}");
    }
}
