//! Duties that an operator writes into the table.

use std::time::Duration;

use emmer_core::Duty;

use crate::Config;
use crate::membership::Membership;
use crate::world::{World, address};

const SILOS: u16 = 5;

fn cluster() -> World {
    let mut world = World::cluster(&Config::default(), SILOS);
    world.run(Duration::from_secs(5));
    world
}

fn shows(world: &World, duty: Duty) -> bool {
    let silo = address(1_002, 1);
    let shown = |machine: &Membership| machine.view().get(&silo).map(|row| row.duty);
    world.silos.iter().all(|process| shown(&process.machine) == Some(duty))
}

#[test]
fn a_duty_in_the_table_is_in_every_view_soon_after_news_of_it() {
    let mut world = cluster();
    let silo = *world.rows.keys().nth(2).unwrap();
    assert_eq!(silo, address(1_002, 1));
    world.set_duty(&silo, Duty::Cordoned);
    assert!(!shows(&world, Duty::Cordoned));
    for i in 0..usize::from(SILOS) {
        world.call(i, |machine, now| machine.handle_news(now));
    }
    let took = world.until(Duration::from_secs(2), |world| shows(world, Duty::Cordoned));
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[test]
fn a_duty_is_seen_within_a_minute_without_news() {
    let mut world = cluster();
    world.set_duty(&address(1_002, 1), Duty::Draining);
    world.until(Duration::from_secs(70), |world| shows(world, Duty::Draining));
}

#[test]
fn a_duty_outlives_the_commits_of_the_silos() {
    let mut world = cluster();
    world.set_duty(&address(1_002, 1), Duty::Drained);
    // Votes against another silo, its death, and the arrival of one more.
    world.kill(0);
    world.start(&Config::default(), address(2_000, 1), 77);
    world.until(Duration::from_secs(60), |world| world.active() == usize::from(SILOS));
    assert_eq!(world.rows[&address(1_002, 1)].duty, Duty::Drained);
}

#[test]
fn a_flood_of_news_costs_the_store_two_reads_a_second() {
    let mut world = cluster();
    let before = world.silos[0].machine.counters().version_reads;
    for _ in 0..1_000 {
        world.call(0, |machine, now| machine.handle_news(now));
        world.run(Duration::from_millis(5));
    }
    let reads = world.silos[0].machine.counters().version_reads - before;
    assert!((5..=12).contains(&reads), "{reads} reads in five seconds");
}
