//! The store is away for ten minutes; meanwhile some silos die and some want to join.

use std::time::Duration;

use super::{Options, settle, world};
use crate::scenario::{Fault, Profile, Scenario, Step};
use crate::time::VirtualTime;
use emmer_report::{Cell, Goal, Report};

/// How long the store is away.
const OUTAGE: Duration = Duration::from_secs(600);

pub(super) fn run(options: &Options) -> Report {
    let silos = options.silos_or(200, 20);
    let columns = [
        "profile",
        "silos",
        "deaths during",
        "wrong deaths",
        "all dead after s",
        "all joined after s",
        "whole after s",
        "commits after",
    ];
    let title = format!(
        "The store is away for 10 min, {silos} silos; a twentieth dies and as many want to join \
         meanwhile (emmer-lab sim outage)"
    );
    let mut report = Report::new("outage", title, &columns);
    for profile in options.profiles_or(&[Profile::Default, Profile::Classic, Profile::Orleans2026])
    {
        one(&mut report, profile, silos);
    }
    report
}

fn one(report: &mut Report, profile: Profile, silos: u32) {
    let few = (silos / 20).max(1);
    let mut scenario = Scenario::calm(profile, silos + few, 1);
    scenario.start_hosts = silos;
    // Whoever gives its join up is started again.
    scenario.restart_after = None;
    let mut world = world(scenario);
    if !settle(&mut world, Duration::from_secs(30), Duration::from_secs(900)) {
        return;
    }
    world.reset_measures();
    let from = world.now();
    let until = from + OUTAGE;
    world.inject(Step { at: from, until, fault: Fault::StoreOutage });
    let mut victims = Vec::new();
    for n in 0..few {
        let host = n * 7 % silos;
        let at = from + Duration::from_secs(60) + Duration::from_secs(10) * n;
        victims.extend(
            world.running_on(host).map(|number| world.processes()[number as usize].address),
        );
        world.inject(Step { at, until: at, fault: Fault::Kill(host) });
        // Late enough that max_join_attempt_time (5 min) has not passed when the store is back.
        let at = until - Duration::from_secs(120);
        world.inject(Step { at, until: at, fault: Fault::Start(silos + n) });
    }
    world.run_until(until);
    let during = world.measures().deaths.len();
    let commits = world.store().stats.commits_tried;
    let expected = silos as usize;
    let all = |w: &crate::World| {
        w.is_whole() && w.processes().iter().filter(|p| p.is_running()).count() == expected
    };
    let whole = world.run_while(until + Duration::from_secs(600), Duration::from_millis(50), all);
    let after = |at: VirtualTime| at.since(until).as_secs_f64();
    let died: Vec<VirtualTime> =
        victims.iter().filter_map(|v| world.measures().death_of(v)).collect();
    let dead =
        (died.len() == victims.len()).then(|| died.iter().max().map(|at| after(*at))).flatten();
    let joins: Vec<VirtualTime> = world.measures().activations.iter().map(|(at, _)| *at).collect();
    let joined =
        (joins.len() >= few as usize).then(|| joins.iter().max().map(|at| after(*at))).flatten();
    let wrong = world.measures().wrong_deaths();
    if profile == Profile::Default {
        #[expect(clippy::cast_precision_loss, reason = "a few deaths")]
        report.goals.push(Goal::at_most("default: wrong deaths", wrong as f64, 0.0));
        report.goals.push(Goal::at_most("default: deaths caught up with, s", dead, 5.0));
        report.goals.push(Goal::at_most("default: joins caught up with, s", joined, 5.0));
    }
    report.push(vec![
        profile.name().into(),
        silos.into(),
        during.into(),
        wrong.into(),
        Cell::number(dead),
        Cell::number(joined),
        Cell::number(whole.map(after)),
        (world.store().stats.commits_tried - commits).into(),
    ]);
}
