//! Short scenarios around the fence: silos that are heard for a moment between two silences, votes
//! that stand, rows that were stale until a moment ago, silos that think that they are alone.

use emmer_core::rng::SeededRng;
use emmer_sim::net::{Direction, Latency, Transport};
use emmer_sim::{Fault, Scenario};

use crate::focus::{Focus, at, base, between, ending, host, ms, one_of, only, unheard};

/// The situations of this file.
pub(crate) const ALL: [Focus; 7] = [
    ("verge", verge),
    ("stutter", stutter),
    ("unripe", unripe),
    ("standing", standing),
    ("restale", restale),
    ("heir", heir),
    ("company", company),
];

fn cut(host: u32) -> Fault {
    Fault::Cut { inside: only(host), direction: Direction::Both, flip: None }
}

/// Cuts `host` off from `from` on, lets it be heard for a moment before its monitors have lost
/// patience, and cuts it off again.
fn heard_once(rng: &mut SeededRng, scenario: Scenario, host: u32, from: u64) -> Scenario {
    let patience = u64::try_from(scenario.config.patience().as_millis()).unwrap_or(4_000);
    let first = from + between(rng, patience / 3, patience);
    let second = first + between(rng, 20, 600);
    let scenario = scenario.during(at(from), at(first), cut(host));
    scenario.during(at(second), at(second + between(rng, 1_000, 6_000)), cut(host))
}

/// A silo that is cut off from its peers loses the store just when it is declared dead: it checks
/// its fence for the last time.
fn verge(seed: u64) -> Scenario {
    let (mut rng, mut scenario) = base(seed, 17, 5);
    scenario.network.latency = Latency::even(ms(1), ms(one_of(&mut rng, &[1, 10])));
    let patience = u64::try_from(scenario.config.patience().as_millis()).unwrap_or(4_000);
    let period = u64::try_from(scenario.config.probe_period.as_millis()).unwrap_or(1_000);
    for n in 0..5 {
        let victim = host(&mut rng, scenario.hosts);
        let from = 6_000 + n * 9_000 + rng.below(1_000);
        scenario = scenario.during(at(from), at(from + 7_000), cut(victim));
        let when = from + patience + rng.below(period + 400);
        scenario = scenario.during(at(when), at(when + 2_500), Fault::StoreCut(only(victim)));
    }
    ending(scenario, 52_000)
}

/// A silo that answers once in a while: monitors remember its misses.
fn stutter(seed: u64) -> Scenario {
    let (mut rng, mut scenario) = base(seed, 11, 5);
    if scenario.grains.is_none() && rng.chance(0.8) {
        scenario.network.transport = Transport::Datagram;
    }
    for n in 0..4 {
        let victim = host(&mut rng, scenario.hosts);
        let from = 8_000 + n * 12_000 + rng.below(1_000);
        scenario = heard_once(&mut rng, scenario, victim, from);
        if rng.chance(0.3) {
            let store = Fault::StoreCut(only(victim));
            scenario = scenario.during(at(from), at(from + 11_000), store);
        }
    }
    ending(scenario, 58_000)
}

/// A silo joins, and monitors have missed it before it became Active. Some others miss the views of
/// that time.
fn unripe(seed: u64) -> Scenario {
    let (mut rng, mut scenario) = base(seed, 12, 5);
    if scenario.grains.is_none() {
        scenario.network.transport = Transport::Datagram;
    }
    scenario.config.delta_log_max = one_of(&mut rng, &[1, 64]);
    scenario.start_hosts = scenario.hosts - 1;
    for n in 0..4 {
        let when = 8_000 + n * 12_000;
        let who = if n == 0 { scenario.hosts - 1 } else { host(&mut rng, scenario.hosts) };
        if n > 0 {
            scenario = scenario.at(at(when - 1_500), Fault::Kill(who));
        }
        scenario = scenario.at(at(when), Fault::Start(who));
        let from = when + between(&mut rng, 10, 400);
        scenario = heard_once(&mut rng, scenario, who, from);
        if rng.chance(0.5) {
            let other = host(&mut rng, scenario.hosts);
            let pause = from + between(&mut rng, 0, 4_000);
            let until = pause + between(&mut rng, 300, 3_500);
            scenario = scenario.during(at(pause), at(until), Fault::Pause(other));
        }
        if rng.chance(0.3) {
            scenario = scenario.during(at(from), at(from + 11_000), Fault::StoreCut(only(who)));
        }
    }
    ending(scenario, 58_000)
}

/// A vote that stands in the table while its voter ceases to be a monitor, and then the number of
/// further votes that a death takes.
fn standing(seed: u64) -> Scenario {
    let (mut rng, mut scenario) = base(seed, 13, 5);
    scenario.start_hosts = between(&mut rng, 4, 7).try_into().unwrap_or(5);
    scenario.hosts = scenario.start_hosts + 4;
    scenario.config.num_probed_silos = 4;
    scenario.config.num_probe_rings = one_of(&mut rng, &[1, 2]);
    scenario.config.vote_hold = ms(one_of(&mut rng, &[0, 300]));
    // Else others answer for the victim.
    scenario.config.enable_indirect_probes = false;
    if rng.chance(0.3) {
        let window = scenario.config.patience() + ms(between(&mut rng, 6_000, 20_000));
        scenario.config.death_vote_expiration_timeout = window;
    }
    scenario.config.retract_votes = rng.chance(0.5);
    let first = scenario.start_hosts;
    let victim = host(&mut rng, first);
    for _ in 0..between(&mut rng, 1, 3) {
        let voter = host(&mut rng, first);
        if voter != victim {
            // Until it is no longer a monitor, or a shorter time.
            let until = one_of(&mut rng, &[15_500, 21_000]);
            let link = Fault::BreakLink { from: victim, to: voter };
            scenario = scenario.during(at(8_000 + rng.below(1_000)), at(until), link);
        }
    }
    for late in first..scenario.hosts {
        scenario = scenario.at(at(between(&mut rng, 16_000, 19_000)), Fault::Start(late));
    }
    let from = between(&mut rng, 22_000, 24_000);
    for voter in 0..scenario.hosts {
        if voter != victim && rng.chance(0.45) {
            let link = Fault::BreakLink { from: victim, to: voter };
            scenario = scenario.during(at(from + rng.below(600)), at(from + 9_000), link);
        }
    }
    if rng.chance(0.3) {
        let host = host(&mut rng, first);
        scenario = scenario.at(at(from + between(&mut rng, 2_000, 8_000)), Fault::Kill(host));
    }
    ending(scenario, 36_000)
}

/// A silo that cannot touch its row until it is almost stale, and a monitor that does not hear it
/// meanwhile.
fn restale(seed: u64) -> Scenario {
    let (mut rng, mut scenario) = base(seed, 14, 6);
    scenario.hosts = one_of(&mut rng, &[3, 3, 5]);
    scenario.start_hosts = scenario.hosts;
    let config = &mut scenario.config;
    config.i_am_alive_table_publish_timeout = ms(4_000);
    config.min_i_am_alive_publish_timeout = ms(1_000);
    config.table_refresh_timeout = ms(5_000);
    config.enable_indirect_probes = false;
    config.vote_hold = ms(300);
    let stale = u64::try_from(config.stale_after(1).as_millis()).unwrap_or(12_000);
    for n in 0..2 {
        let victim = host(&mut rng, scenario.hosts);
        let from = 17_000 + n * 48_000;
        let until = from + between(&mut rng, stale + 2_000, stale + 17_000);
        let mut inside = only(victim);
        if rng.chance(0.2) {
            inside.insert(host(&mut rng, scenario.hosts));
        }
        scenario = scenario.during(at(from), at(until), Fault::StoreCut(inside));
        // The number of silos that do not hear it suffices for a death if its row is stale, and
        // otherwise lacks one.
        let deaf = scenario.hosts.div_ceil(2) - 1;
        let hosts = scenario.hosts;
        let first = host(&mut rng, hosts);
        let others = (0..hosts).map(|n| (first + n) % hosts).filter(|other| *other != victim);
        for other in others.take(deaf as usize) {
            let link = Fault::BreakLink { from: victim, to: other };
            let begin = from - between(&mut rng, 4_000, 11_000);
            scenario =
                scenario.during(at(begin), at(until + between(&mut rng, 2_000, 9_000)), link);
        }
    }
    ending(scenario, 108_000)
}

/// A silo without peers stands still while its successor starts.
fn heir(seed: u64) -> Scenario {
    let (mut rng, mut scenario) = base(seed, 15, 3);
    scenario.start_hosts = 1;
    scenario.hosts = between(&mut rng, 1, 3).try_into().unwrap_or(1);
    for n in 0..2 {
        let from = 7_000 + n * 24_000 + rng.below(5_000);
        let until = from + between(&mut rng, 1_000, 14_000);
        scenario = scenario.during(at(from), at(until), Fault::Pause(0));
        scenario = scenario.at(at(from + rng.below(2_000)), Fault::Start(0));
        if rng.chance(0.5) {
            // It is nearly alone.
            scenario = scenario.at(at(from - between(&mut rng, 10, 5_000)), Fault::Start(1));
        }
    }
    scenario.hosts = scenario.hosts.max(2);
    ending(scenario, 60_000)
}

/// A silo that was alone until a moment ago: a newcomer has just been inserted, or has just been
/// answered.
fn company(seed: u64) -> Scenario {
    let (mut rng, mut scenario) = base(seed, 16, 3);
    scenario.start_hosts = 1;
    scenario.restart_after = None;
    if rng.chance(0.3) {
        scenario.store.latency.tail = 0.3;
        scenario.store.latency.tail_mean = ms(200);
    }
    let mut when = 6_000 + rng.below(6_000);
    for newcomer in 1..scenario.hosts.min(3) {
        scenario = scenario.at(at(when), Fault::Start(newcomer));
        // Perhaps it does not notice that the newcomer is inserted.
        let mut from = when + rng.below(400);
        if rng.chance(0.6) {
            let first = when - rng.below(100);
            from = when + between(&mut rng, 100, 1_500);
            let fault = unheard(&mut rng, 0);
            scenario = scenario.during(at(first), at(from), fault);
            from += between(&mut rng, 1, 400);
        }
        let until = from + between(&mut rng, 4_000, 14_000);
        if rng.chance(0.4) {
            scenario = scenario.during(at(from), at(until), Fault::Pause(0));
        } else {
            scenario = scenario.during(at(from), at(until), cut(0));
            if rng.chance(0.7) {
                let store = Fault::StoreCut(only(0));
                scenario =
                    scenario.during(at(from + rng.below(300)), at(until + rng.below(4_000)), store);
            }
        }
        when = until + between(&mut rng, 3_000, 12_000);
    }
    ending(scenario, when + 2_000)
}
