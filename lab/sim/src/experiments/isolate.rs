//! The others cannot reach one silo. When may its grains be granted to others, and for how long
//! after that could it still start or resume a turn (invariant I8)? The answer must be: not at all.

use std::time::Duration;

use super::{Options, Times, settle, world};
use crate::net::{Direction, HostSet};
use crate::scenario::{Fault, Profile, Scenario, Step};
use crate::world::World;
use emmer_report::{Cell, Goal, Report};

/// Time that the silo stays unreachable: longer than any death takes.
const LASTS: Duration = Duration::from_secs(20);

/// Time for which a run continues after the silo is reachable again: it learns of its death.
const AFTERWARDS: Duration = Duration::from_secs(5);

/// Interval at which the survivors are asked whether they would grant the silo's grains.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Number of silos that fail in one world, one after the other.
const PER_WORLD: u32 = 20;

/// The ways not to be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Cut from its peers; the store answers it.
    Peers,
    /// Cut from its peers and the store.
    Everything,
    /// It stands still, its sockets stay open.
    Frozen,
    /// Its machine sleeps, its clocks continue.
    Suspended,
    /// Its IO stands still nearly always, its turns run.
    Slow,
}

impl Way {
    const ALL: [Self; 5] =
        [Self::Peers, Self::Everything, Self::Frozen, Self::Suspended, Self::Slow];

    const fn name(self) -> &'static str {
        match self {
            Self::Peers => "cut from peers",
            Self::Everything => "cut from all",
            Self::Frozen => "frozen",
            Self::Suspended => "suspended",
            Self::Slow => "slow",
        }
    }

    /// Faults of `host`.
    fn faults(self, host: u32) -> Vec<Fault> {
        let inside = HostSet::from_iter([host]);
        let cut = Fault::Cut { inside: inside.clone(), direction: Direction::Both, flip: None };
        match self {
            Self::Peers => vec![cut],
            Self::Everything => vec![cut, Fault::StoreCut(inside)],
            Self::Frozen => vec![Fault::Pause(host)],
            Self::Suspended => vec![Fault::Suspend { host, clock_stops: false }],
            Self::Slow => {
                let (block, run) = (Duration::from_secs(8), Duration::from_millis(4));
                vec![Fault::Slow { host, block, run }]
            }
        }
    }
}

/// Measurements of the runs of one row.
#[derive(Default)]
struct Seen {
    runs: u32,
    overrun: Duration,
    overran: u32,
    deaths: Times,
    first: Times,
    everywhere: Times,
}

/// Returns whether any silo besides `victim`, and whether every such silo, has installed the death
/// and no longer counts it as fading.
fn granters(world: &World, victim: u32) -> (bool, bool) {
    let silo = &world.processes()[victim as usize];
    let Some(version) = silo.death_version else { return (false, false) };
    let (mut any, mut all) = (false, true);
    for (number, process) in (0u32..).zip(world.processes()) {
        let Some(machine) = process.machine.as_ref().filter(|_| number != victim) else { continue };
        let now = process.now(world.now()).mono;
        let fades =
            machine.fading().iter().any(|(dead, until)| *dead == silo.address && now < *until);
        let grants = process.installed >= version && !fades;
        any |= grants;
        all &= grants;
    }
    (any, all)
}

/// Makes one silo unreachable and waits for all consequences.
fn isolate(world: &mut World, host: u32, way: Way, seen: &mut Seen) {
    let Some(victim) = world.running_on(host) else { return };
    let at = world.now() + Duration::from_micros(u64::from(seen.runs) * 7_919 % 1_000_000);
    let until = at + LASTS;
    for fault in way.faults(host) {
        world.inject(Step { at, until, fault });
    }
    seen.runs += 1;
    if let Some(first) = world.run_while(until, LOOK_EVERY, |w| granters(w, victim).0) {
        seen.first.push(first.since(at));
    }
    if let Some(everywhere) = world.run_while(until, LOOK_EVERY, |w| granters(w, victim).1) {
        seen.everywhere.push(everywhere.since(at));
    }
    if let Some(died) = world.processes()[victim as usize].dead_at {
        seen.deaths.push(died.since(at));
    }
    world.run_until(until + AFTERWARDS);
    if let Some(overrun) = world.measures().overruns.get(&victim).map(|o| o.until(world.now())) {
        seen.overrun = seen.overrun.max(overrun);
        seen.overran += u32::from(!overrun.is_zero());
    }
    // Its successor joins, and all is quiet again.
    settle(world, Duration::from_secs(3), Duration::from_secs(300));
}

fn row(profile: Profile, silos: u32, way: Way, runs: u32) -> Seen {
    let mut seen = Seen::default();
    for seed in 0..u64::from(runs.div_ceil(PER_WORLD)) {
        let mut scenario = Scenario::calm(profile, silos, seed);
        scenario.restart_after = Some(Duration::from_secs(1));
        scenario.measure_overruns = true;
        scenario.thorough = false;
        let mut world = world(scenario);
        if !settle(&mut world, Duration::from_secs(20), Duration::from_secs(900)) {
            continue;
        }
        for trial in 0..PER_WORLD.min(runs - seen.runs) {
            isolate(&mut world, (trial * 7 + 3) % silos, way, &mut seen);
        }
        if let Some(violation) = world.violation() {
            eprintln!("{profile}, {silos} silos, {}: {violation}", way.name());
        }
    }
    seen
}

pub(super) fn run(options: &Options) -> Report {
    let runs = options.seeds_or(200, 10);
    let sizes: Vec<u32> = match (options.silos, options.quick) {
        (0, true) => vec![5, 20],
        (0, false) => vec![5, 20, 100],
        (silos, _) => vec![silos],
    };
    let title = format!(
        "One silo that the others cannot reach for {} s, {runs} runs each: how long could it run \
         turns after one of its grains could be granted to another? (emmer-lab sim isolate)",
        LASTS.as_secs()
    );
    let columns = [
        "profile",
        "silos",
        "fault",
        "runs",
        "deaths",
        "turns too late, runs",
        "turns too late, max ms",
        "fault to death p50 s",
        "to death p99 s",
        "to first grant p50 s",
        "to grant by all p50 s",
        "to grant by all p99 s",
    ];
    let mut report = Report::new("isolate", title, &columns);
    for profile in options.profiles_or(&[Profile::Default, Profile::Fast]) {
        for &silos in &sizes {
            for way in Way::ALL {
                let seen = row(profile, silos, way, runs);
                goals(&mut report, profile, silos, way, &seen);
                report.push(vec![
                    profile.name().into(),
                    silos.into(),
                    way.name().into(),
                    seen.runs.into(),
                    seen.deaths.len().into(),
                    seen.overran.into(),
                    Cell::Number(seen.overrun.as_secs_f64() * 1_000.0, 1),
                    seen.deaths.cell(0.5),
                    seen.deaths.cell(0.99),
                    seen.first.cell(0.5),
                    seen.everywhere.cell(0.5),
                    seen.everywhere.cell(0.99),
                ]);
            }
        }
    }
    report
}

fn goals(report: &mut Report, profile: Profile, silos: u32, way: Way, seen: &Seen) {
    let name = format!("{profile}, {silos} silos, {}", way.name());
    let late = seen.overrun.as_secs_f64() * 1_000.0;
    report.goals.push(Goal::at_most(format!("{name}: turns too late, ms"), late, 0.0));
    let bound = match profile {
        Profile::Default => 5.5,
        Profile::Fast => 2.0,
        _ => return,
    };
    if way != Way::Slow {
        let p99 = seen.everywhere.at(0.99);
        report.goals.push(Goal::at_most(
            format!("{name}: fault to grant by all, p99 s"),
            p99,
            bound,
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_is_about_the_host_that_it_is_given_and_lasts() {
        for way in Way::ALL {
            for fault in way.faults(3) {
                assert_eq!(fault.host_max(), 3, "{}", way.name());
                assert!(fault.lasts());
            }
        }
    }
}
