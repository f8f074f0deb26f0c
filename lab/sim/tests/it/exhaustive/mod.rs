//! Every order of events of three silos and one store, up to a bound, with the same machine as in
//! production.
//!
//! The usual run explores everything to a depth that takes seconds.
//! `EMMER_EXHAUSTIVE_SECS=600 cargo test --profile sim -p emmer-sim --test it exhaustive -- --test-threads 1 --nocapture`
//! goes eight steps deeper, for ten minutes at most.

mod model;

use std::time::Duration;

use emmer_membership::Config;
use model::{Budget, Silos, World};
use stateright::{Checker, Model};

/// Number of states that are explored at most, the same ones again included: about 4 GB of memory.
const MOST_STATES: usize = 1_000_000;

const NOTHING: Budget = Budget { crashes: 0, unknown: 0, lost: 0, ticks: 0 };

/// Number of steps deeper than usual to explore, and the time limit; beyond the usual when asked.
fn deeper() -> (usize, Duration) {
    let asked = std::env::var("EMMER_EXHAUSTIVE_SECS").ok().and_then(|text| text.parse().ok());
    // Shared evenly by the four explorations of this file when they run one after the other.
    asked.map_or((0, Duration::from_secs(60)), |secs: u64| (8, Duration::from_secs(secs) / 4))
}

/// Parameters with few deadlines, so that paths are short.
fn small() -> Config {
    Config {
        num_probed_silos: 2,
        num_probe_rings: 2,
        num_votes_for_death_declaration: 2,
        ..Config::default()
    }
}

/// Explores breadth first from `start`; fails on any violation. How many different states there
/// were.
fn explore(name: &str, start: World, depth: usize) -> usize {
    let (more, time) = deeper();
    let depth = depth + more;
    let checker = Silos { start }
        .checker()
        .threads(2)
        .timeout(time)
        .target_max_depth(depth)
        .target_state_count(MOST_STATES)
        .spawn_bfs()
        .join();
    println!(
        "{name}: {} different states, {} in all, depth {} of {depth}",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth()
    );
    checker.assert_properties();
    checker.unique_state_count()
}

fn active(endpoints: &[u16], config: &Config) -> World {
    let mut world = World::joining(endpoints, config, NOTHING);
    assert!(world.run_until(5_000, World::all_active), "the silos join when nothing goes wrong");
    world
}

#[test]
fn three_silos_join_in_every_order() {
    let budget = Budget { crashes: 1, unknown: 1, lost: 1, ticks: 2 };
    let states = explore("join", World::joining(&[1, 2, 3], &small(), budget), 15);
    assert!(states > 10_000, "{states}");
}

#[test]
fn two_incarnations_of_one_endpoint_and_another_silo_join_in_every_order() {
    let budget = Budget { crashes: 0, unknown: 2, lost: 0, ticks: 2 };
    let states = explore("incarnations", World::joining(&[1, 1, 2], &small(), budget), 18);
    assert!(states > 10_000, "{states}");
}

#[test]
fn one_of_three_crashes_and_is_declared_dead_in_every_order() {
    let mut world = active(&[1, 2, 3], &small());
    world.kill(2);
    assert!(world.run_until(5_000, World::death_is_under_way));
    world.set_budget(Budget { crashes: 1, unknown: 2, lost: 1, ticks: 4 });
    let states = explore("crash", world, 10);
    assert!(states > 5_000, "{states}");
}

#[test]
fn one_of_three_is_cut_off_and_declared_dead_in_every_order() {
    let mut world = active(&[1, 2, 3], &small());
    let mut found = false;
    for _ in 0..20_000 {
        world.cut_off(2);
        if world.death_is_under_way() {
            found = true;
            break;
        }
        world.run_until(1, |_| false);
    }
    assert!(found, "a silo that is cut off is declared dead");
    world.set_budget(Budget { crashes: 0, unknown: 2, lost: 1, ticks: 3 });
    let states = explore("cut off", world, 17);
    // All there are within the budget.
    assert!(states > 2_000, "{states}");
}

#[test]
fn the_model_finds_what_a_careless_table_does() {
    let mut world = World::joining(&[1, 1, 2], &small(), Budget { ticks: 4, ..NOTHING });
    world.make_table_careless();
    let checker = Silos { start: world }
        .checker()
        .threads(2)
        .timeout(Duration::from_secs(60))
        .finish_when(stateright::HasDiscoveries::Any)
        .spawn_bfs()
        .join();
    assert!(!checker.discoveries().is_empty(), "{}", checker.unique_state_count());
}
