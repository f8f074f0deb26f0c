//! A silo whose table is another one, or gone.

use emmer_core::{SiloStatus, TableId};

use crate::world::{Store, World, address, secs};
use crate::{Config, TerminateReason};

/// Returns true if every process has ended for `reason`.
fn all_ended(world: &World, reason: TerminateReason) -> bool {
    world.silos.iter().all(|process| process.ended == Some(reason))
}

/// The next touch finds it out: some five seconds.
#[test]
fn a_table_in_the_place_of_another_ends_every_silo_with_its_next_touch() {
    for later in [0, 50] {
        let config = Config::default();
        let mut world = World::cluster(&config, 4);
        let number = world.version.number + later;
        world.replace_table(number, TableId::new(99));
        world.until(config.publish_period(4) + secs(1), |w| {
            all_ended(w, TerminateReason::TableReplaced)
        });
    }
}

#[test]
fn an_older_table_is_recognised_as_another_at_once() {
    let config = Config::default();
    let mut world = World::cluster(&config, 4);
    world.replace_table(1, TableId::new(99));
    world.until(config.publish_period(4) + secs(1), |w| {
        all_ended(w, TerminateReason::TableReplaced)
    });
}

/// A silo that starts makes a new table where the old one was dropped.
#[test]
fn those_who_start_in_an_emptied_store_end_those_who_were_there() {
    let config = Config::default();
    let mut world = World::cluster(&config, 3);
    world.replace_table(0, TableId::default());
    let new = address(2_000, 1);
    world.start(&config, new, 77);
    world.until(config.publish_period(3) + secs(2), |w| {
        w.silos[..3].iter().all(|p| p.ended == Some(TerminateReason::TableReplaced))
    });
    assert_eq!(world.status(&new), Some(SiloStatus::Active));
    assert_eq!(world.silos[3].ended, None);
    assert!(!world.version.table.is_unknown());
}

#[test]
fn a_table_without_its_rows_ends_every_silo_after_ten_seconds() {
    let config = Config::default();
    let mut world = World::cluster(&config, 3);
    world.replace_table(0, TableId::default());
    world.run(secs(9));
    assert!(world.silos.iter().all(|process| process.ended.is_none()), "a replica may lag");
    let limit = config.publish_period(3) + secs(12);
    world.until(limit, |w| all_ended(w, TerminateReason::TableGone));
}

#[test]
fn a_store_that_answers_without_the_table_ends_every_silo_after_ten_seconds() {
    for config in [Config::default(), Config::fast(), Config::classic(), Config::orleans_2026()] {
        let mut world = World::cluster(&config, 3);
        world.store = Store::Empty;
        world.run(secs(9));
        assert!(world.silos.iter().all(|process| process.ended.is_none()));
        let limit = config.publish_period(3) + config.table_retry_max * 4 + secs(12);
        world.until(limit, |w| all_ended(w, TerminateReason::TableGone));
    }
}

#[test]
fn a_table_that_is_missing_for_a_moment_ends_nobody() {
    let config = Config::default();
    let mut world = World::cluster(&config, 3);
    // Again and again: what one silo heard before the table was back must not count later.
    for _ in 0..10 {
        world.store = Store::Empty;
        world.run(secs(8));
        world.store = Store::Up;
        world.run(secs(8));
    }
    // Now with an outage after it.
    world.store = Store::Empty;
    world.run(secs(8));
    world.store = Store::Down;
    world.run(secs(60));
    world.store = Store::Up;
    world.run(secs(30));
    assert!(world.silos.iter().all(|process| process.ended.is_none()));
    assert_eq!((world.active(), world.converged()), (3, true));
}

#[test]
fn reads_that_lag_now_and_then_end_nobody() {
    let config =
        Config { version_only_refresh: false, table_refresh_timeout: secs(1), ..Config::default() };
    let mut world = World::cluster(&config, 3);
    let lags = world.silos[0].machine.me();
    for _ in 0..10 {
        world.write_a_row_again();
        world.run(secs(8));
        world.on_a_replica.insert(lags);
        world.run(secs(8));
        world.on_a_replica.clear();
    }
    assert!(world.silos.iter().all(|process| process.ended.is_none()));
    let reads = |i: usize| world.silos[i].machine.counters().reads;
    assert!(reads(0) > reads(1) + 50, "it has read in vain");
}

#[test]
fn a_number_that_was_lost_and_taken_by_another_commit_ends_every_silo() {
    let config = Config::default();
    let mut world = World::cluster(&config, 3);
    let number = world.version.number;
    world.lose_last_commit();
    world.write_a_row_again();
    assert_eq!(world.version.number, number);
    let limit = config.table_refresh_timeout + secs(1);
    world.until(limit, |w| all_ended(w, TerminateReason::TableWentBack));
}

/// Others that read the table would not know of it.
#[test]
fn a_row_that_was_deleted_by_hand_is_written_again() {
    for config in [Config::default(), Config::classic()] {
        for silos in [1, 4] {
            let mut world = World::cluster(&config, silos);
            let (me, version) = (world.silos[0].machine.me(), world.version.number);
            world.rows.remove(&me);
            let limit = config.publish_period(silos.into()) + secs(1);
            world.until(limit, |w| w.status(&me) == Some(SiloStatus::Active));
            world.until(secs(61), World::converged);
            assert_eq!(world.version.number, version + 1);
            world.run(secs(120));
            assert!(world.silos.iter().all(|process| process.ended.is_none()));
        }
    }
}

/// A joiner too: it would wait for five minutes.
#[test]
fn a_joiner_without_a_table_gives_up_after_ten_seconds() {
    let mut world = World::new();
    world.store = Store::Empty;
    world.start(&Config::default(), address(1_000, 1), 1);
    world.until(secs(20), |w| all_ended(w, TerminateReason::TableGone));
}

/// Silos of the last version wrote no identity. Those that run with newer ones in a rolling update
/// leave it out of each commit.
#[test]
fn a_table_whose_identity_is_unknown_ends_nobody() {
    let config = Config::default();
    let mut world = World::cluster(&config, 3);
    let known = world.version.table;
    world.version.table = TableId::default();
    world.run(secs(70));
    world.start(&config, address(2_000, 1), 9);
    world.until(secs(10), |w| w.active() == 4 && w.converged());
    world.run(secs(70));
    assert!(world.silos.iter().all(|process| process.ended.is_none()));
    // A silo that knew the identity has written it again, or no silo has: no other identity came
    // up.
    assert!(!world.version.table.is_another(known));
}
