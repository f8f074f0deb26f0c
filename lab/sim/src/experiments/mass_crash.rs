//! A tenth of the cluster crashes at the same moment, loudly and silently.

use std::time::{Duration, Instant};

use super::{Options, Times, settle, view_lag_ms, world};
use crate::scenario::{Fault, Profile, Scenario, Step};
use crate::time::VirtualTime;
use emmer_report::{Cell, Goal, Report};

pub(super) fn run(options: &Options) -> Report {
    let sizes: Vec<u32> = match (options.silos, options.quick) {
        (0, true) => vec![60],
        (0, false) => vec![200, 1_000, 5_000],
        (silos, _) => vec![silos],
    };
    let columns = [
        "profile",
        "silos",
        "crashed",
        "fault",
        "p50 s",
        "all dead s",
        "others killed",
        "commits",
        "versions",
        "view lag p99 ms",
        "KB per silo and version",
        "wall s",
    ];
    let title =
        "A tenth of the silos crashes at once, store round trip 5 ms (emmer-lab sim mass-crash)";
    let mut report = Report::new("mass-crash", title, &columns);
    for profile in options.profiles_or(&[Profile::Default, Profile::Fast, Profile::Classic]) {
        for &silos in &sizes {
            if profile == Profile::Classic && silos > 200 && options.silos == 0 {
                continue;
            }
            for silent in [false, true] {
                one(&mut report, profile, silos, silent);
            }
        }
    }
    report
}

fn one(report: &mut Report, profile: Profile, silos: u32, silent: bool) {
    let wall = Instant::now();
    let mut world = world(Scenario::calm(profile, silos, 1));
    world.keep_view_lags();
    if !settle(&mut world, Duration::from_secs(20), Duration::from_secs(900)) {
        return;
    }
    world.reset_measures();
    let version = world.store().table.version().number;
    let at = world.now();
    let mut victims = Vec::new();
    for host in (0..silos).step_by(10) {
        if let Some(number) = world.running_on(host) {
            victims.push(world.processes()[number as usize].address);
        }
        let fault = if silent { Fault::LoseHost(host) } else { Fault::Kill(host) };
        world.inject(Step { at, until: VirtualTime::MAX, fault });
    }
    world.measure_bytes(true);
    let everybody = |w: &crate::World| w.measures().deaths.len() >= victims.len() && w.is_whole();
    world.run_while(at + Duration::from_secs(300), Duration::from_millis(50), everybody);
    let mut times = Times::default();
    victims
        .iter()
        .filter_map(|v| world.measures().death_of(v))
        .for_each(|died| times.push(died.since(at)));
    let all = (times.len() == victims.len()).then(|| times.at(1.0)).flatten();
    let stats = world.store().stats;
    let versions = world.store().table.version().number - version;
    let kilobytes =
        super::per(world.measures().bytes_of_views, u64::from(silos) * versions.max(1)) / 1_024.0;
    let lag = view_lag_ms(&world, 0.99);
    if matches!(profile, Profile::Default | Profile::Fast) && silos >= 1_000 {
        let name =
            format!("{profile}, {silos} silos, {}", if silent { "silent" } else { "killed" });
        let lag_goal = if silos <= 1_000 { 100.0 } else { 250.0 };
        report.goals.push(Goal::at_most(format!("{name}: view everywhere, p99 ms"), lag, lag_goal));
        report.goals.push(Goal::at_most(
            format!("{name}: KB per silo and version"),
            kilobytes,
            20.0,
        ));
        let commits_goal = if silos <= 1_000 { 12.0 } else { 20.0 };
        #[expect(clippy::cast_precision_loss, reason = "a few commits")]
        report.goals.push(Goal::at_most(
            format!("{name}: commits"),
            stats.commits_tried as f64,
            commits_goal,
        ));
    }
    report.push(vec![
        profile.name().into(),
        silos.into(),
        victims.len().into(),
        (if silent { "host lost" } else { "killed, host up" }).into(),
        times.cell(0.5),
        Cell::number(all),
        world.measures().wrong_deaths().into(),
        stats.commits_tried.into(),
        versions.into(),
        lag.map_or(Cell::Nothing, |ms| Cell::Number(ms, 1)),
        Cell::Number(kilobytes, 2),
        Cell::Number(wall.elapsed().as_secs_f64(), 2),
    ]);
}
