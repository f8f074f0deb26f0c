//! Costs of large clusters, counted. Run with `cargo test --release -p emmer-membership --
//! --ignored --nocapture`; the goals themselves are checked by `emmer-sim`.

use std::time::Duration;

use emmer_core::SiloStatus;

use crate::Config;
use crate::world::{World, address};

const STEP: Duration = Duration::from_millis(5);

/// Reads the value from the store, replacing the value in memory; the default when the store has
/// none.
fn cold_start(config: &Config, n: u64, spread: Duration) -> (World, Duration) {
    let mut world = World::new();
    for i in 0..n {
        // Scattered addresses: neighbours in time are not neighbours in the view.
        let port = 1_000 + u16::try_from((i * 7_919) % 50_000).unwrap();
        world.start(config, address(port, 1), i + 1);
        world.run(spread / u32::try_from(n).unwrap());
    }
    let mut took = Duration::ZERO;
    while !(world.active() == usize::try_from(n).unwrap() && world.converged()) {
        world.run(STEP);
        took += STEP;
        assert!(took < Duration::from_secs(60), "{} of {n} Active", world.active());
    }
    (world, took)
}

fn report(n: u64) {
    let config = Config::default();
    let (mut world, took) = cold_start(&config, n, Duration::from_secs(1));
    let lost: u64 = world.silos.iter().map(|p| p.machine.counters().commits_lost).sum();
    let rows: u64 = world.silos.iter().map(|p| p.machine.counters().rows_read).sum();
    let snapshots: u64 = world.silos.iter().map(|p| p.machine.counters().snapshots_installed).sum();
    println!(
        "cold start of {n}: {took:?} after the last start, {} versions, {} commits lost, {} rows \
         read, {} messages, {snapshots} snapshots",
        world.commits, lost, rows, world.messages
    );
    world.run(Duration::from_secs(10));
    let before = (world.messages, world.commits);
    world.run(Duration::from_secs(10));
    println!("idle: {} messages per silo and second", (world.messages - before.0) / n / 10);
    assert_eq!(before.1, world.commits, "an idle cluster writes nothing");
    let victim = world.silos[7].machine.me();
    world.kill(7);
    let mut took = Duration::ZERO;
    while !(world.status(&victim) == Some(SiloStatus::Dead) && world.converged()) {
        world.run(Duration::from_millis(1));
        took += Duration::from_millis(1);
        assert!(took < Duration::from_secs(10));
    }
    println!("kill: Dead everywhere after {took:?}, {} commits", world.commits - before.1);
    let commits = world.commits;
    let victims: Vec<usize> = (10..10 + usize::try_from(n / 10).unwrap()).collect();
    for i in &victims {
        world.kill(*i);
    }
    let mut took = Duration::ZERO;
    let dead = |w: &World| {
        victims.iter().all(|i| w.status(&w.silos[*i].machine.me()) == Some(SiloStatus::Dead))
    };
    while !(dead(&world) && world.converged()) {
        world.run(Duration::from_millis(5));
        took += Duration::from_millis(5);
        assert!(took < Duration::from_secs(30));
    }
    println!(
        "kill of {}: {took:?}, {} commits, {} Active",
        n / 10,
        world.commits - commits,
        world.active()
    );
    let victim = world.silos[1].machine.me();
    world.silos[1].silent = true;
    let mut took = Duration::ZERO;
    while world.status(&victim) != Some(SiloStatus::Dead) {
        world.run(Duration::from_millis(5));
        took += Duration::from_millis(5);
        assert!(took < Duration::from_secs(30));
    }
    println!("silence: {took:?}");
}

#[test]
#[ignore = "counts, for the release profile"]
fn a_hundred() {
    report(100);
}

#[test]
#[ignore = "counts, for the release profile"]
fn a_thousand() {
    report(1_000);
}

#[test]
#[ignore = "counts, for the release profile"]
fn five_thousand() {
    report(5_000);
}
