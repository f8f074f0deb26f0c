//! From one number to a scenario: each seed turns a random subset of faults on (swarm testing), so
//! that rare combinations come up and no fault hides behind a louder one.

use std::time::Duration;

use emmer_core::rng::SeededRng;

use crate::grains::GrainLoad;
use crate::net::{Direction, HostSet, Latency, NetworkModel, Transport};
use crate::scenario::{ClockModel, Fault, Profile, Scenario, Step};
use crate::store::StoreModel;
use crate::time::VirtualTime;
use crate::trace::mix;

/// Size and length of the scenarios.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swarm {
    /// The smallest cluster.
    pub hosts_min: u32,
    /// The largest cluster.
    pub hosts_max: u32,
    /// Time for which the safety phase lasts, at most.
    pub chaos_max: Duration,
    /// The parameters; none: drawn too.
    pub profile: Option<Profile>,
    /// True if there is a liveness phase.
    pub liveness: bool,
    /// Version of the meaning of seeds: see [`VERSION`].
    pub version: u32,
}

/// The newest meaning of a seed. A seed that once failed keeps the meaning under which it did.
///
/// * 1: membership alone.
/// * 2: as 1, and then, from random numbers of their own: grains in half of the seeds, every tenth
///   through bytes, and the faults of `LATER_KINDS`.
pub const VERSION: u32 = 2;

impl Default for Swarm {
    /// 3 to 16 silos, up to five minutes of faults, any profile, then a liveness phase; with the
    /// present meaning of seeds.
    fn default() -> Self {
        Self {
            hosts_min: 3,
            hosts_max: 16,
            chaos_max: Duration::from_secs(300),
            profile: None,
            liveness: true,
            version: VERSION,
        }
    }
}

impl Swarm {
    /// The scenario of `seed`.
    pub fn scenario(&self, seed: u64) -> Scenario {
        let mut rng = SeededRng::new(mix(seed, 0x5ca1_ab1e));
        let spread = u64::from(self.hosts_max.saturating_sub(self.hosts_min)) + 1;
        // Small clusters are drawn more often: most races need few silos, and small runs are many
        // runs.
        let drawn = rng.below(spread).min(rng.below(spread));
        let hosts = self.hosts_min + u32::try_from(drawn).unwrap_or(0);
        let profile = self.profile.unwrap_or_else(|| draw_profile(&mut rng));
        let mut scenario = Scenario::calm(profile, hosts, seed);
        let chaos = Duration::from_secs(30)
            + rng.duration_below(self.chaos_max.saturating_sub(Duration::from_secs(30)));
        let calm_at = VirtualTime::ZERO + chaos;
        let bound = if self.liveness { liveness_bound(&scenario) } else { Duration::ZERO };
        scenario = scenario.calm_at(calm_at, bound);
        scenario.start_within =
            *pick(&mut rng, &[Duration::from_micros(1), ms(50), ms(1_000), ms(20_000)]);
        scenario.start_hosts = if rng.chance(0.2) { 1 + index(&mut rng, hosts) } else { hosts };
        draw_environment(&mut rng, &mut scenario);
        draw_parameters(&mut rng, &mut scenario);
        draw_steps(&mut rng, &mut scenario);
        if rng.chance(0.6) {
            scenario.restart_after = Some(ms(200) + rng.duration_below(ms(10_000)));
        }
        if self.version >= 2 {
            let mut rng = SeededRng::new(mix(seed, 0x0006_7a12));
            draw_grains(&mut rng, &mut scenario);
            draw_later(&mut rng, &mut scenario);
        }
        scenario
    }
}

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn pick<'a, T>(rng: &mut SeededRng, of: &'a [T]) -> &'a T {
    &of[rng.index(of.len())]
}

fn index(rng: &mut SeededRng, below: u32) -> u32 {
    u32::try_from(rng.below(u64::from(below))).unwrap_or(0)
}

fn draw_profile(rng: &mut SeededRng) -> Profile {
    *pick(
        rng,
        &[
            Profile::Default,
            Profile::Default,
            Profile::Default,
            Profile::Fast,
            Profile::Classic,
            Profile::Orleans2026,
        ],
    )
}

/// Time that the cluster may take to be whole after the last fault, from the parameters: a whole
/// detection (with a self-health score that stretches timeouts to its worst), a refresh, the expiry
/// of votes that stood in the way, a join with its retries, twice over, because the death of one
/// silo may be what lets the next one join.
pub fn liveness_bound(scenario: &Scenario) -> Duration {
    let config = &scenario.config;
    let detection = (config.patience() + config.probe_period) * 3 + config.max_probe_timeout * 9;
    let round = detection
        + config.table_refresh_timeout
        + config.connection_liveness_window
        + config.death_vote_expiration_timeout
        + config.table_retry_max * 4
        + config.max_join_attempt_time;
    round * 2
}

fn draw_environment(rng: &mut SeededRng, scenario: &mut Scenario) {
    let mut network = NetworkModel::default();
    if rng.chance(0.3) {
        network.transport = Transport::Datagram;
    }
    if rng.chance(0.3) {
        network.latency = Latency::even(ms(1), ms(30));
    }
    if rng.chance(0.25) {
        network.latency.tail = 0.02;
        network.latency.tail_mean = *pick(rng, &[ms(20), ms(300), ms(2_000)]);
    }
    if rng.chance(0.25) {
        network.loss = *pick(rng, &[0.001, 0.01, 0.05, 0.2]);
    }
    scenario.network = network;
    let round_trip = *pick(rng, &[ms(1), ms(5), ms(20), ms(200)]);
    let mut store = StoreModel::with_round_trip(round_trip);
    if rng.chance(0.2) {
        store.latency.tail = 0.05;
        store.latency.tail_mean = *pick(rng, &[ms(50), ms(1_000)]);
    }
    if rng.chance(0.3) {
        store.unknown_applied = *pick(rng, &[0.02, 0.2]);
    }
    if rng.chance(0.3) {
        store.unknown_lost = *pick(rng, &[0.02, 0.2]);
    }
    if rng.chance(0.3) {
        store.unknown_late = *pick(rng, &[0.02, 0.2]);
    }
    if rng.chance(0.2) {
        store.unavailable = *pick(rng, &[0.01, 0.2]);
    }
    if rng.chance(0.15) {
        store.stale_reads = *pick(rng, &[0.05, 0.5]);
    }
    scenario.store = store;
    if rng.chance(0.5) {
        scenario.clocks = ClockModel {
            offset_ms_max: *pick(rng, &[0, 50, 5_000, 40_000]),
            drift_ppm_max: *pick(rng, &[0, 100, 1_000]),
        };
    }
    scenario.health_period = rng.chance(0.7).then_some(ms(1_000));
    scenario.traffic_period = rng.chance(0.3).then_some(ms(500));
}

/// Parameters at which rare paths become frequent: votes that expire soon, rows that are cleaned up
/// soon, short logs of deltas, narrow trees.
fn draw_parameters(rng: &mut SeededRng, scenario: &mut Scenario) {
    let config = &mut scenario.config;
    if rng.chance(0.3) {
        config.death_vote_expiration_timeout =
            config.patience() + *pick(rng, &[ms(2_000), ms(10_000), ms(40_000)]);
    }
    if rng.chance(0.4) {
        config.defunct_silo_cleanup_period = *pick(rng, &[ms(2_000), ms(15_000)]);
        config.defunct_silo_expiration = *pick(rng, &[ms(1), ms(10_000), ms(60_000)]);
        config.max_defunct_silo_entries = *pick(rng, &[1, 3, 100]);
    }
    if rng.chance(0.3) {
        config.delta_log_max = *pick(rng, &[1, 3]);
        config.fan_out = *pick(rng, &[2, 3]);
    }
    if rng.chance(0.2) {
        config.table_refresh_timeout = *pick(rng, &[ms(3_000), ms(20_000)]);
    }
    if rng.chance(0.2) {
        config.i_am_alive_table_publish_timeout = *pick(rng, &[ms(2_000), ms(10_000)]);
    }
}

/// Grains that are called, in half of the seeds; and in every tenth the bytes of the messages.
fn draw_grains(rng: &mut SeededRng, scenario: &mut Scenario) {
    scenario.through_bytes = rng.chance(0.1);
    if rng.chance(0.5) {
        return;
    }
    // The directory counts on the order of one connection.
    scenario.network.transport = Transport::Stream;
    scenario.grains = Some(GrainLoad {
        grains: *pick(rng, &[3, 10, 30]),
        call_every: *pick(rng, &[ms(400), ms(1_500), ms(5_000)]),
        burst: *pick(rng, &[1, 3]),
        suspend_max: *pick(rng, &[ms(5), ms(1_000), ms(8_000)]),
        idle_max: *pick(rng, &[ms(50), ms(3_000), ms(30_000)]),
        move_percent: *pick(rng, &[0, 5, 30]),
        directory: emmer_directory::Config {
            points_per_silo: *pick(rng, &[1, 4, 32]),
            report_batch_max: *pick(rng, &[1, 4_096]),
            ..emmer_directory::Config::default()
        },
    });
}

/// Kinds of faults that a seed turns on.
const KINDS: [fn(&mut SeededRng, u32) -> Fault; 14] = [
    |rng, n| Fault::Kill(index(rng, n)),
    |rng, n| Fault::LoseHost(index(rng, n)),
    |rng, n| Fault::Start(index(rng, n)),
    |rng, n| Fault::Leave(index(rng, n)),
    |rng, n| Fault::Stop(index(rng, n)),
    |rng, n| Fault::Pause(index(rng, n)),
    |rng, n| Fault::Slow {
        host: index(rng, n),
        block: *pick(rng, &[ms(128), ms(512), ms(2_048), ms(8_192)]),
        run: *pick(rng, &[ms(1), ms(64), ms(1_024), ms(4_096)]),
    },
    |rng, n| Fault::StepClock {
        host: index(rng, n),
        ms: *pick(rng, &[-3_600_000, -10_000, 200, 90_000, 3_600_000]),
    },
    |rng, n| Fault::Cut {
        inside: some_hosts(rng, n),
        direction: *pick(rng, &[Direction::Both, Direction::Both, Direction::In, Direction::Out]),
        flip: rng.chance(0.3).then(|| *pick(rng, &[ms(300), ms(4_000), ms(20_000)])),
    },
    |rng, n| {
        let from = index(rng, n);
        Fault::BreakLink { from, to: (from + 1 + index(rng, n - 1)) % n }
    },
    |rng, n| Fault::Lossy {
        host: index(rng, n),
        loss_in: *pick(rng, &[0.0, 0.1, 0.8, 1.0]),
        loss_out: *pick(rng, &[0.0, 0.1, 0.8, 1.0]),
    },
    |rng, n| Fault::Delay { host: index(rng, n), extra: *pick(rng, &[ms(20), ms(250), ms(3_000)]) },
    |_, _| Fault::StoreOutage,
    |rng, n| Fault::StoreCut(some_hosts(rng, n)),
];

/// The kinds of faults that came with the second meaning of seeds.
const LATER_KINDS: [fn(&mut SeededRng, u32) -> Fault; 6] = [
    |rng, n| Fault::Suspend { host: index(rng, n), clock_stops: false },
    |rng, n| Fault::Refuse(index(rng, n)),
    |rng, n| Fault::Reset(index(rng, n)),
    |rng, n| Fault::Pause(index(rng, n)),
    |rng, n| Fault::LoseHost(index(rng, n)),
    |rng, n| Fault::KillUnread(index(rng, n)),
];

/// Number of silos above which several faults always come at once.
const MANY_SILOS: u32 = 64;

/// Faults that came with the second meaning of seeds.
fn draw_later(rng: &mut SeededRng, scenario: &mut Scenario) {
    if rng.chance(0.15) {
        scenario.network.duplicates = *pick(rng, &[0.01, 0.2]);
    }
    if rng.chance(0.1) {
        scenario.store.never_answered = *pick(rng, &[0.01, 0.1]);
    }
    if rng.chance(0.1) {
        scenario.store.minute_late = *pick(rng, &[0.01, 0.1]);
    }
    let calm_at = scenario.calm_at;
    let span = calm_at.since(VirtualTime::ZERO);
    let enabled: Vec<usize> = (0..3).filter(|_| rng.chance(0.3)).collect();
    if !enabled.is_empty() {
        for _ in 0..1 + rng.index(8) {
            let fault = LATER_KINDS[*pick(rng, &enabled)](rng, scenario.hosts);
            let at = VirtualTime::ZERO + rng.duration_below(span);
            let length = *pick(rng, &[ms(3_000), ms(30_000)]);
            let until = (at + rng.duration_below(length)).min(calm_at);
            scenario.steps.push(Step { at, until, fault });
        }
    }
    // Several at once.
    if scenario.hosts > MANY_SILOS || rng.chance(0.1) {
        let at = VirtualTime::ZERO + rng.duration_below(span);
        for _ in 0..2 + rng.index(6) {
            let kind = rng.index(LATER_KINDS.len());
            let fault = LATER_KINDS[kind](rng, scenario.hosts);
            let at = at + rng.duration_below(ms(500));
            let until = (at + rng.duration_below(ms(20_000))).min(calm_at);
            scenario.steps.push(Step { at: at.min(calm_at), until, fault });
        }
    }
    if rng.chance(0.03) {
        let at = VirtualTime::ZERO + rng.duration_below(span);
        let commits = 1 + index(rng, 3);
        let fault =
            if rng.chance(0.4) { Fault::StoreEmptied } else { Fault::StoreForgets(commits) };
        scenario.steps.push(Step { at, until: at, fault });
        scenario.restart_after.get_or_insert(ms(5_000));
    }
}

/// One host, or up to half of them.
fn some_hosts(rng: &mut SeededRng, hosts: u32) -> HostSet {
    let count = if rng.chance(0.5) { 1 } else { 1 + index(rng, hosts.div_ceil(2)) };
    (0..count).map(|_| index(rng, hosts)).collect()
}

fn draw_steps(rng: &mut SeededRng, scenario: &mut Scenario) {
    let enabled: Vec<usize> = (0..KINDS.len()).filter(|_| rng.chance(0.35)).collect();
    let calm_at = scenario.calm_at;
    let span = calm_at.since(VirtualTime::ZERO);
    if !enabled.is_empty() {
        let count = 1 + rng.index(2 * scenario.hosts.min(16) as usize);
        for _ in 0..count {
            let fault = KINDS[*pick(rng, &enabled)](rng, scenario.hosts);
            let at = VirtualTime::ZERO + rng.duration_below(span);
            let length = *pick(rng, &[ms(500), ms(5_000), ms(30_000), ms(200_000)]);
            let until = (at + rng.duration_below(length)).min(calm_at);
            scenario.steps.push(Step { at, until, fault });
        }
    }
    // Now and then the classics: all silos die and start again; two processes race for one
    // endpoint.
    if rng.chance(0.1) {
        let at = VirtualTime::ZERO + rng.duration_below(span);
        for host in 0..scenario.hosts {
            scenario.steps.push(Step { at, until: at, fault: Fault::Kill(host) });
            let back = (at + ms(100) + rng.duration_below(ms(20_000))).min(calm_at);
            scenario.steps.push(Step { at: back, until: back, fault: Fault::Start(host) });
        }
    }
    if rng.chance(0.1) {
        let host = index(rng, scenario.hosts);
        let at = VirtualTime::ZERO + rng.duration_below(span);
        for _ in 0..2 {
            scenario.steps.push(Step { at, until: at, fault: Fault::Start(host) });
        }
    }
}
