//! Lifeguard's grid (DSN 2018, arXiv 1707.00788): in a cluster of 128, C members block in IO for D,
//! run for I, and so on. Nobody who is not blocked should be declared dead, and nobody whose blocks
//! are short.

use std::time::Duration;

use super::{Options, settle, world};
use crate::scenario::{Fault, Profile, Scenario, Step};
use emmer_report::{Cell, Chart, Goal, Report, Series};

/// How many members are slow at once.
const SLOW: [u32; 5] = [1, 4, 8, 16, 32];
/// For how long they block, in milliseconds.
const BLOCKS_MS: [u64; 6] = [128, 512, 2_048, 8_192, 16_384, 32_768];
/// For how long they run in between, in milliseconds.
const RUNS_MS: [u64; 8] = [1, 4, 16, 64, 256, 1_024, 4_096, 16_384];
/// How long one run lasts.
const LENGTH: Duration = Duration::from_secs(120);
/// Blocks up to this long must kill nobody at all.
const HARMLESS_MS: u64 = 2_500;

pub(super) fn run(options: &Options) -> Report {
    let silos = options.silos_or(128, 64);
    let seeds = options.seeds_or(1, 1);
    let (slow, blocks, runs): (&[u32], &[u64], &[u64]) = if options.quick {
        (&[1, 16], &[512, 2_048, 8_192], &[64])
    } else {
        (&SLOW, &BLOCKS_MS, &RUNS_MS)
    };
    let columns = [
        "profile",
        "block ms",
        "runs",
        "silo-hours",
        "healthy killed",
        "runs with such",
        "healthy per 1000 silo-hours",
        "slow killed",
        "slow killed per run",
    ];
    let title = format!(
        "Lifeguard's grid: {silos} silos, {slow:?} of them slow, blocked for D and running for \
         {runs:?} ms, {} s each, {seeds} seeds (emmer-lab sim lifeguard)",
        LENGTH.as_secs()
    );
    let mut report = Report::new("lifeguard", title, &columns);
    let mut lines = Vec::new();
    for profile in options.profiles_or(&[
        Profile::Default,
        Profile::Fast,
        Profile::Classic,
        Profile::Orleans2026,
    ]) {
        let (mut all, mut harmless_killed) = (Tally::default(), 0);
        let mut series = Series { name: profile.name().to_owned(), points: Vec::new() };
        for &block in blocks {
            let mut tally = Tally::default();
            for &count in slow {
                for &run in runs {
                    for seed in 0..u64::from(seeds) {
                        one(profile, silos, count, (block, run), seed, &mut tally);
                    }
                }
            }
            if block <= HARMLESS_MS {
                harmless_killed += tally.slow_killed;
            }
            #[expect(clippy::cast_precision_loss, reason = "a few deaths")]
            series.points.push(((block as f64).log2(), tally.per_1000_hours()));
            report.push(tally.row(profile, block.to_string()));
            all.add(&tally);
        }
        report.push(all.row(profile, "all".to_owned()));
        lines.push(series);
        if profile == Profile::Default {
            #[expect(clippy::cast_precision_loss, reason = "a few deaths")]
            let (healthy, harmless) = (all.healthy_killed as f64, harmless_killed as f64);
            let what = format!("default: healthy silos killed in {:.0} silo-hours", all.silo_hours);
            report.goals.push(Goal::at_most(what, healthy, 0.0));
            report.goals.push(Goal::at_most(
                "default: slow silos killed for blocks up to 2.5 s",
                harmless,
                0.0,
            ));
        }
    }
    report.charts.push(Chart::lines(
        "Healthy silos killed",
        "per 1000 silo-hours",
        "log2 of the block in ms",
        lines,
    ));
    report
}

#[derive(Default)]
struct Tally {
    runs: u32,
    silo_hours: f64,
    healthy_killed: usize,
    bad_runs: u32,
    slow_killed: usize,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        self.silo_hours += other.silo_hours;
        self.healthy_killed += other.healthy_killed;
        self.bad_runs += other.bad_runs;
        self.slow_killed += other.slow_killed;
    }

    #[expect(clippy::cast_precision_loss, reason = "a few deaths")]
    fn per_1000_hours(&self) -> f64 {
        self.healthy_killed as f64 / self.silo_hours.max(1e-9) * 1_000.0
    }

    #[expect(clippy::cast_precision_loss, reason = "a few deaths")]
    fn row(&self, profile: Profile, block: String) -> Vec<Cell> {
        vec![
            profile.name().into(),
            block.into(),
            self.runs.into(),
            Cell::Number(self.silo_hours, 1),
            self.healthy_killed.into(),
            self.bad_runs.into(),
            Cell::Number(self.per_1000_hours(), 2),
            self.slow_killed.into(),
            Cell::Number(self.slow_killed as f64 / f64::from(self.runs.max(1)), 2),
        ]
    }
}

fn one(
    profile: Profile,
    silos: u32,
    slow: u32,
    (block, run): (u64, u64),
    seed: u64,
    tally: &mut Tally,
) {
    let mut scenario = Scenario::calm(profile, silos, seed);
    scenario.thorough = false;
    // Only sends and receives block: the anomaly does not show in what the process measures of
    // itself.
    scenario.health_period = None;
    let mut world = world(scenario);
    if !settle(&mut world, Duration::from_secs(15), Duration::from_secs(900)) {
        return;
    }
    world.reset_measures();
    let (from, until) = (world.now(), world.now() + LENGTH);
    let every = (silos / slow).max(1);
    let victims: Vec<u32> = (0..slow).map(|n| n * every).collect();
    for &host in &victims {
        let (block, run) = (Duration::from_millis(block), Duration::from_millis(run));
        world.inject(Step { at: from, until, fault: Fault::Slow { host, block, run } });
    }
    world.run_until(until);
    let killed = |slow: bool| {
        let of = |death: &&crate::measure::Death| {
            let host = death.process.map(|number| world.processes()[number as usize].host);
            death.was_running && host.is_some_and(|host| victims.contains(&host)) == slow
        };
        world.measures().deaths.iter().filter(of).count()
    };
    tally.runs += 1;
    tally.silo_hours += f64::from(silos) * LENGTH.as_secs_f64() / 3_600.0;
    tally.healthy_killed += killed(false);
    tally.bad_runs += u32::from(killed(false) > 0);
    tally.slow_killed += killed(true);
}
