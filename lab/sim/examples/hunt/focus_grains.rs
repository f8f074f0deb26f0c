//! Short scenarios around the directory: ranges that move while grains are called every few
//! milliseconds. Everything in them follows from the seed.

use std::time::Duration;

use emmer_core::rng::SeededRng;
use emmer_sim::grains::GrainLoad;
use emmer_sim::net::{Direction, HostSet, Latency, Transport};
use emmer_sim::store::StoreModel;
use emmer_sim::{Fault, Profile, Scenario, VirtualTime};

use crate::focus::Focus;

/// Every situation.
pub(crate) const ALL: [Focus; 7] = [
    ("grains", grains),
    ("moves", moves),
    ("deaths", deaths),
    ("friends", friends),
    ("successions", successions),
    ("lists", lists),
    ("late", late),
];

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn at(millis: u64) -> VirtualTime {
    VirtualTime::from_millis(millis)
}

fn between(rng: &mut SeededRng, from: u64, to: u64) -> u64 {
    from + rng.below(to - from)
}

fn host(rng: &mut SeededRng, hosts: u32) -> u32 {
    u32::try_from(rng.below(u64::from(hosts))).unwrap_or(0)
}

fn one_of<T: Copy>(rng: &mut SeededRng, of: &[T]) -> T {
    of[rng.index(of.len())]
}

/// A small cluster whose silos call few grains often.
fn base(seed: u64, salt: u64, hosts_max: u64) -> (SeededRng, Scenario) {
    let mut rng = SeededRng::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (salt << 8));
    let hosts = u32::try_from(between(&mut rng, 3, hosts_max + 1)).unwrap_or(3);
    let profile = one_of(&mut rng, &[Profile::Default, Profile::Fast, Profile::Fast]);
    let mut scenario = Scenario::calm(profile, hosts, seed);
    scenario.start_within = ms(one_of(&mut rng, &[1, 500]));
    let slow = one_of(&mut rng, &[1, 5, 40]);
    scenario.network.latency = Latency::even(ms(1), ms(slow + 1));
    // The directory counts on the order of one connection.
    scenario.network.transport = Transport::Stream;
    scenario.store = StoreModel::with_round_trip(ms(one_of(&mut rng, &[1, 5, 30])));
    scenario.clocks.drift_ppm_max = one_of(&mut rng, &[0, 1_000, 10_000]);
    scenario.resets_lose = true;
    scenario.grains = Some(GrainLoad {
        grains: one_of(&mut rng, &[2, 5, 12]),
        call_every: ms(one_of(&mut rng, &[20, 20, 60, 200])),
        burst: one_of(&mut rng, &[1, 3, 8]),
        suspend_max: ms(one_of(&mut rng, &[5, 1_000, 4_000])),
        idle_max: ms(one_of(&mut rng, &[20, 50, 1_000, 10_000])),
        move_percent: one_of(&mut rng, &[0, 10, 50]),
        directory: emmer_directory::Config {
            points_per_silo: one_of(&mut rng, &[1, 2, 4]),
            report_batch_max: one_of(&mut rng, &[1, 2, 4_096]),
            // Commands that are given up while their owner is not heard.
            op_timeout: ms(one_of(&mut rng, &[15_000, 15_000, 1_500])),
            ..emmer_directory::Config::default()
        },
    });
    (rng, scenario)
}

/// The faults are over at `end` milliseconds; then the cluster has to become whole, and the
/// directory to come to rest.
fn ending(scenario: Scenario, end: u64) -> Scenario {
    let bound = emmer_sim::swarm::liveness_bound(&scenario);
    scenario.calm_at(at(end), bound)
}

/// A random way in which the others do not hear these hosts, though they may run.
fn unheard(rng: &mut SeededRng, hosts: &[u32]) -> Fault {
    let inside: HostSet = hosts.iter().copied().collect();
    let direction = one_of(rng, &[Direction::Both, Direction::Both, Direction::In, Direction::Out]);
    match (hosts, rng.below(6)) {
        (&[host], 0) => Fault::Pause(host),
        (&[host], 1) => Fault::Slow { host, block: ms(4_096), run: ms(16) },
        _ => Fault::Cut { inside, direction, flip: None },
    }
}

/// Hosts of which each has a process or none, by turns.
struct Coming(Vec<bool>);

impl Coming {
    fn new(scenario: &Scenario) -> Self {
        Self((0..scenario.hosts).map(|host| host < scenario.start_hosts).collect())
    }

    /// The host's process ends, in good order or not, or a new one starts.
    fn turn(&mut self, rng: &mut SeededRng, who: u32, kills: f64) -> Fault {
        let up = &mut self.0[who as usize];
        *up = !*up;
        match *up {
            true => Fault::Start(who),
            false if rng.chance(kills) => Fault::Kill(who),
            false => Fault::Leave(who),
        }
    }
}

/// Something of everything, over links that delay and lose.
fn grains(seed: u64) -> Scenario {
    let (mut rng, mut scenario) = base(seed, 9, 6);
    let hosts = scenario.hosts;
    scenario.start_hosts = 1 + host(&mut rng, hosts);
    if rng.chance(0.2) {
        scenario.network.loss = 0.02;
    }
    if rng.chance(0.5) {
        scenario.restart_after = Some(ms(between(&mut rng, 100, 4_000)));
    }
    for _ in 0..between(&mut rng, 4, 12) {
        let from = between(&mut rng, 3_000, 25_000);
        let who = host(&mut rng, hosts);
        let fault = match rng.below(9) {
            0 | 1 => Fault::Start(who),
            2 => Fault::Kill(who),
            3 | 4 => Fault::Leave(who),
            5 => Fault::Delay { host: who, extra: ms(one_of(&mut rng, &[50, 400, 1_500])) },
            6 => Fault::Reset(who),
            _ => unheard(&mut rng, &[who]),
        };
        let until = if fault.lasts() { from + between(&mut rng, 500, 7_000) } else { from };
        scenario = scenario.during(at(from), at(until), fault);
    }
    ending(scenario, 32_000)
}

/// Silos that join and leave all the time, several at once, on links of different length.
fn moves(seed: u64) -> Scenario {
    let (mut rng, mut scenario) = base(seed, 11, 7);
    let hosts = scenario.hosts;
    scenario.start_hosts = 2 + host(&mut rng, hosts - 1);
    let kills = one_of(&mut rng, &[0.0, 0.0, 0.3]);
    let mut coming = Coming::new(&scenario);
    let mut now = 3_000;
    while now < 18_000 {
        let who = host(&mut rng, hosts);
        let fault = coming.turn(&mut rng, who, kills);
        scenario = scenario.at(at(now), fault);
        now += one_of(&mut rng, &[1, 30, 300, 1_500, 2_500]);
    }
    for _ in 0..rng.below(4) {
        let from = between(&mut rng, 3_000, 18_000);
        let extra = ms(one_of(&mut rng, &[20, 80, 300]));
        let fault = Fault::Delay { host: host(&mut rng, hosts), extra };
        scenario = scenario.during(at(from), at(from + between(&mut rng, 500, 6_000)), fault);
    }
    ending(scenario, 20_000)
}

/// Two silos that die at about the same time and may run for a while, on one side of a cut or each
/// alone; others join, leave and die meanwhile.
fn deaths(seed: u64) -> Scenario {
    let (mut rng, mut scenario) = base(seed, 12, 7);
    let hosts = scenario.hosts;
    if rng.chance(0.7) {
        settled(&mut rng, &mut scenario);
    }
    if rng.chance(0.4) {
        scenario.restart_after = Some(ms(between(&mut rng, 100, 3_000)));
    }
    let mut from = 4_000;
    for _ in 0..3 {
        let first = host(&mut rng, hosts);
        let second = host(&mut rng, hosts);
        let length = between(&mut rng, 2_500, 8_000);
        if rng.chance(0.4) && hosts > 4 {
            let fault = unheard(&mut rng, &[first, second]);
            scenario = scenario.during(at(from), at(from + length), fault);
        } else {
            for who in [first, second] {
                let start = from + one_of(&mut rng, &[0, 50, 400, 1_500]);
                let fault =
                    if rng.chance(0.2) { Fault::Kill(who) } else { unheard(&mut rng, &[who]) };
                let until = if fault.lasts() { start + length } else { start };
                scenario = scenario.during(at(start), at(until), fault);
            }
        }
        for _ in 0..rng.below(4) {
            let who = host(&mut rng, hosts);
            let when = from + between(&mut rng, 500, 7_000);
            let fault = match rng.below(5) {
                0 => Fault::Kill(who),
                1 => Fault::Leave(who),
                2 => Fault::Reset(who),
                _ => Fault::Start(who),
            };
            scenario = scenario.at(at(when), fault);
        }
        from += length + between(&mut rng, 500, 3_000);
    }
    ending(scenario, from + 1_000)
}

/// Many grains that stay in place: their registrations are checked all the time, without calls.
fn settled(rng: &mut SeededRng, scenario: &mut Scenario) {
    if let Some(load) = &mut scenario.grains {
        load.grains = one_of(rng, &[8, 20]);
        load.call_every = ms(one_of(rng, &[60, 200]));
        load.idle_max = ms(one_of(rng, &[1_000, 10_000]));
    }
}

/// A silo that only one or two others hear, which learn late of its death: they continue to ask it.
fn friends(seed: u64) -> Scenario {
    let (mut rng, mut scenario) = base(seed, 15, 6);
    let hosts = scenario.hosts;
    settled(&mut rng, &mut scenario);
    let slow = one_of(&mut rng, &[5, 40, 80]);
    scenario.network.latency = Latency::even(ms(1), ms(slow));
    if rng.chance(0.5) {
        // Fewer monitors than silos: its friend need not be one of them.
        scenario.config.num_probed_silos = 3;
        scenario.config.num_probe_rings = 1;
    }
    let mut from = 4_000;
    for _ in 0..3 {
        let victim = host(&mut rng, hosts);
        let friend = (victim + 1 + host(&mut rng, hosts - 1)) % hosts;
        let length = between(&mut rng, 2_500, 7_000);
        for other in (0..hosts).filter(|other| *other != victim && *other != friend) {
            for (from_host, to) in [(victim, other), (other, victim)] {
                let link = Fault::BreakLink { from: from_host, to };
                scenario = scenario.during(at(from), at(from + length), link);
            }
        }
        if rng.chance(0.7) {
            // The friend hears late of everything, or only from some.
            let begins = from + between(&mut rng, 500, 3_000);
            let ends = begins + between(&mut rng, 300, 3_000);
            let extra = Fault::Delay { host: friend, extra: ms(one_of(&mut rng, &[60, 200, 400])) };
            let other = (friend + 1 + host(&mut rng, hosts - 1)) % hosts;
            let fault =
                if rng.chance(0.5) { extra } else { Fault::BreakLink { from: other, to: friend } };
            scenario = scenario.during(at(begins), at(ends), fault);
        }
        for _ in 0..rng.below(3) {
            let who = host(&mut rng, hosts);
            let when = from + between(&mut rng, 500, 6_000);
            let fault = one_of(&mut rng, &[0, 1, 2]);
            let fault = match fault {
                0 => Fault::Kill(who),
                1 => Fault::Leave(who),
                _ => Fault::Start(who),
            };
            scenario = scenario.at(at(when), fault);
        }
        from += length + between(&mut rng, 500, 2_000);
    }
    ending(scenario, from + 1_000)
}

/// A second process takes the address of one that stands still, and others join while the first
/// fades.
fn successions(seed: u64) -> Scenario {
    let (mut rng, mut scenario) = base(seed, 16, 6);
    let hosts = scenario.hosts;
    settled(&mut rng, &mut scenario);
    scenario.start_hosts = 2 + host(&mut rng, hosts - 1);
    let mut from = 4_000;
    for _ in 0..3 {
        let victim = host(&mut rng, scenario.start_hosts);
        let length = between(&mut rng, 800, 5_000);
        let fault =
            if rng.chance(0.7) { Fault::Pause(victim) } else { unheard(&mut rng, &[victim]) };
        scenario = scenario.during(at(from), at(from + length), fault);
        scenario = scenario.at(at(from + rng.below(800)), Fault::Start(victim));
        for _ in 0..1 + rng.below(3) {
            let who = host(&mut rng, hosts);
            let when = from + between(&mut rng, 200, 3_000);
            let fault = match rng.below(5) {
                0 => Fault::Leave(who),
                1 => Fault::Kill(who),
                _ => Fault::Start(who),
            };
            scenario = scenario.at(at(when), fault);
        }
        from += length + between(&mut rng, 1_000, 3_000);
    }
    ending(scenario, from + 1_000)
}

/// Many grains in small batches, and connections that are lost in the middle of a list.
fn lists(seed: u64) -> Scenario {
    let (mut rng, mut scenario) = base(seed, 13, 5);
    let hosts = scenario.hosts;
    scenario.start_hosts = 2 + host(&mut rng, hosts - 1);
    if let Some(load) = &mut scenario.grains {
        load.grains = one_of(&mut rng, &[30, 80]);
        load.call_every = ms(20);
        load.idle_max = ms(one_of(&mut rng, &[1_000, 20_000]));
        load.directory.report_batch_max = one_of(&mut rng, &[1, 1, 2, 5]);
        load.directory.points_per_silo = one_of(&mut rng, &[1, 2]);
    }
    // The credit for a batch takes a while.
    let slow = one_of(&mut rng, &[10, 40, 100]);
    scenario.network.latency = Latency::even(ms(slow), ms(5));
    let kills = one_of(&mut rng, &[0.0, 0.5, 1.0]);
    let mut coming = Coming::new(&scenario);
    let mut now = 4_000;
    while now < 18_000 {
        let who = host(&mut rng, hosts);
        let fault = coming.turn(&mut rng, who, kills);
        let starts = matches!(fault, Fault::Start(_));
        scenario = scenario.at(at(now), fault);
        for _ in 0..rng.below(4) {
            // A silo that starts is Active a while later.
            let after =
                if starts { between(&mut rng, 300, 3_000) } else { between(&mut rng, 1, 1_200) };
            scenario = scenario.at(at(now + after), Fault::Reset(host(&mut rng, hosts)));
        }
        now += between(&mut rng, 200, 4_000);
    }
    ending(scenario, 21_000)
}

/// One silo to which everything comes late, also views, while others join, leave and die.
fn late(seed: u64) -> Scenario {
    let (mut rng, mut scenario) = base(seed, 14, 6);
    let hosts = scenario.hosts;
    scenario.start_hosts = 2 + host(&mut rng, hosts - 1);
    let kills = one_of(&mut rng, &[0.2, 0.6]);
    let mut coming = Coming::new(&scenario);
    let mut now = 3_500_u64;
    while now < 17_000 {
        let slow = host(&mut rng, hosts);
        let from = now.saturating_sub(rng.below(300));
        let until = from + between(&mut rng, 200, 3_000);
        let fault = match rng.below(4) {
            0 => Fault::Slow { host: slow, block: ms(one_of(&mut rng, &[100, 400])), run: ms(5) },
            1 => Fault::BreakLink { from: host(&mut rng, hosts), to: slow },
            _ => Fault::Delay { host: slow, extra: ms(one_of(&mut rng, &[30, 120, 400])) },
        };
        scenario = scenario.during(at(from), at(until), fault);
        for _ in 0..1 + rng.below(3) {
            let who = host(&mut rng, hosts);
            let fault = coming.turn(&mut rng, who, kills);
            scenario = scenario.at(at(now), fault);
            now += one_of(&mut rng, &[1, 60, 300, 900]);
        }
        now += between(&mut rng, 200, 2_500);
    }
    ending(scenario, 20_000)
}
