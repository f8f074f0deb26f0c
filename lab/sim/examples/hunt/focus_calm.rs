//! Short scenarios with little trouble, so that every bound on time, load and availability can be
//! tight; in some only the store is away.

use emmer_core::rng::SeededRng;
use emmer_sim::net::{Direction, HostSet, Latency};
use emmer_sim::store::StoreModel;
use emmer_sim::{Fault, Profile, Scenario};

use crate::focus::{Focus, at, between, ending, host, ms, one_of, only};

/// The situations of this file.
pub(crate) const ALL: [Focus; 4] =
    [("calm", calm), ("outage", outage), ("healed", healed), ("refused", refused)];

/// A quick network and a true store.
fn kind(seed: u64, salt: u64, hosts_max: u64) -> (SeededRng, Scenario) {
    let mut rng = SeededRng::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt);
    let hosts = u32::try_from(between(&mut rng, 4, hosts_max + 1)).unwrap_or(4);
    let profile = one_of(&mut rng, &[Profile::Default, Profile::Fast]);
    let mut scenario = Scenario::calm(profile, hosts, seed);
    scenario.start_within = ms(one_of(&mut rng, &[1, 500]));
    scenario.network.latency = Latency::even(ms(1), ms(one_of(&mut rng, &[1, 1, 10])));
    scenario.store = StoreModel::with_round_trip(ms(one_of(&mut rng, &[1, 5, 20])));
    scenario.clocks.drift_ppm_max = one_of(&mut rng, &[0, 1_000]);
    scenario.config.fan_out = one_of(&mut rng, &[2, 3, 8]);
    if rng.chance(0.4) {
        scenario.config.num_probed_silos = 4;
        scenario.config.num_probe_rings = 1;
    }
    scenario.health_period = rng.chance(0.5).then_some(ms(1_000));
    (rng, scenario)
}

/// One thing at a time.
fn calm(seed: u64) -> Scenario {
    let (mut rng, mut scenario) = kind(seed, 31, 11);
    scenario.start_hosts = scenario.hosts - 1;
    if rng.chance(0.3) {
        scenario.config.defunct_silo_cleanup_period = ms(2_000);
        scenario.config.defunct_silo_expiration = ms(1);
        scenario.config.max_join_attempt_time = ms(8_000);
        scenario.config.death_vote_expiration_timeout = scenario.config.patience() + ms(4_000);
    }
    let mut now = 12_500;
    for _ in 0..4 {
        let who = host(&mut rng, scenario.hosts);
        let fault = match rng.below(5) {
            0 => Fault::Kill(who),
            1 => Fault::LoseHost(who),
            2 => Fault::Leave(who),
            3 => Fault::Stop(who),
            _ => Fault::Start(who),
        };
        scenario = scenario.during(at(now), at(now + 8_000), fault);
        now += between(&mut rng, 11_000, 13_000);
        scenario = scenario.at(at(now), Fault::Start(who));
        now += between(&mut rng, 11_000, 13_000);
    }
    ending(scenario, now + 30_000)
}

/// The store is away for a while, and nothing else happens; long before that some votes were
/// written that did not suffice, or a silo missed some probes.
fn outage(seed: u64) -> Scenario {
    let (mut rng, mut scenario) = kind(seed, 32, 8);
    scenario.config.vote_hold = ms(one_of(&mut rng, &[0, 300]));
    scenario.config.enable_indirect_probes = rng.chance(0.3);
    let victim = host(&mut rng, scenario.hosts);
    for _ in 0..rng.below(3) {
        let voter = host(&mut rng, scenario.hosts);
        if voter != victim {
            let link = Fault::BreakLink { from: victim, to: voter };
            scenario = scenario.during(at(8_000), at(16_000), link);
        }
    }
    if rng.chance(0.6) {
        let fault = match rng.below(3) {
            0 => Fault::Pause(victim),
            1 => Fault::Lossy { host: victim, loss_in: 0.5, loss_out: 0.5 },
            _ => Fault::Cut { inside: only(victim), direction: Direction::Both, flip: None },
        };
        scenario = scenario.during(at(9_000), at(9_000 + between(&mut rng, 300, 3_000)), fault);
    }
    let from = between(&mut rng, 60_500, 70_000);
    let until = from + between(&mut rng, 3_000, 25_000);
    let inside: HostSet = (0..scenario.hosts).filter(|_| rng.chance(0.5)).collect();
    let fault = if rng.chance(0.6) { Fault::StoreOutage } else { Fault::StoreCut(inside) };
    scenario = scenario.during(at(from), at(until), fault);
    if rng.chance(0.3) {
        let killed = host(&mut rng, scenario.hosts);
        scenario = scenario.at(at(from + between(&mut rng, 1_000, 3_000)), Fault::Kill(killed));
    }
    ending(scenario, 100_000)
}

/// A silo that was voted dead while it was cut off reaches its peers again, and the store not yet.
fn healed(seed: u64) -> Scenario {
    let (mut rng, mut scenario) = kind(seed, 33, 6);
    for n in 0..2 {
        let from = 12_000 + n * 42_000;
        let victim = host(&mut rng, scenario.hosts);
        // Long enough for its connections to be given up, or not.
        let lasts = if rng.chance(0.5) {
            between(&mut rng, 4_000, 9_000)
        } else {
            between(&mut rng, 14_000, 18_000)
        };
        let until = from + lasts;
        let direction = one_of(&mut rng, &[Direction::Both, Direction::In, Direction::Out]);
        let cut = Fault::Cut { inside: only(victim), direction, flip: None };
        scenario = scenario.during(at(from), at(until), cut);
        let store = between(&mut rng, 8_000, 14_000);
        scenario =
            scenario.during(at(from - 100), at(until + store), Fault::StoreCut(only(victim)));
        scenario = scenario.at(at(until + 16_000), Fault::Start(victim));
    }
    ending(scenario, 96_000)
}

/// Something on the way refuses connections to a silo, or resets them, while it joins or runs.
fn refused(seed: u64) -> Scenario {
    let (mut rng, mut scenario) = kind(seed, 34, 6);
    scenario.start_hosts = scenario.hosts - 1;
    for n in 0..3 {
        let from = 8_000 + n * 12_000;
        let who = if n == 0 { scenario.hosts - 1 } else { host(&mut rng, scenario.hosts) };
        if rng.chance(0.5) {
            scenario = scenario.at(at(from - 1_000), Fault::Kill(who));
        }
        scenario = scenario.during(
            at(from),
            at(from + between(&mut rng, 1_000, 9_000)),
            Fault::Refuse(who),
        );
        scenario = scenario.at(at(from + rng.below(600)), Fault::Start(who));
        for _ in 0..rng.below(3) {
            let other = host(&mut rng, scenario.hosts);
            let when = from + rng.below(8_000);
            let fault = match rng.below(3) {
                0 => Fault::Reset(other),
                1 => Fault::Kill(other),
                _ => Fault::Reset(who),
            };
            scenario = scenario.at(at(when), fault);
        }
    }
    ending(scenario, 46_000)
}
