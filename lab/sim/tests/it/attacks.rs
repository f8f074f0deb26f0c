//! Attacks on the promises of `docs/at-most-one.md`, each a scenario with a name. `examples/hunt`
//! draws more of them.

mod judge;

use std::time::Duration;

use emmer_sim::net::{Direction, HostSet};
use emmer_sim::process::Process;
use emmer_sim::store::StoreModel;
use emmer_sim::{Fault, Profile, Scenario, VirtualTime, World};
use judge::judge;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

const fn at(millis: u64) -> VirtualTime {
    VirtualTime::from_millis(millis)
}

fn set<const N: usize>(hosts: [u32; N]) -> HostSet {
    HostSet::from_iter(hosts)
}

fn cut<const N: usize>(hosts: [u32; N]) -> Fault {
    Fault::Cut { inside: set(hosts), direction: Direction::Both, flip: None }
}

/// Fails with the violation, and prints the run when `ATTACK_TRACE` is set.
fn holds(scenario: &Scenario) {
    let trace = std::env::var_os("ATTACK_TRACE").is_some();
    let judged = judge(scenario, trace);
    judged.lines.iter().for_each(|line| println!("{line}"));
    assert!(judged.breach.is_none(), "{:?}", judged.breach);
}

/// One silo sleeps for longer than newcomers wait, and another has voted it out when it wakes. The
/// store is slow: the touch of its row (which is Dead) is answered before the rows are.
#[test]
fn a_lone_silo_that_wakes_up_dead_starts_no_turn() {
    let mut scenario = Scenario::calm(Profile::Default, 2, 1);
    scenario.start_hosts = 1;
    scenario.store = StoreModel::with_round_trip(ms(400));
    holds(
        &scenario
            .at(at(8_200), Fault::Start(1))
            .during(at(8_230), at(35_000), Fault::Suspend { host: 0, clock_stops: false })
            .calm_at(at(40_000), ms(120_000)),
    );
}

/// A quick store answers the first requests after the sleep and then stops for a while.
#[test]
fn a_lone_silo_that_wakes_up_dead_and_loses_the_store_starts_no_turn() {
    for after in [3, 6, 8, 10, 12] {
        let mut scenario = Scenario::calm(Profile::Default, 2, 1);
        scenario.start_hosts = 1;
        holds(
            &scenario
                .at(at(8_200), Fault::Start(1))
                .during(at(8_230), at(35_000), Fault::Suspend { host: 0, clock_stops: false })
                .during(at(35_000 + after), at(50_000), Fault::StoreCut(set([0])))
                .during(at(8_230), at(50_000), cut([0]))
                .calm_at(at(50_500), ms(120_000)),
        );
    }
}

/// B is cut off and voted out. Then A and B reach each other again, and neither C nor the store: C
/// alone is enough against A now, and A does not know. No silo starts.
#[test]
fn the_word_of_a_dead_monitor_keeps_nobody_alive_who_may_die_of_fewer_votes() {
    for (seed, more) in (0..4).flat_map(|seed| (0..1_300).step_by(3).map(move |more| (seed, more)))
    {
        let scenario = Scenario::calm(Profile::Default, 3, seed);
        let (alone, split) = (at(30_000), at(34_100 + more));
        holds(
            &scenario
                .clone()
                .during(alone, split, cut([1]))
                .during(alone, at(60_000), Fault::StoreCut(set([1])))
                .during(split, at(60_000), Fault::StoreCut(set([0])))
                .during(split, at(60_000), cut([0, 1]))
                .calm_at(at(60_500), ms(300_000)),
        );
    }
}

/// Three of four hosts are lost at once.
#[test]
fn the_last_of_four_is_whole_in_the_end() {
    let scenario = Scenario::calm(Profile::Default, 4, 1);
    let lost =
        |scenario: Scenario, host| scenario.during(at(30_000), at(31_000), Fault::LoseHost(host));
    holds(&lost(lost(lost(scenario, 1), 2), 3).calm_at(at(31_000), ms(1_200_000)));
}

/// Three silos are lost, and the fourth has only just joined and seen none of the others.
#[test]
fn a_newcomer_to_three_lost_silos_is_whole_in_the_end() {
    let mut scenario = Scenario::calm(Profile::Default, 4, 1);
    scenario.start_hosts = 3;
    let lost =
        |scenario: Scenario, host| scenario.during(at(30_000), at(31_000), Fault::LoseHost(host));
    let scenario = lost(lost(lost(scenario, 0), 1), 2).at(at(45_000), Fault::Start(3));
    holds(&scenario.calm_at(at(45_000), ms(1_200_000)));
}

/// C once voted against A and B, when it alone reached the store; all are well again for a quarter
/// of a minute. Then A is cut off from B and C (not from the store), and votes: its own vote and
/// the old one of C are enough against B, and then its own against C.
#[test]
fn one_silo_that_is_cut_off_does_not_vote_out_the_other_two() {
    for seed in 0..10 {
        let scenario = Scenario::calm(Profile::Default, 3, seed);
        holds(
            &scenario
                .during(at(20_000), at(30_000), cut([2]))
                .during(at(20_000), at(30_000), Fault::StoreCut(set([0, 1])))
                .during(at(60_000), at(75_000), cut([0]))
                .calm_at(at(75_500), ms(300_000)),
        );
    }
}

/// C was alone with the store for a while, and voted against the two others; all have heard each
/// other again for half a minute. Then A is cut off from both, not from the store: the old vote of
/// C must not help it against B.
#[test]
fn an_old_vote_of_a_silo_that_is_well_again_kills_nobody() {
    let trace = std::env::var_os("ATTACK_TRACE").is_some();
    for seed in 0..40 {
        let scenario = Scenario::calm(Profile::Default, 3, seed)
            .during(at(20_000), at(30_000), cut([2]))
            .during(at(20_000), at(33_000), Fault::StoreCut(set([0, 1])))
            .during(at(60_000), at(75_000), cut([0]))
            .calm_at(at(75_500), ms(300_000));
        let mut world = World::new(scenario, trace);
        while world.step(at(75_500)) {}
        let late = |p: &&Process| p.dead_at.is_some_and(|died| died > at(55_000));
        let died: Vec<u32> = world.processes().iter().filter(late).map(|p| p.host).collect();
        world.into_parts().0.into_lines().iter().for_each(|line| println!("{line}"));
        assert_eq!(died, [0], "seed {seed}");
    }
}

/// Four silos, two of which leave or are killed right while the others are parted.
#[test]
fn leaves_and_kills_during_a_partition_keep_the_fence() {
    let leave = [Fault::Leave, Fault::Stop, Fault::Kill, Fault::LoseHost];
    for gone in leave {
        for after in (0..6_000).step_by(73) {
            let scenario = Scenario::calm(Profile::Default, 4, after);
            let then = at(20_000 + after);
            holds(
                &scenario
                    .during(at(20_000), at(40_000), cut([0, 1]))
                    .during(at(20_000), at(40_000), Fault::StoreCut(set([0])))
                    .during(then, at(40_000), gone(1))
                    .during(then + ms(after % 900), at(40_000), gone(2))
                    .calm_at(at(40_500), ms(600_000)),
            );
        }
    }
}
