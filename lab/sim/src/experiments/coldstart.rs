//! All silos start within one second on a store with a round trip of 20 ms. When are all Active,
//! when do all have the same view, and what did it cost the store?

use std::time::{Duration, Instant};

use super::{Options, per, view_lag_ms, world};
use crate::scenario::{Profile, Scenario};
use crate::store::StoreModel;
use crate::time::VirtualTime;
use crate::world::World;
use emmer_report::{Cell, Goal, Report};

pub(super) fn run(options: &Options) -> Report {
    let sizes: Vec<u32> = match (options.silos, options.quick) {
        (0, true) => vec![10, 50],
        (0, false) => vec![10, 50, 200, 1_000, 5_000],
        (silos, _) => vec![silos],
    };
    let columns = [
        "profile",
        "silos",
        "all active s",
        "same view s",
        "versions",
        "commits tried",
        "commits lost",
        "commits per join",
        "rows read per join",
        "view lag p99 ms",
        "events",
        "wall s",
        "events/s",
    ];
    let title = "Cold start: all silos start within 1 s, store round trip 20 ms; seconds after the \
                 last start (emmer-lab sim coldstart)";
    let mut report = Report::new("coldstart", title, &columns);
    for profile in options.profiles_or(&[Profile::Default, Profile::Classic, Profile::Orleans2026])
    {
        for &silos in &sizes {
            // Silos that each write for themselves and send everything to all: minutes of virtual
            // time take the simulator hours.
            let one_by_one = matches!(profile, Profile::Classic | Profile::Orleans2026);
            if one_by_one && silos > 200 && options.silos == 0 {
                continue;
            }
            one(&mut report, profile, silos, options);
        }
    }
    report
}

/// Interval at which a long run says how far it is.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);

/// One start, as a row of the table.
fn one(report: &mut Report, profile: Profile, silos: u32, options: &Options) {
    let wall = Instant::now();
    let mut scenario = Scenario::calm(profile, silos, u64::from(options.seeds));
    scenario.store = StoreModel::with_round_trip(Duration::from_millis(20));
    let mut world = world(scenario);
    world.keep_view_lags();
    let limit = VirtualTime::from_secs(1_200);
    // Whole at some moment is not enough: all silos must see it.
    let mut told = Instant::now();
    let everybody = |w: &World| {
        if told.elapsed() >= PROGRESS_EVERY {
            told = Instant::now();
            let (now, active) = (w.now().as_secs_f64(), w.measures().activations.len());
            let (version, events) = (w.store().table.version().number, w.trace().events());
            eprintln!(
                "coldstart, {silos} silos: {now:.2} s, {active} became Active, version {version}, \
                 {events} events"
            );
        }
        w.processes().len() == silos as usize && w.is_whole()
    };
    let whole = world.run_while(limit, Duration::from_millis(10), everybody);
    let Some(last_start) = world.processes().iter().map(|p| p.started).max() else { return };
    let after = |at: VirtualTime| at.since(last_start).as_secs_f64();
    let activations = &world.measures().activations;
    let active = (activations.len() >= silos as usize)
        .then(|| activations.last().map(|(at, _)| after(*at)))
        .flatten();
    let whole = whole.map(after);
    let stats = world.store().stats;
    let joins = u64::from(silos);
    let lag = view_lag_ms(&world, 0.99);
    let secs = wall.elapsed().as_secs_f64();
    let events = world.trace().events();
    let (commits, rows) = (per(stats.commits_tried, joins), per(stats.rows_read, joins));
    if matches!(profile, Profile::Default | Profile::Fast) && silos >= 1_000 {
        let bound = if silos <= 1_000 { 2.0 } else { 4.0 };
        report.goals.push(Goal::at_most(
            format!("{profile}, {silos} silos: same view everywhere, s"),
            whole,
            bound,
        ));
        report.goals.push(Goal::at_most(
            format!("{profile}, {silos} silos: commits per join"),
            commits,
            0.1,
        ));
        report.goals.push(Goal::at_most(
            format!("{profile}, {silos} silos: rows read per join"),
            rows,
            12.0,
        ));
    }
    report.push(vec![
        profile.name().into(),
        silos.into(),
        Cell::number(active),
        Cell::number(whole),
        world.store().table.version().number.into(),
        stats.commits_tried.into(),
        stats.commits_lost.into(),
        Cell::number(commits),
        Cell::Number(rows, 1),
        lag.map_or(Cell::Nothing, |ms| Cell::Number(ms, 1)),
        events.into(),
        Cell::Number(secs, 2),
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        Cell::Number(events as f64 / secs.max(1e-9), 0),
    ]);
}
