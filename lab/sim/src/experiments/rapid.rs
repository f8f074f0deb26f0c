//! Rapid's three faults (USENIX ATC 2018, section 7): ten of a thousand crash; ten lose everything
//! that comes in, 20 s on and 20 s off; ten lose 80 % of what goes in and out. Exactly the ten
//! should be removed.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Options, settle, world};
use crate::net::{Direction, HostSet};
use crate::scenario::{Fault, Profile, Scenario, Step};
use crate::time::VirtualTime;
use emmer_report::{Cell, Goal, Report};

/// How long is watched.
const WATCH: Duration = Duration::from_secs(300);

/// The faults, and how soon the ten should be gone.
const FAULTS: [(&str, f64); 3] =
    [("crash", 2.0), ("one-way flip-flop 20/20 s", 10.0), ("80 % loss", 10.0)];

pub(super) fn run(options: &Options) -> Report {
    let silos = options.silos_or(1_000, 60);
    let faulty = (silos / 100).max(2);
    let columns = [
        "profile",
        "fault",
        "seed",
        "silos",
        "faulty",
        "removed of them",
        "first s",
        "last s",
        "others removed",
        "versions",
    ];
    let title = format!(
        "Rapid's three faults: {faulty} of {silos} silos, watched for 300 s (emmer-lab sim rapid)"
    );
    let mut report = Report::new("rapid", title, &columns);
    for profile in options.profiles_or(&[Profile::Default, Profile::Fast, Profile::Classic]) {
        for (fault, goal) in FAULTS {
            for seed in 1..=options.seeds_or(1, 1) {
                one(
                    &mut report,
                    Scenario::calm(profile, silos, seed.into()),
                    profile,
                    faulty,
                    fault,
                    goal,
                );
            }
        }
    }
    report
}

fn one(
    report: &mut Report,
    scenario: Scenario,
    profile: Profile,
    faulty: u32,
    name: &'static str,
    goal: f64,
) {
    let (silos, seed) = (scenario.hosts, scenario.seed);
    let mut world = world(scenario);
    if !settle(&mut world, Duration::from_secs(30), Duration::from_secs(1_200)) {
        return;
    }
    world.reset_measures();
    let version = world.store().table.version().number;
    let (at, until) = (world.now(), VirtualTime::MAX);
    let hosts: HostSet = (0..faulty).map(|n| n * (silos / faulty)).collect();
    let numbers = hosts.iter().filter_map(|host| world.running_on(host));
    let victims: BTreeSet<_> =
        numbers.map(|number| world.processes()[number as usize].address).collect();
    for host in hosts.iter() {
        let fault = match name {
            "crash" => Fault::Kill(host),
            "80 % loss" => Fault::Lossy { host, loss_in: 0.8, loss_out: 0.8 },
            _ => Fault::Cut {
                inside: HostSet::from_iter([host]),
                direction: Direction::In,
                flip: Some(Duration::from_secs(20)),
            },
        };
        world.inject(Step { at, until, fault });
    }
    let all_gone = |w: &crate::World| victims.iter().all(|v| w.measures().death_of(v).is_some());
    world.run_while(at + WATCH, Duration::from_millis(100), all_gone);
    // Then some time more, in which nobody else may go.
    let more = world.now() + Duration::from_secs(30);
    world.run_until(more);
    let deaths = &world.measures().deaths;
    let mut times: Vec<f64> = deaths
        .iter()
        .filter(|death| victims.contains(&death.silo))
        .map(|death| death.at.since(at).as_secs_f64())
        .collect();
    times.sort_by(f64::total_cmp);
    let others = deaths.len() - times.len();
    let last = (times.len() == victims.len()).then(|| times.last().copied()).flatten();
    let versions = world.store().table.version().number - version;
    if profile == Profile::Default {
        report.goals.push(Goal::at_most(format!("default, {name}: all removed, s"), last, goal));
        #[expect(clippy::cast_precision_loss, reason = "a few")]
        report.goals.push(Goal::at_most(
            format!("default, {name}: others removed"),
            others as f64,
            0.0,
        ));
        #[expect(clippy::cast_precision_loss, reason = "a few")]
        report.goals.push(Goal::at_most(
            format!("default, {name}: versions"),
            versions as f64,
            2.0,
        ));
    }
    report.push(vec![
        profile.name().into(),
        name.into(),
        seed.into(),
        silos.into(),
        victims.len().into(),
        times.len().into(),
        Cell::number(times.first().copied()),
        Cell::number(last),
        others.into(),
        versions.into(),
    ]);
}
