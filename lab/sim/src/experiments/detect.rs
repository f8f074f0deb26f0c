//! Crash to Dead: one silo at a time fails in one of five ways; how long until its death is
//! committed?

use std::time::Duration;

use super::{Options, Times, per, settle, view_lag_ms, world};
use crate::net::{Direction, HostSet};
use crate::scenario::{Fault, Profile, Scenario, Step};
use crate::time::VirtualTime;
use crate::world::World;
use emmer_report::{Cell, Goal, Report};

/// The ways to fail.
const WAYS: [(&str, bool); 5] = [
    ("killed, host up", false),
    ("killed, bytes unread", false),
    ("host lost", true),
    ("partitioned", true),
    ("frozen", true),
];

/// Time that a detection may take before it is given up.
const LIMIT: Duration = Duration::from_secs(300);

fn fault(way: &str, host: u32) -> Fault {
    match way {
        "killed, host up" => Fault::Kill(host),
        "killed, bytes unread" => Fault::KillUnread(host),
        "host lost" => Fault::LoseHost(host),
        "frozen" => Fault::Pause(host),
        _ => Fault::Cut {
            inside: HostSet::from_iter([host]),
            direction: Direction::Both,
            flip: None,
        },
    }
}

/// Measurements of one world.
#[derive(Default)]
struct Seen {
    times: Times,
    undetected: usize,
    wrong: usize,
    commits: u64,
}

/// Fails `trials` silos one after the other.
fn fail_some(world: &mut World, way: &str, trials: u32, gap: Duration, seen: &mut Seen) {
    let hosts = world.scenario().hosts;
    let commits = world.store().stats.commits;
    let deaths = world.measures().deaths.len();
    let mut tried = 0;
    // Every third host, so that neighbours on no ring fail together.
    for host in (0..hosts).step_by(3).take(trials as usize) {
        let Some(number) = world.running_on(host) else { continue };
        let silo = world.processes()[number as usize].address;
        let at = world.now() + Duration::from_micros(u64::from(host) * 7_919 % 1_000_000);
        world.inject(Step { at, until: VirtualTime::MAX, fault: fault(way, host) });
        tried += 1;
        world.run_while(at + LIMIT, Duration::from_millis(50), |w| {
            w.measures().death_of(&silo).is_some()
        });
        match world.measures().death_of(&silo) {
            Some(died) => seen.times.push(died.since(at)),
            None => seen.undetected += 1,
        }
        let now = world.now();
        world.run_until(now + gap);
    }
    seen.commits += world.store().stats.commits - commits;
    seen.wrong += (world.measures().deaths.len() - deaths).saturating_sub(tried);
}

/// Costs of the quiet cluster: probes and bytes for each silo and second.
fn quiet(profile: Profile, silos: u32) -> (f64, f64) {
    let mut scenario = Scenario::calm(profile, silos, 1);
    scenario.measure_bytes = true;
    let mut world = world(scenario);
    settle(&mut world, Duration::from_secs(20), Duration::from_secs(900));
    world.reset_measures();
    let now = world.now();
    world.run_until(now + Duration::from_secs(60));
    let silo_seconds = u64::from(silos) * 60;
    (
        per(world.measures().probes_sent, silo_seconds),
        per(world.measures().bytes_delivered, silo_seconds),
    )
}

pub(super) fn run(options: &Options) -> Report {
    let silos = options.silos_or(1_000, 60);
    let seeds = options.seeds_or(2, 1);
    let trials = if options.quick { 6 } else { 25 };
    let title = format!(
        "Crash to Dead, {silos} silos, {seeds} seeds of {trials} crashes each, store round trip 5 \
         ms (emmer-lab sim detect)"
    );
    let columns = [
        "profile",
        "fault",
        "trials",
        "p50 s",
        "p90 s",
        "p99 s",
        "max s",
        "undetected",
        "others killed",
        "commits per death",
        "view lag p99 ms",
        "probes/s",
        "bytes/s",
    ];
    let mut report = Report::new("detect", title, &columns);
    for profile in options.profiles_or(&Profile::ALL) {
        // The load per silo does not depend on how many there are, as soon as there are more than
        // it probes.
        let (probes, bytes) = quiet(profile, silos.min(200));
        report.goals.push(Goal::at_most(format!("{profile}: probes/s per silo"), probes, 10.0));
        report.goals.push(Goal::at_most(
            format!("{profile}: probing bytes/s per silo"),
            bytes,
            2_048.0,
        ));
        for (way, silent) in WAYS {
            let mut seen = Seen::default();
            let mut lag: Option<f64> = None;
            for seed in 0..u64::from(seeds) {
                let mut scenario = Scenario::calm(profile, silos, seed);
                // Traffic that the original's connection liveness check goes by.
                scenario.traffic_period =
                    (profile == Profile::Orleans2026).then_some(Duration::from_secs(5));
                let mut world = world(scenario);
                world.keep_view_lags();
                if !settle(&mut world, Duration::from_secs(30), Duration::from_secs(900)) {
                    continue;
                }
                world.reset_measures();
                fail_some(&mut world, way, trials, Duration::from_secs(2), &mut seen);
                let worse = |lag: f64, other: Option<f64>| Some(other.map_or(lag, |o| o.max(lag)));
                lag = view_lag_ms(&world, 0.99).map_or(lag, |ms| worse(ms, lag));
            }
            goals(&mut report, profile, silent, way, &seen, lag);
            let deaths = seen.times.len() as u64;
            report.push(vec![
                profile.name().into(),
                way.into(),
                seen.times.len().into(),
                seen.times.cell(0.5),
                seen.times.cell(0.9),
                seen.times.cell(0.99),
                seen.times.cell(1.0),
                seen.undetected.into(),
                seen.wrong.into(),
                Cell::Number(per(seen.commits, deaths), 2),
                lag.map_or(Cell::Nothing, |ms| Cell::Number(ms, 1)),
                Cell::Number(probes, 1),
                Cell::Number(bytes, 0),
            ]);
        }
    }
    report
}

fn goals(
    report: &mut Report,
    profile: Profile,
    silent: bool,
    way: &str,
    seen: &Seen,
    lag: Option<f64>,
) {
    let (p50, p99) = match (profile, silent) {
        (Profile::Default | Profile::Fast, false) => (0.050, 0.150),
        (Profile::Default, true) => (4.5, 5.0),
        (Profile::Fast, true) => (1.2, 1.6),
        _ => return,
    };
    report.goals.push(Goal::at_most(format!("{profile}, {way}: p50 s"), seen.times.at(0.5), p50));
    report.goals.push(Goal::at_most(format!("{profile}, {way}: p99 s"), seen.times.at(0.99), p99));
    let per_death = per(seen.commits, seen.times.len() as u64);
    report.goals.push(Goal::at_most(
        format!("{profile}, {way}: commits per death"),
        per_death,
        2.0,
    ));
    report.goals.push(Goal::at_most(
        format!("{profile}, {way}: view everywhere, p99 ms"),
        lag,
        100.0,
    ));
}
