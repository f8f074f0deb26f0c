//! Random scenarios: every seed runs twice with equal hashes and violates nothing; every seed that
//! ever failed is run again.

use emmer_sim::{Scenario, Swarm, run};

/// Seeds that ever violated an invariant, one a line; the words after the number describe the
/// violation.
const FAILED: &str = include_str!("../../seeds/failed.txt");

fn runs_twice_alike(seeds: impl Iterator<Item = u64>) -> usize {
    let swarm = Swarm::default();
    scenarios_run_twice_alike(seeds.map(|seed| swarm.scenario(seed)))
}

fn scenarios_run_twice_alike(scenarios: impl Iterator<Item = Scenario>) -> usize {
    let mut count = 0;
    for scenario in scenarios {
        let seed = scenario.seed;
        let (first, second) = (run(&scenario), run(&scenario));
        assert_eq!(
            (first.hash, first.events),
            (second.hash, second.events),
            "seed {seed} is not deterministic"
        );
        assert_eq!(first.violation, None, "replay: cargo lab sim shrink --seed {seed}");
        count += 1;
    }
    count
}

#[test]
fn two_hundred_random_seeds_hold_every_invariant_and_replay_exactly_first_half() {
    assert_eq!(runs_twice_alike((0..200).step_by(2)), 100);
}

#[test]
fn two_hundred_random_seeds_hold_every_invariant_and_replay_exactly_second_half() {
    assert_eq!(runs_twice_alike((1..200).step_by(2)), 100);
}

#[test]
fn every_seed_that_ever_failed_passes() {
    let lines = FAILED.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let scenarios: Vec<Scenario> = lines.map(scenario_of).collect();
    assert!(!scenarios.is_empty());
    let count = scenarios.len();
    assert_eq!(scenarios_run_twice_alike(scenarios.into_iter()), count);
}

/// The scenario of a line: `vN` (the meaning of seeds; the first one when left out), the seed, and
/// `min=N` and `max=N` where the clusters of its swarm had unusual sizes.
fn scenario_of(line: &str) -> Scenario {
    let mut swarm = Swarm { version: 1, ..Swarm::default() };
    let mut seed = None;
    for word in line.split_whitespace() {
        match word.split_once('=') {
            Some(("min", n)) => swarm.hosts_min = n.parse().unwrap(),
            Some(("max", n)) => swarm.hosts_max = n.parse().unwrap(),
            _ if seed.is_none() && word.starts_with('v') => {
                swarm.version = word[1..].parse().unwrap();
            }
            _ if seed.is_none() => seed = Some(word.parse().unwrap()),
            _ => break,
        }
    }
    swarm.scenario(seed.unwrap())
}

#[test]
fn seeds_differ_in_size_profile_and_faults() {
    let swarm = Swarm::default();
    let scenarios: Vec<Scenario> = (0..100).map(|seed| swarm.scenario(seed)).collect();
    let sizes: std::collections::BTreeSet<u32> = scenarios.iter().map(|s| s.hosts).collect();
    assert!(sizes.len() > 8 && scenarios.iter().any(|s| s.steps.len() <= 2));
    assert!(scenarios.iter().map(|s| s.steps.len()).max() > Some(20));
    for scenario in &scenarios {
        assert!(scenario.config.validate().is_ok(), "seed {}", scenario.seed);
        assert!(scenario.steps.iter().all(|s| s.until <= scenario.calm_at || !s.fault.lasts()));
    }
}
