//! Short scenarios around joining and dying in company: joiners or groups that do not hear each
//! other, joins while a group is cut off, joiners that stand still, a silo that alone reaches the
//! store.

use emmer_sim::net::{Direction, HostSet, Latency};
use emmer_sim::{Fault, Scenario};

use crate::focus::{Focus, at, base, between, ending, host, ms, one_of, only};

/// The situations of this file.
pub(crate) const ALL: [Focus; 7] = [
    ("pairs", pairs),
    ("split", split),
    ("schism", schism),
    ("thaw", thaw),
    ("ice", ice),
    ("exile", exile),
    ("orphan", orphan),
];

/// Breaks both directions between two hosts.
fn part(scenario: Scenario, a: u32, b: u32, from: u64, until: u64) -> Scenario {
    let scenario = scenario.during(at(from), at(until), Fault::BreakLink { from: a, to: b });
    scenario.during(at(from), at(until), Fault::BreakLink { from: b, to: a })
}

/// Some join at once, and some pairs of them do not hear each other at first.
fn pairs(seed: u64) -> Scenario {
    let (mut rng, mut scenario) = base(seed, 41, 3);
    scenario.start_hosts = between(&mut rng, 1, 4).try_into().unwrap_or(1);
    let first = scenario.start_hosts;
    scenario.hosts = first + 4;
    scenario.config.delta_log_max = one_of(&mut rng, &[1, 2, 64]);
    scenario.network.latency = Latency::even(ms(1), ms(one_of(&mut rng, &[1, 40, 200])));
    for n in 0..2 {
        let when = 4_000 + n * 9_000;
        for joiner in first..scenario.hosts {
            if n > 0 {
                scenario = scenario.at(at(when - 1_500), Fault::Kill(joiner));
            }
            scenario = scenario.at(at(when + rng.below(700)), Fault::Start(joiner));
        }
        for a in first..scenario.hosts {
            for b in a + 1..scenario.hosts {
                if rng.chance(0.4) {
                    let until = when + between(&mut rng, 300, 5_000);
                    scenario = part(scenario, a, b, when, until);
                }
            }
        }
    }
    ending(scenario, 22_000)
}

/// Silos join, and just then some are cut off that the joiners had reached.
fn split(seed: u64) -> Scenario {
    let (mut rng, mut scenario) = base(seed, 42, 3);
    scenario.start_hosts = between(&mut rng, 2, 6).try_into().unwrap_or(3);
    let first = scenario.start_hosts;
    scenario.hosts = first + 3;
    scenario.network.latency = Latency::even(ms(1), ms(one_of(&mut rng, &[1, 10])));
    for n in 0..3 {
        let when = 8_000 + n * 14_000;
        for joiner in first..scenario.hosts {
            if n > 0 {
                scenario = scenario.at(at(when - 2_500), Fault::Kill(joiner));
            }
            scenario = scenario.at(at(when + rng.below(30)), Fault::Start(joiner));
        }
        let inside: HostSet = (0..first).filter(|_| rng.chance(0.7)).collect();
        let from = when + between(&mut rng, 10, 300);
        let cut = Fault::Cut { inside, direction: Direction::Both, flip: None };
        scenario = scenario.during(at(from), at(from + between(&mut rng, 4_000, 9_000)), cut);
    }
    ending(scenario, 50_000)
}

/// Two groups do not hear each other, and both are heard by a few that lie between.
fn schism(seed: u64) -> Scenario {
    let (mut rng, mut scenario) = base(seed, 43, 3);
    scenario.grains = None;
    let size: u32 = one_of(&mut rng, &[2, 3, 3]);
    let between_them: u32 = one_of(&mut rng, &[0, 1, 1, 2]);
    scenario.hosts = 2 * size + between_them;
    scenario.start_hosts = scenario.hosts;
    scenario.config.num_probed_silos = 10;
    scenario.config.num_probe_rings = 10;
    scenario.config.enable_indirect_probes = rng.chance(0.2);
    for n in 0..2 {
        let from = 8_000 + n * 18_000;
        let until = from + between(&mut rng, 5_000, 12_000);
        for a in 0..size {
            for b in size..2 * size {
                scenario = part(scenario, a, b, from + rng.below(400), until);
            }
        }
        if rng.chance(0.5) {
            let gone = host(&mut rng, scenario.hosts);
            scenario = scenario.at(at(from + between(&mut rng, 3_000, 6_000)), Fault::Kill(gone));
        }
    }
    ending(scenario, 42_000)
}

/// A joiner stands still just after it was inserted, until its row may have been cleaned up.
fn thaw(seed: u64) -> Scenario {
    let (mut rng, mut scenario) = base(seed, 44, 4);
    let config = &mut scenario.config;
    config.max_join_attempt_time = ms(one_of(&mut rng, &[8_000, 30_000, 30_000]));
    config.death_vote_expiration_timeout = config.patience() + ms(2_000);
    config.defunct_silo_cleanup_period = ms(2_000);
    config.defunct_silo_expiration = ms(one_of(&mut rng, &[1, 1, 25_000]));
    config.max_defunct_silo_entries = one_of(&mut rng, &[1, 100]);
    scenario.restart_after = None;
    scenario.start_hosts = scenario.hosts - 1;
    if rng.chance(0.3) {
        let host = host(&mut rng, scenario.hosts);
        let step = Fault::StepClock { host, ms: one_of(&mut rng, &[-3_600_000, 3_600_000]) };
        scenario = scenario.during(at(14_000), at(70_000), step);
    }
    let who = scenario.hosts - 1;
    let mut when = 6_000;
    for _ in 0..2 {
        scenario = scenario.at(at(when), Fault::Start(who));
        let from = when + between(&mut rng, 2, 160);
        let until = from + between(&mut rng, 12_000, 31_000);
        let fault = if rng.chance(0.8) {
            Fault::Pause(who)
        } else {
            Fault::Cut { inside: only(who), direction: Direction::Both, flip: None }
        };
        scenario = scenario.during(at(from), at(until), fault);
        when = until + 3_000;
        scenario = scenario.at(at(when - 1_000), Fault::Kill(who));
    }
    ending(scenario, when + 18_000)
}

/// A silo, perhaps a joining one, stands still or is cut off from everything until its row was
/// cleaned up; it may get a successor meanwhile.
fn ice(seed: u64) -> Scenario {
    let (mut rng, mut scenario) = base(seed, 47, 4);
    let config = &mut scenario.config;
    config.max_join_attempt_time = ms(6_000);
    config.death_vote_expiration_timeout = config.patience() + ms(2_000);
    config.defunct_silo_cleanup_period = ms(2_000);
    config.defunct_silo_expiration = ms(1);
    config.max_defunct_silo_entries = one_of(&mut rng, &[1, 100]);
    scenario.restart_after = None;
    let who = host(&mut rng, scenario.hosts);
    let mut from = 6_000 + rng.below(2_000);
    if rng.chance(0.4) {
        scenario = scenario.at(at(from), Fault::Kill(who));
        from += 2_000;
        scenario = scenario.at(at(from), Fault::Start(who));
        from += between(&mut rng, 2, 200);
    }
    let until = from + between(&mut rng, 24_000, 40_000);
    if rng.chance(0.5) {
        scenario = scenario.during(at(from), at(until), Fault::Pause(who));
    } else {
        let cut = Fault::Cut { inside: only(who), direction: Direction::Both, flip: None };
        scenario = scenario.during(at(from), at(until), cut);
        let store = until + between(&mut rng, 0, 3_000);
        scenario = scenario.during(at(from), at(store), Fault::StoreCut(only(who)));
    }
    if rng.chance(0.4) {
        let successor = from + between(&mut rng, 1_000, 20_000);
        scenario = scenario.at(at(successor), Fault::Start(who));
    }
    ending(scenario, until + 4_000)
}

/// A silo is cut off from all others, and it alone reaches the store.
fn exile(seed: u64) -> Scenario {
    let (mut rng, mut scenario) = base(seed, 45, 8);
    scenario.hosts = scenario.hosts.max(5);
    scenario.start_hosts = scenario.hosts;
    scenario.config.vote_hold = ms(one_of(&mut rng, &[0, 300]));
    for n in 0..2 {
        let from = 12_000 + n * 20_000;
        let until = from + between(&mut rng, 6_000, 12_000);
        let alone = host(&mut rng, scenario.hosts);
        let others = (0..scenario.hosts).filter(|host| *host != alone).collect();
        let cut = Fault::Cut { inside: only(alone), direction: Direction::Both, flip: None };
        scenario = scenario.during(at(from), at(until), cut);
        scenario = scenario.during(at(from), at(until), Fault::StoreCut(others));
        if rng.chance(0.4) {
            // Its probes were missed for a moment before.
            let blink = from - between(&mut rng, 2_000, 3_500);
            let cut = Fault::Cut { inside: only(alone), direction: Direction::Both, flip: None };
            scenario = scenario.during(at(blink), at(blink + between(&mut rng, 300, 900)), cut);
        }
    }
    ending(scenario, 46_000)
}

/// Just enough silos for a death do not hear a silo, and one of them dies when they vote.
fn orphan(seed: u64) -> Scenario {
    let (mut rng, mut scenario) = base(seed, 46, 7);
    scenario.hosts = scenario.hosts.max(3);
    scenario.start_hosts = scenario.hosts;
    scenario.config.vote_hold = ms(one_of(&mut rng, &[0, 300, 2_000]));
    // Else others answer for the victim.
    scenario.config.enable_indirect_probes = false;
    let patience = u64::try_from(scenario.config.patience().as_millis()).unwrap_or(4_000);
    for n in 0..3 {
        let from = 8_000 + n * 14_000;
        let victim = host(&mut rng, scenario.hosts);
        let deaf = between(&mut rng, 1, 4);
        for n in 0..deaf {
            let voter = host(&mut rng, scenario.hosts);
            if voter == victim {
                continue;
            }
            scenario = part(scenario, victim, voter, from, from + patience + 4_000);
            let when = from + patience + rng.below(1_500);
            if n == 0 || rng.chance(0.2) {
                let fault = match rng.below(3) {
                    0 => Fault::Kill(voter),
                    1 => Fault::Leave(voter),
                    _ => Fault::LoseHost(voter),
                };
                scenario = scenario.during(at(when), at(when + 3_000), fault);
                scenario = scenario.at(at(when + 5_000), Fault::Start(voter));
            }
        }
    }
    ending(scenario, 52_000)
}
