//! Short scenarios after which the cluster is whole soon: many silos crash and come back on their
//! addresses; a silo is lost while links are broken. The bounds are a user's, far below the minute
//! and a half after which rows are stale.

use emmer_core::rng::SeededRng;
use emmer_sim::net::Latency;
use emmer_sim::store::StoreModel;
use emmer_sim::{Fault, Profile, Scenario};

use crate::focus::{Focus, at, between, host, ms, one_of};

/// The situations of this file.
pub(crate) const ALL: [Focus; 2] = [("back", back), ("amid", amid)];

/// A cluster on a quick network, with a reliable store, in which only the asked events happen.
fn quick(seed: u64, salt: u64, hosts: (u64, u64)) -> (SeededRng, Scenario) {
    let mut rng = SeededRng::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt);
    let hosts = u32::try_from(between(&mut rng, hosts.0, hosts.1 + 1)).unwrap_or(3);
    let profile = one_of(&mut rng, &[Profile::Default, Profile::Fast]);
    let mut scenario = Scenario::calm(profile, hosts, seed);
    scenario.start_within = ms(500);
    scenario.network.latency = Latency::even(ms(1), ms(one_of(&mut rng, &[1, 6])));
    scenario.store = StoreModel::with_round_trip(ms(one_of(&mut rng, &[1, 5, 30])));
    scenario.restart_after = None;
    (rng, scenario)
}

/// Most silos crash, or all, and come back one after the other.
fn back(seed: u64) -> Scenario {
    let (mut rng, mut scenario) = quick(seed, 61, (3, 14));
    let mut order: Vec<u32> = (0..scenario.hosts).collect();
    for i in 0..order.len() {
        order.swap(i, rng.index(scenario.hosts as usize));
    }
    order.truncate(order.len() - rng.index(1 + order.len() / 4));
    let pause = one_of(&mut rng, &[1, 5, 50, 1_000, 3_000]);
    let together = rng.chance(0.5);
    let mut when = between(&mut rng, 8_000, 20_000);
    for host in &order {
        scenario = scenario.at(at(when), Fault::Kill(*host));
        when += if together { 0 } else { rng.below(pause) };
    }
    when += 1 + rng.below(2 * pause);
    for host in &order {
        scenario = scenario.at(at(when), Fault::Start(*host));
        when += rng.below(pause);
    }
    scenario.calm_at(at(when), ms(12_000))
}

/// Some links between pairs of silos are broken, for less than the patience of any monitor.
/// Meanwhile a silo or a host dies.
fn amid(seed: u64) -> Scenario {
    let (mut rng, mut scenario) = quick(seed, 62, (5, 8));
    let mut when = between(&mut rng, 8_000, 12_000);
    let lost = host(&mut rng, scenario.hosts);
    let death = rng.index(4);
    for n in 0..4 {
        if n == death {
            let fault = if rng.chance(0.5) { Fault::Kill(lost) } else { Fault::LoseHost(lost) };
            scenario = scenario.during(at(when), at(600_000), fault);
        }
        let (from, to) = (host(&mut rng, scenario.hosts), host(&mut rng, scenario.hosts));
        let until = when + between(&mut rng, 300, 4_000);
        if from != to {
            scenario = scenario.during(at(when), at(until), Fault::BreakLink { from, to });
            if rng.chance(0.5) {
                scenario =
                    scenario.during(at(when), at(until), Fault::BreakLink { from: to, to: from });
            }
        }
        when = between(&mut rng, when, until + 1);
    }
    scenario.calm_at(at(when + 4_000), ms(15_000))
}
