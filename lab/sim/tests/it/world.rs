//! Small clusters through starts, crashes, freezes, cuts and outages, in both main profiles.

use std::time::Duration;

use emmer_core::SiloStatus;
use emmer_membership::TerminateReason;
use emmer_sim::measure::Measures;
use emmer_sim::process::Life;
use emmer_sim::{Fault, Profile, Scenario, Step, VirtualTime, World, run};

const BOTH: [Profile; 2] = [Profile::Classic, Profile::Default];

fn at(secs: u64) -> VirtualTime {
    VirtualTime::from_secs(secs)
}

/// Runs to `until` and fails on any violation.
fn world(scenario: Scenario, until: u64) -> World {
    let mut world = World::new(scenario, false);
    world.run_until(at(until));
    assert_eq!(world.violation(), None);
    world
}

fn whole_within(scenario: &Scenario, secs: u64) -> Measures {
    let outcome = run(scenario);
    assert_eq!(outcome.violation, None, "seed {}", scenario.seed);
    let after = outcome.whole_after;
    assert!(
        after.is_some_and(|after| after <= Duration::from_secs(secs)),
        "whole only after {after:?}"
    );
    outcome.measures
}

#[test]
fn a_cold_start_converges() {
    for profile in BOTH {
        for hosts in [1, 3, 10, 50] {
            let scenario = Scenario::calm(profile, hosts, u64::from(hosts));
            let measures = whole_within(&scenario, 240);
            assert_eq!(measures.activations.len(), hosts as usize, "{profile}");
            assert_eq!(measures.deaths, []);
        }
    }
}

#[test]
fn a_crashed_silo_is_declared_dead_by_the_others() {
    for profile in BOTH {
        for fault in [Fault::Kill(2), Fault::KillUnread(2), Fault::LoseHost(2)] {
            let scenario = Scenario::calm(profile, 5, 1)
                .during(at(100), at(9_999), fault)
                .calm_at(at(100), secs(120));
            let measures = whole_within(&scenario, 120);
            assert_eq!(measures.deaths.len(), 1);
            assert_eq!(measures.wrong_deaths(), 0);
        }
    }
}

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn a_full_cluster_crash_and_restart_recovers() {
    for profile in BOTH {
        let mut scenario = Scenario::calm(profile, 6, 3);
        for host in 0..6 {
            scenario = scenario.at(at(90), Fault::Kill(host)).at(at(100), Fault::Start(host));
        }
        let measures = whole_within(&scenario.calm_at(at(100), secs(600)), 600);
        assert_eq!((measures.activations.len(), measures.deaths.len()), (12, 6), "{profile}");
    }
}

#[test]
fn a_store_outage_kills_nobody_and_everything_resumes() {
    for profile in BOTH {
        let mut scenario = Scenario::calm(profile, 8, 4)
            .during(at(120), at(720), Fault::StoreOutage)
            .at(at(600), Fault::Start(7))
            .calm_at(at(720), secs(120));
        scenario.start_hosts = 7;
        let world_during = world(scenario.clone(), 719);
        assert_eq!(world_during.measures().deaths, [], "nothing can be written");
        let measures = whole_within(&scenario, 120);
        assert_eq!((measures.deaths.len(), measures.wrong_deaths()), (0, 0), "{profile}");
        assert_eq!(measures.activations.len(), 8, "the joiner got in");
    }
}

#[test]
fn a_silo_killed_during_an_outage_is_dead_soon_after_it() {
    let scenario = Scenario::calm(Profile::Default, 8, 5)
        .during(at(120), at(720), Fault::StoreOutage)
        .at(at(300), Fault::Kill(3))
        .calm_at(at(720), secs(5));
    let measures = whole_within(&scenario, 5);
    assert_eq!((measures.deaths.len(), measures.wrong_deaths()), (1, 0));
}

/// Its kernel resets every busy connection. Nothing lies unread on the lifelines.
#[test]
fn a_silo_killed_with_unread_bytes_is_dead_within_150_ms() {
    for (hosts, seed) in (3..=8).flat_map(|hosts| (0..10).map(move |seed| (hosts, seed))) {
        let mut world = world(Scenario::calm(Profile::Default, hosts, seed), 60);
        let killed = world.now() + Duration::from_millis(97 * seed);
        let silo = world.processes()[world.running_on(1).unwrap() as usize].address;
        let fault = Fault::KillUnread(1);
        world.inject(Step { at: killed, until: VirtualTime::MAX, fault });
        world.run_until(killed + Duration::from_millis(150));
        assert_eq!(world.violation(), None);
        assert!(world.measures().death_of(&silo).is_some(), "{hosts} silos, seed {seed}");
        assert_eq!(world.measures().wrong_deaths(), 0);
    }
}

/// A firewall resets the connections of a silo, its lifelines among them, and refuses new ones; it
/// lets answers to probes through. Between some pairs or all: no silo dies.
#[test]
fn a_firewall_that_resets_and_refuses_kills_nobody() {
    for seed in 0..20 {
        let mut scenario = Scenario::calm(Profile::Default, 6, seed);
        for host in [0, 2, 3] {
            scenario = scenario
                .during(at(60 + u64::from(host)), at(90), Fault::Refuse(host))
                .at(at(70), Fault::Reset(host));
        }
        let measures = whole_within(&scenario.calm_at(at(90), secs(60)), 60);
        assert_eq!((measures.deaths.len(), measures.wrong_deaths()), (0, 0), "seed {seed}");
    }
}

#[test]
fn of_two_incarnations_racing_for_one_endpoint_the_younger_one_lives() {
    for profile in BOTH {
        for seed in 0..5 {
            let mut scenario = Scenario::calm(profile, 4, seed);
            scenario.start_hosts = 3;
            let scenario = scenario
                .at(at(80), Fault::Start(3))
                .at(at(80), Fault::Start(3))
                .calm_at(at(81), secs(240));
            let measures = whole_within(&scenario, 240);
            let world = world(scenario, 321);
            let racers: Vec<_> = world.processes().iter().filter(|p| p.host == 3).collect();
            assert!(matches!(
                racers[0].life,
                Life::Ended(TerminateReason::Superseded(_) | TerminateReason::DeclaredDead)
            ));
            assert!(racers[1].is_running());
            assert!(
                measures
                    .activations
                    .iter()
                    .filter(|(_, silo)| silo.same_endpoint(&racers[1].address))
                    .count()
                    <= 2
            );
        }
    }
}

#[test]
fn a_graceful_leave_is_dead_at_once_and_hurts_nobody() {
    for profile in BOTH {
        let scenario =
            Scenario::calm(profile, 5, 6).at(at(100), Fault::Leave(1)).calm_at(at(100), secs(60));
        let measures = whole_within(&scenario, 10);
        assert_eq!((measures.deaths.len(), measures.wrong_deaths()), (1, 0), "{profile}");
        let world = world(scenario, 110);
        let left = &world.processes().iter().find(|p| p.host == 1).unwrap();
        assert_eq!(left.life, Life::Ended(TerminateReason::Left));
        assert_eq!(world.store().table.row(&left.address).unwrap().status, SiloStatus::Dead);
    }
}

#[test]
fn a_frozen_silo_that_wakes_up_dead_ends_itself() {
    for profile in BOTH {
        let scenario = Scenario::calm(profile, 5, 7)
            .during(at(100), at(400), Fault::Pause(2))
            .calm_at(at(400), secs(120));
        let world = world(scenario.clone(), 500);
        let frozen = world.processes().iter().find(|p| p.host == 2).unwrap();
        assert_eq!(frozen.life, Life::Ended(TerminateReason::DeclaredDead), "{profile}");
        assert_eq!(world.measures().wrong_deaths(), 1);
    }
}

#[test]
fn the_same_scenario_gives_the_same_hash_and_another_seed_another() {
    let scenario = |seed| Scenario::calm(Profile::Default, 12, seed).at(at(30), Fault::Kill(3));
    let hash = |seed| run(&scenario(seed)).hash;
    assert_eq!(hash(1), hash(1));
    assert_ne!(hash(1), hash(2));
}

#[test]
fn a_trace_has_lines_and_does_not_change_the_run() {
    let scenario = Scenario::calm(Profile::Default, 3, 1).at(at(30), Fault::Kill(1));
    let (plain, traced) = (run(&scenario), emmer_sim::run_traced(&scenario));
    assert_eq!((plain.hash, plain.lines.len()), (traced.hash, 0));
    assert!(
        traced.lines.iter().any(|line| line.contains("is killed")),
        "{:?}",
        traced.lines.first()
    );
    assert!(traced.lines.iter().any(|line| line.contains("writes version 1:")));
}

#[test]
fn the_stall_of_a_slow_host_ends_with_its_fault() {
    let (begins, ends) = (at(20), at(20) + Duration::from_millis(60));
    let fault = Fault::Slow { host: 2, block: secs(8), run: Duration::from_millis(64) };
    let scenario = Scenario::calm(Profile::Default, 5, 6).during(begins, ends, fault.clone());
    let five = world(scenario, 40);
    // Eight seconds of silence kill; sixty milliseconds do not.
    assert_eq!(five.measures().deaths, []);
    assert!(five.is_whole());
    // Waiting commits continue at once: here those of a silo that leaves.
    let leave = begins + Duration::from_millis(30);
    let scenario = Scenario::calm(Profile::Default, 3, 6)
        .during(begins, ends, fault)
        .at(leave, Fault::Leave(2));
    let three = world(scenario, 23);
    assert_eq!(three.processes()[2].life, Life::Ended(TerminateReason::Left));
    assert!(three.is_whole());
}
