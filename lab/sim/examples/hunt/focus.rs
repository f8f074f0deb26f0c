//! Short scenarios around one rare situation each, so that a minute of CPU time meets it thousands
//! of times. Everything in them follows from the seed.

use std::time::Duration;

use emmer_core::rng::SeededRng;
use emmer_sim::grains::GrainLoad;
use emmer_sim::net::{Direction, HostSet, Latency, Transport};
use emmer_sim::store::StoreModel;
use emmer_sim::{Fault, Profile, Scenario, VirtualTime};

/// A situation: its name, and the scenario of a seed.
pub(crate) type Focus = (&'static str, fn(u64) -> Scenario);

/// The situations of this file; those of `focus_*.rs` are added.
pub(crate) const ALL: [Focus; 9] = [
    ("cut", cut),
    ("takeover", takeover),
    ("votes", votes),
    ("stale", stale),
    ("alone", alone),
    ("joiners", joiners),
    ("commits", commits),
    ("young", young),
    ("lossy", lossy),
];

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) fn at(millis: u64) -> VirtualTime {
    VirtualTime::from_millis(millis)
}

pub(crate) fn between(rng: &mut SeededRng, from: u64, to: u64) -> u64 {
    from + rng.below(to - from)
}

pub(crate) fn host(rng: &mut SeededRng, hosts: u32) -> u32 {
    u32::try_from(rng.below(u64::from(hosts))).unwrap_or(0)
}

pub(crate) fn one_of<T: Copy>(rng: &mut SeededRng, of: &[T]) -> T {
    of[rng.index(of.len())]
}

pub(crate) fn only(host: u32) -> HostSet {
    HostSet::from_iter([host])
}

/// A small cluster with a network, a store and clocks that are drawn.
pub(crate) fn base(seed: u64, salt: u64, hosts_max: u64) -> (SeededRng, Scenario) {
    let mut rng = SeededRng::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt);
    let hosts = u32::try_from(between(&mut rng, 3, hosts_max + 1)).unwrap_or(3);
    let profile = one_of(&mut rng, &[Profile::Default, Profile::Fast]);
    let mut scenario = Scenario::calm(profile, hosts, seed);
    scenario.start_within = ms(one_of(&mut rng, &[1, 500, 3_000]));
    let slow = one_of(&mut rng, &[1, 5, 40]);
    scenario.network.latency = Latency::even(ms(1), ms(slow + 1));
    if rng.chance(0.2) {
        scenario.network.transport = Transport::Datagram;
    }
    scenario.store = StoreModel::with_round_trip(ms(one_of(&mut rng, &[1, 5, 30, 150])));
    // One clock may run 2 % faster than another.
    scenario.clocks.drift_ppm_max = one_of(&mut rng, &[0, 1_000, 10_000]);
    if rng.chance(0.4) {
        // Where every silo probes all others, a silo's monitors never change.
        scenario.config.num_probed_silos = 4;
        scenario.config.num_probe_rings = 1;
    }
    scenario.clocks.offset_ms_max = one_of(&mut rng, &[0, 0, 3_000]);
    scenario.health_period = rng.chance(0.5).then_some(ms(1_000));
    if rng.chance(0.3) {
        load(&mut rng, &mut scenario, &[400, 1_500]);
    }
    if rng.chance(0.7) {
        scenario.restart_after = Some(ms(between(&mut rng, 100, 4_000)));
    }
    (rng, scenario)
}

/// Grains that each silo calls once in one of `every` milliseconds.
pub(crate) fn load(rng: &mut SeededRng, scenario: &mut Scenario, every: &[u64]) {
    // The directory counts on the order of one connection.
    scenario.network.transport = Transport::Stream;
    scenario.grains = Some(GrainLoad {
        grains: one_of(rng, &[2, 5, 20]),
        call_every: ms(one_of(rng, every)),
        burst: one_of(rng, &[1, 3]),
        suspend_max: ms(one_of(rng, &[5, 1_000, 4_000])),
        idle_max: ms(one_of(rng, &[50, 1_000, 10_000])),
        move_percent: one_of(rng, &[0, 5, 40]),
        directory: emmer_directory::Config {
            points_per_silo: one_of(rng, &[1, 4]),
            report_batch_max: one_of(rng, &[1, 4_096]),
            ..emmer_directory::Config::default()
        },
    });
}

/// The faults are over at `end` milliseconds; then the cluster has to become whole.
pub(crate) fn ending(scenario: Scenario, end: u64) -> Scenario {
    let bound = emmer_sim::swarm::liveness_bound(&scenario);
    scenario.calm_at(at(end), bound)
}

/// A random way in which the others do not hear `host`, though it may run.
pub(crate) fn unheard(rng: &mut SeededRng, host: u32) -> Fault {
    let direction = one_of(rng, &[Direction::Both, Direction::Both, Direction::In, Direction::Out]);
    match rng.below(6) {
        0 => Fault::Pause(host),
        1 => Fault::Slow { host, block: ms(4_096), run: ms(16) },
        2 => Fault::Lossy { host, loss_in: 0.9, loss_out: 0.9 },
        _ => Fault::Cut { inside: only(host), direction, flip: None },
    }
}

/// Silos that are cut off from their peers, and reach the store.
fn cut(seed: u64) -> Scenario {
    let (mut rng, mut scenario) = base(seed, 1, 8);
    for n in 0..4 {
        let from = 8_000 + n * 9_000 + rng.below(2_000);
        let until = from + between(&mut rng, 300, 9_000);
        let victim = host(&mut rng, scenario.hosts);
        let fault = unheard(&mut rng, victim);
        scenario = scenario.during(at(from), at(until), fault);
    }
    ending(scenario, 46_000)
}

/// A second process takes the address of one that is not heard.
fn takeover(seed: u64) -> Scenario {
    let (mut rng, mut scenario) = base(seed, 2, 6);
    for n in 0..4 {
        let from = 8_000 + n * 9_000;
        let victim = host(&mut rng, scenario.hosts);
        if rng.chance(0.8) {
            let fault = unheard(&mut rng, victim);
            scenario = scenario.during(at(from), at(from + between(&mut rng, 500, 9_000)), fault);
        }
        if rng.chance(0.3) {
            // One of its monitors is not heard either.
            let other = host(&mut rng, scenario.hosts);
            let fault = unheard(&mut rng, other);
            scenario = scenario.during(at(from), at(from + between(&mut rng, 200, 4_000)), fault);
        }
        for _ in 0..1 + rng.below(2) {
            let start = from + rng.below(4_000);
            scenario = scenario.at(at(start), Fault::Start(victim));
        }
    }
    ending(scenario, 46_000)
}

/// Links that break one by one, so that insufficient votes stand, and suspects that recover.
fn votes(seed: u64) -> Scenario {
    let (mut rng, mut scenario) = base(seed, 3, 9);
    let hosts = scenario.hosts;
    scenario.config.vote_hold = ms(one_of(&mut rng, &[0, 300, 2_000]));
    if rng.chance(0.5) {
        let window = scenario.config.patience() + ms(between(&mut rng, 2_000, 12_000));
        scenario.config.death_vote_expiration_timeout = window;
    }
    // Else others answer for the victim.
    scenario.config.enable_indirect_probes = rng.chance(0.4);
    let victim = host(&mut rng, hosts);
    if rng.chance(0.5) {
        // Some of those that will not hear it come later.
        scenario.start_hosts = 1 + hosts / 2;
        for late in scenario.start_hosts..hosts {
            let when = between(&mut rng, 3_000, 15_000);
            scenario = scenario.at(at(when), Fault::Start(late));
        }
    }
    for _ in 0..between(&mut rng, 2, 14) {
        let from = between(&mut rng, 8_000, 40_000);
        let other = host(&mut rng, hosts);
        let until = from + between(&mut rng, 1_000, 12_000);
        let (a, b) = if rng.chance(0.7) { (victim, other) } else { (other, victim) };
        if a != b {
            scenario = scenario.during(at(from), at(until), Fault::BreakLink { from: a, to: b });
        }
    }
    for _ in 0..2 {
        let from = between(&mut rng, 20_000, 42_000);
        let other = one_of(&mut rng, &[victim, victim, 0]);
        let fault = unheard(&mut rng, other);
        scenario = scenario.during(at(from), at(from + between(&mut rng, 500, 7_000)), fault);
    }
    for _ in 0..rng.below(3) {
        let other = host(&mut rng, hosts);
        let when = between(&mut rng, 10_000, 42_000);
        let fault = match rng.below(3) {
            0 => Fault::Kill(other),
            1 => Fault::LoseHost(other),
            _ => Fault::Leave(other),
        };
        scenario = scenario.during(at(when), at(when + 5_000), fault);
    }
    ending(scenario, 52_000)
}

/// Rows become stale soon, and silos lose the store for a while before they are not heard.
fn stale(seed: u64) -> Scenario {
    let (mut rng, mut scenario) = base(seed, 4, 8);
    let config = &mut scenario.config;
    config.i_am_alive_table_publish_timeout = ms(one_of(&mut rng, &[4_000, 8_000]));
    config.min_i_am_alive_publish_timeout = ms(one_of(&mut rng, &[1_000, 3_000]));
    config.table_refresh_timeout = ms(5_000);
    let hosts = scenario.hosts;
    for _ in 0..between(&mut rng, 1, 4) {
        let from = between(&mut rng, 6_000, 40_000);
        let until = from + between(&mut rng, 3_000, 40_000);
        let victim = host(&mut rng, hosts);
        let mut inside = only(victim);
        if rng.chance(0.5) {
            inside = (0..hosts).filter(|_| rng.chance(0.5)).collect();
        }
        scenario = scenario.during(at(from), at(until), Fault::StoreCut(inside));
        let when = between(&mut rng, from, until + 3_000);
        let fault = unheard(&mut rng, victim);
        scenario = scenario.during(at(when), at(when + between(&mut rng, 500, 9_000)), fault);
    }
    if rng.chance(0.4) {
        let from = between(&mut rng, 6_000, 30_000);
        scenario = scenario.during(
            at(from),
            at(from + between(&mut rng, 2_000, 40_000)),
            Fault::StoreOutage,
        );
    }
    if rng.chance(0.4) {
        // Half of the silos are gone, so those left cannot vote.
        let when = between(&mut rng, 10_000, 50_000);
        for lost in 0..hosts / 2 + 1 {
            scenario =
                scenario.during(at(when + rng.below(500)), at(85_000), Fault::LoseHost(lost));
        }
    }
    ending(scenario, 85_000)
}

/// One silo, or the last one, and newcomers that may not reach it.
fn alone(seed: u64) -> Scenario {
    let (mut rng, mut scenario) = base(seed, 5, 3);
    scenario.start_hosts = 1;
    scenario.restart_after = None;
    for newcomer in 1..scenario.hosts {
        let when = between(&mut rng, 5_000, 30_000);
        scenario = scenario.at(at(when), Fault::Start(newcomer));
        if rng.chance(0.6) {
            // The first hears of the newcomer, and then nothing more.
            let from = when + rng.below(1_200);
            let until = from + between(&mut rng, 2_000, 25_000);
            let fault = unheard(&mut rng, 0);
            scenario = scenario.during(at(from), at(until), fault);
        }
    }
    for _ in 0..between(&mut rng, 0, 4) {
        let from = between(&mut rng, 4_000, 40_000);
        let until = from + between(&mut rng, 300, 40_000);
        let fault = match rng.below(4) {
            0 => Fault::StoreCut(only(0)),
            1 => Fault::StoreOutage,
            2 => Fault::Start(0),
            _ => unheard(&mut rng, 0),
        };
        let until = if fault.lasts() { until } else { from };
        scenario = scenario.during(at(from), at(until), fault);
    }
    ending(scenario, 85_000)
}

/// Many join at once, on links of which some are dead, and some of them are frozen while they join.
fn joiners(seed: u64) -> Scenario {
    let (mut rng, mut scenario) = base(seed, 6, 10);
    let hosts = scenario.hosts;
    scenario.network.latency = Latency::even(ms(1), ms(one_of(&mut rng, &[20, 200])));
    scenario.start_hosts = 1 + host(&mut rng, hosts);
    scenario.config.delta_log_max = one_of(&mut rng, &[1, 4, 64]);
    if rng.chance(0.4) {
        scenario.config.max_join_attempt_time = ms(8_000);
        scenario.config.death_vote_expiration_timeout = scenario.config.patience() + ms(2_000);
        scenario.config.defunct_silo_cleanup_period = ms(2_000);
        scenario.config.defunct_silo_expiration = ms(1);
    }
    for _ in 0..between(&mut rng, 2, 10) {
        let when = between(&mut rng, 500, 25_000);
        let who = host(&mut rng, hosts);
        if rng.chance(0.4) {
            scenario = scenario.at(at(when), Fault::Kill(who));
        }
        scenario = scenario.at(at(when + 1 + rng.below(300)), Fault::Start(who));
        let other = host(&mut rng, hosts);
        if rng.chance(0.5) && other != who {
            let link = Fault::BreakLink { from: who, to: other };
            scenario = scenario.during(at(when), at(when + between(&mut rng, 300, 12_000)), link);
        }
        if rng.chance(0.3) {
            let pause = Fault::Pause(who);
            let from = when + rng.below(600);
            scenario = scenario.during(at(from), at(from + between(&mut rng, 500, 30_000)), pause);
        }
    }
    ending(scenario, 60_000)
}

/// Commits whose end is not known, while silos die and come back.
fn commits(seed: u64) -> Scenario {
    let (mut rng, mut scenario) = base(seed, 7, 8);
    let hosts = scenario.hosts;
    scenario.store.unknown_late = one_of(&mut rng, &[0.0, 0.1, 0.3]);
    scenario.store.unknown_applied = one_of(&mut rng, &[0.0, 0.3]);
    scenario.store.unknown_lost = one_of(&mut rng, &[0.0, 0.3]);
    scenario.store.stale_reads = one_of(&mut rng, &[0.0, 0.0, 0.3]);
    for _ in 0..between(&mut rng, 2, 8) {
        let from = between(&mut rng, 6_000, 40_000);
        let victim = host(&mut rng, hosts);
        let fault = match rng.below(4) {
            0 => Fault::Kill(victim),
            1 => Fault::Leave(victim),
            _ => unheard(&mut rng, victim),
        };
        let until = if fault.lasts() { from + between(&mut rng, 2_000, 8_000) } else { from };
        scenario = scenario.during(at(from), at(until), fault);
    }
    ending(scenario, 52_000)
}

/// Silos that have just become Active, or are about to, and are not heard.
fn young(seed: u64) -> Scenario {
    let (mut rng, mut scenario) = base(seed, 8, 6);
    let hosts = scenario.hosts;
    scenario.start_hosts = hosts - 1;
    for n in 0..4 {
        let when = 8_000 + n * 9_000;
        let who = if n == 0 { hosts - 1 } else { host(&mut rng, hosts) };
        if n > 0 {
            let fault = if rng.chance(0.5) { Fault::Kill(who) } else { Fault::Leave(who) };
            scenario = scenario.at(at(when - 1_500), fault);
        }
        scenario = scenario.at(at(when), Fault::Start(who));
        let from = when + rng.below(1_500);
        let fault = unheard(&mut rng, who);
        scenario = scenario.during(at(from), at(from + between(&mut rng, 500, 7_500)), fault);
    }
    ending(scenario, 46_000)
}

/// A silo most of whose messages are lost: some of its answers come through.
fn lossy(seed: u64) -> Scenario {
    let (mut rng, mut scenario) = base(seed, 10, 6);
    scenario.grains = None;
    scenario.network.transport = Transport::Datagram;
    for n in 0..3 {
        let from = 8_000 + n * 14_000;
        let host = host(&mut rng, scenario.hosts);
        let (loss_in, loss_out) =
            (one_of(&mut rng, &[0.0, 0.3, 0.6]), one_of(&mut rng, &[0.4, 0.6, 0.8]));
        let until = from + between(&mut rng, 5_000, 13_000);
        scenario = scenario.during(at(from), at(until), Fault::Lossy { host, loss_in, loss_out });
        if rng.chance(0.5) {
            let cut = Fault::Cut { inside: only(host), direction: Direction::Both, flip: None };
            let from = from + between(&mut rng, 3_000, 8_000);
            scenario = scenario.during(at(from), at(from + 6_000), cut);
        }
    }
    ending(scenario, 56_000)
}
