//! Checks that the bounded swarm reaches rare situations. It does not test what it never reaches.

use emmer_sim::sometimes::{MUST, RARE, Sometimes};
use emmer_sim::{Swarm, run};

/// Fewest seeds of a test run.
const SEEDS_MIN: u64 = 300;

/// Most seeds of a test run, while something was not reached. `cargo xtask nightly` runs thousands.
const SEEDS_MAX: u64 = 1_200;

#[test]
fn the_bounded_swarm_reaches_every_rare_situation() {
    let swarm = Swarm::default();
    let mut sometimes = Sometimes::default();
    for seed in 0..SEEDS_MAX {
        if seed >= SEEDS_MIN && sometimes.missing().is_empty() {
            break;
        }
        let outcome = run(&swarm.scenario(seed));
        assert_eq!(outcome.violation, None, "seed {seed}");
        sometimes.add(&outcome.sometimes);
    }
    assert_eq!(sometimes.missing(), [""; 0], "never reached in {SEEDS_MAX} seeds");
    let unlisted: Vec<_> = sometimes
        .iter()
        .map(|(what, _)| what)
        .filter(|what| !MUST.contains(what) && !RARE.contains(what))
        .collect();
    assert_eq!(unlisted, [""; 0], "reached, and not on the list");
}
