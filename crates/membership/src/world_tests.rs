//! The protocol's main promises, each in the smallest cluster that shows it. Both parameter sets
//! where they share one.

use std::time::Duration;

use emmer_core::SiloStatus;

use crate::world::{Process, Store, World, address, secs};
use crate::{Config, TerminateReason};

#[test]
fn silos_that_start_together_all_become_active() {
    for config in [Config::default(), Config::classic(), Config::fast(), Config::orleans_2026()] {
        for n in [1, 2, 3, 5, 20] {
            let mut world = World::new();
            for i in 0..n {
                world.start(&config, address(1_000 + i, 1), u64::from(i));
            }
            world.until(secs(250), |w| w.active() == n as usize && w.converged());
        }
    }
}

#[test]
fn a_cold_start_is_quick_and_batched() {
    let mut world = World::new();
    for i in 0..60 {
        world.start(&Config::default(), address(1_000 + i, 1), u64::from(i));
    }
    let took = world.until(secs(10), |w| w.active() == 60 && w.converged());
    assert!(took < secs(2), "{took:?}");
    assert!(world.commits <= 40, "{} commits", world.commits);
}

#[test]
fn a_killed_silo_is_dead_within_a_fraction_of_a_second() {
    for n in [2, 3, 5, 12] {
        let mut world = World::cluster(&Config::default(), n);
        let victim = address(1_000, 1);
        world.kill(0);
        let took =
            world.until(secs(5), |w| w.status(&victim) == Some(SiloStatus::Dead) && w.converged());
        assert!(took < Duration::from_millis(100), "{n} silos: {took:?}");
        assert_eq!(world.active(), n as usize - 1);
    }
}

#[test]
fn a_silent_silo_is_dead_after_its_patience() {
    let mut world = World::cluster(&Config::default(), 12);
    let victim = address(1_003, 1);
    world.silos[3].silent = true;
    let took = world.until(secs(20), |w| w.status(&victim) == Some(SiloStatus::Dead));
    assert!((secs(4)..Duration::from_millis(5_500)).contains(&took), "{took:?}");
    assert_eq!(world.active(), 11);
}

#[test]
fn classic_takes_its_three_probes() {
    let mut world = World::cluster(&Config::classic(), 6);
    let victim = address(1_000, 1);
    world.silos[0].silent = true;
    let took = world.until(secs(60), |w| w.status(&victim) == Some(SiloStatus::Dead));
    assert!((secs(10)..secs(45)).contains(&took), "{took:?}");
    assert_eq!(world.active(), 5);
}

#[test]
fn a_restart_on_the_same_endpoint_kills_the_predecessor_in_the_same_commit() {
    for config in [Config::default(), Config::classic()] {
        let mut world = World::cluster(&config, 3);
        world.kill(1);
        let (old, new) = (address(1_001, 1), address(1_001, 2));
        world.start(&config, new, 77);
        world.until(secs(60), |w| w.status(&new).is_some());
        assert_eq!(world.status(&old), Some(SiloStatus::Dead));
        world.until(secs(60), |w| w.status(&new) == Some(SiloStatus::Active) && w.converged());
    }
}

#[test]
fn a_superseded_silo_ends_itself() {
    let mut world = World::cluster(&Config::default(), 3);
    let new = address(1_001, 2);
    world.start(&Config::default(), new, 77);
    world.until(secs(10), |w| w.silos[1].ended.is_some());
    assert_eq!(world.silos[1].ended, Some(TerminateReason::Superseded(new)));
}

#[test]
fn an_earlier_incarnation_never_joins() {
    let mut world = World::cluster(&Config::default(), 3);
    let new = address(1_001, 9);
    world.kill(1);
    world.start(&Config::default(), new, 77);
    world.until(secs(10), |w| w.status(&new) == Some(SiloStatus::Active));
    let late = world.start(&Config::default(), address(1_001, 5), 78);
    world.until(secs(10), |w| w.silos[late].ended.is_some());
    assert_eq!(world.silos[late].ended, Some(TerminateReason::Superseded(new)));
    assert_eq!(world.status(&address(1_001, 5)), None);
}

#[test]
fn of_two_twins_exactly_one_gets_in() {
    for config in [Config::default(), Config::classic()] {
        for store in [Store::Up, Store::AppliesAsUnknown] {
            let mut world = World::new();
            let twin = address(1_000, 1);
            world.start(&config, twin, 1);
            world.start(&config, twin, 2);
            world.store = store;
            world.run(secs(3));
            world.store = Store::Up;
            world.until(secs(200), |w| w.silos.iter().filter(|p| p.ended.is_some()).count() == 1);
            let ended: Vec<_> = world.silos.iter().filter_map(|p| p.ended).collect();
            assert_eq!(ended, [TerminateReason::Superseded(twin)]);
        }
    }
}

#[test]
fn a_full_crash_recovers_on_the_same_addresses() {
    let mut world = World::cluster(&Config::default(), 3);
    for i in 0..3 {
        world.kill(i);
    }
    for i in 0..3 {
        world.start(&Config::default(), address(1_000 + i, 2), u64::from(i) + 50);
    }
    world.until(secs(10), |w| w.active() == 3 && w.converged() && w.rows.len() == 6);
}

#[test]
fn a_full_crash_recovers_on_other_addresses() {
    let mut world = World::cluster(&Config::default(), 3);
    for i in 0..3 {
        world.silos[i].silent = true;
        world.kill(i);
    }
    for i in 0..3 {
        world.start(&Config::default(), address(2_000 + i, 2), u64::from(i) + 50);
    }
    world.until(secs(250), |w| w.active() == 3 && w.converged());
}

#[test]
fn a_store_outage_kills_nobody_and_everything_resumes() {
    for config in [Config::default(), Config::classic()] {
        let mut world = World::cluster(&config, 5);
        world.store = Store::Down;
        world.run(secs(10));
        world.kill(4);
        let joiner = address(2_000, 1);
        world.start(&config, joiner, 99);
        world.run(secs(120));
        assert_eq!(world.active(), 5);
        assert_eq!(world.silos.iter().filter(|p| p.ended.is_some()).count(), 0);
        world.store = Store::Up;
        let limit = if config == Config::default() { secs(5) } else { secs(150) };
        world.until(limit, |w| {
            w.status(&address(1_004, 1)) == Some(SiloStatus::Dead)
                && w.status(&joiner) == Some(SiloStatus::Active)
        });
    }
}

#[test]
fn a_leave_goes_through_its_statuses() {
    for config in [Config::default(), Config::classic()] {
        let mut world = World::cluster(&config, 3);
        let me = address(1_002, 1);
        world.call(2, |m, now| m.leave(now));
        world.until(secs(5), |w| w.status(&me) == Some(SiloStatus::ShuttingDown));
        world.call(2, |m, now| m.stop(now));
        world.until(secs(5), |w| w.status(&me) == Some(SiloStatus::Stopping));
        world.call(2, |m, now| m.finish_leave(now));
        world.until(secs(10), |w| w.silos[2].ended == Some(TerminateReason::Left));
        assert_eq!(world.status(&me), Some(SiloStatus::Dead));
        let row = &world.rows[&me];
        assert!(row.votes.iter().any(|v| v.voter == me));
        assert_eq!(world.active(), 2);
    }
}

#[test]
fn everybody_hears_of_a_leave_at_once_whoever_writes_it() {
    for n in [3, 40] {
        for leaver in 0..3 {
            let mut world = World::cluster(&Config::default(), n);
            let silo = address(1_000 + leaver, 1);
            let leaver = usize::from(leaver);
            world.call(leaver, |m, now| m.leave(now));
            world.call(leaver, |m, now| m.finish_leave(now));
            world.until(secs(5), |w| w.status(&silo) == Some(SiloStatus::Dead));
            // The answer of the table, and a few hops down the tree.
            world.run(Duration::from_millis(20));
            let knows =
                |p: &Process| !p.up || p.machine.view().status_of(&silo) == Some(SiloStatus::Dead);
            assert!(world.silos.iter().all(knows), "{n} silos, silo {leaver} leaves");
        }
    }
}

#[test]
fn a_leave_ends_in_bounded_time_without_the_store() {
    let mut world = World::cluster(&Config::default(), 3);
    world.store = Store::Down;
    world.call(2, |m, now| m.leave(now));
    world.call(2, |m, now| m.finish_leave(now));
    let took = world.until(secs(30), |w| w.silos[2].ended == Some(TerminateReason::Left));
    assert!(took <= Config::default().shutdown_grace_period + secs(1));
}

#[test]
fn unknown_outcomes_are_read_before_anything_else() {
    for config in [Config::default(), Config::classic()] {
        for store in [Store::AppliesAsUnknown, Store::LosesAsUnknown] {
            let mut world = World::cluster(&config, 4);
            world.store = store;
            world.kill(0);
            let joiner = address(2_000, 1);
            world.start(&config, joiner, 99);
            world.run(secs(5));
            world.store = Store::Up;
            world.until(secs(200), |w| {
                w.status(&address(1_000, 1)) == Some(SiloStatus::Dead)
                    && w.status(&joiner) == Some(SiloStatus::Active)
                    && w.converged()
            });
        }
    }
}

#[test]
fn a_frozen_silo_learns_of_its_death_at_once_when_it_thaws() {
    let mut world = World::cluster(&Config::default(), 5);
    world.silos[2].silent = true;
    world.until(secs(20), |w| w.status(&address(1_002, 1)) == Some(SiloStatus::Dead));
    world.silos[2].silent = false;
    world.until(secs(2), |w| w.silos[2].ended == Some(TerminateReason::DeclaredDead));
}

#[test]
fn a_joiner_waits_for_an_unreachable_member() {
    let config = Config::default();
    let mut world = World::cluster(&config, 4);
    let (joiner, far) = (address(2_000, 1), address(1_001, 1));
    world.cut.insert((joiner, far));
    world.cut.insert((far, joiner));
    world.start(&config, joiner, 99);
    world.run(secs(60));
    assert_eq!(world.status(&joiner), Some(SiloStatus::Joining));
    world.cut.clear();
    world.until(secs(5), |w| w.status(&joiner) == Some(SiloStatus::Active));
}

#[test]
fn a_join_that_takes_too_long_ends() {
    let config = Config::default();
    let mut world = World::new();
    world.store = Store::Down;
    let i = world.start(&config, address(1_000, 1), 1);
    world.run(secs(310));
    assert_eq!(world.silos[i].ended, Some(TerminateReason::JoinTimedOut));
}

#[test]
fn a_cut_off_silo_is_fenced_before_it_is_dead() {
    let mut world = World::cluster(&Config::default(), 8);
    world.run(secs(20));
    assert!(world.silos[5].fences.is_empty());
    world.silos[5].silent = true;
    world.store = Store::Down;
    world.until(secs(10), |w| w.silos[5].machine.is_fenced());
    world.silos[5].silent = false;
    world.until(secs(10), |w| !w.silos[5].machine.is_fenced());
    assert!(world.silos.iter().enumerate().all(|(i, p)| i == 5 || p.fences.is_empty()));
}
