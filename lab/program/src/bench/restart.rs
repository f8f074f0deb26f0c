//! All silo processes are restarted, one after the other, under load; then the cluster rests until
//! its grains are even.

use std::time::{Duration, Instant};

use clap::builder::RangedU64ValueParser;
use emmer::store::MetricsTable;
use emmer_benches::histogram::Histogram;
use emmer_benches::meter::resident_of;
use emmer_report::{Cell, Goal, Report};
use rustix::process::Signal;

use super::flow::{Flow, Load};
use super::processes::{Processes, is_active};
use super::stage::Stage;
use super::{duration, spread};
use emmer_cli::exit::{Failure, Result};

/// Time that a silo may take to leave.
const LEAVE_LIMIT: Duration = Duration::from_secs(70);

/// Interval at which the numbers of grains are read.
const LOOK: Duration = Duration::from_secs(1);

/// Period in which silos write their numbers of grains.
const TOLD_EVERY: &str = "2s";

/// The most that the fullest silo may have of the mean.
const EVEN: f64 = 1.2;

/// Time within which the grains must be even.
const EVEN_LIMIT: Duration = Duration::from_secs(120);

#[derive(clap::Args)]
pub(super) struct Args {
    /// Number of silo processes
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = RangedU64ValueParser::<usize>::new().range(2..=200))]
    silos: usize,
    /// Number of times that all are restarted
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1_000))]
    rounds: usize,
    /// Number of grains that are called
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = RangedU64ValueParser::<u64>::new().range(1..=1_000_000))]
    grains: u64,
    /// Calls in a second
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = RangedU64ValueParser::<u64>::new().range(1..=100_000))]
    rate: u64,
    /// Time for which the load runs before each restart
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    rest: Duration,
}

/// The restart of one process.
struct Step {
    name: String,
    ended_after: Duration,
    active_after: Duration,
    /// The memory of this program and of all silos then, in MiB.
    memory: (f64, f64),
}

/// Sums of what the client saw.
#[derive(Default)]
struct Calls {
    latencies: Histogram,
    answered: u64,
    failed: u64,
    left_out: u64,
}

impl Calls {
    fn add(&mut self, flow: &Flow, stage: &Stage) {
        let seen = flow.take();
        self.latencies.add(&seen.latencies);
        self.answered += seen.answered;
        self.failed += seen.failed;
        self.left_out += seen.left_out;
        seen.told.iter().for_each(|words| stage.say(&format!("a call that failed: {words}")));
    }
}

/// Numbers of grains.
struct Counts {
    most: u64,
    mean: f64,
}

impl Counts {
    fn ratio(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
        let most = self.most as f64;
        most / self.mean
    }
}

pub(super) async fn measure(args: &Args, stage: &Stage) -> Result<Report> {
    let settings = ["balance=true".to_owned(), format!("records.metrics_period={TOLD_EVERY}")];
    let mut processes = Processes::new(stage, "warn").with(&settings);
    for _ in 0..args.silos {
        processes.start()?;
    }
    processes.wait_active().await?;
    let flow = Flow::start(stage, args.grains, Load::Steady(args.rate)).await?;
    stage.say(&format!("{} silo processes are Active, with {} grains", args.silos, args.grains));
    let (mut calls, mut steps) = (Calls::default(), Vec::new());
    for _ in 0..args.rounds {
        for _ in 0..args.silos {
            tokio::time::sleep(args.rest).await;
            let step = restart_oldest(&mut processes).await?;
            calls.add(&flow, stage);
            stage.say(&format!(
                "{} left after {:.0} ms, another is Active after {:.0} ms; {} calls, {} failed; \
                 {:.0} and {:.0} MiB",
                step.name,
                step.ended_after.as_secs_f64() * 1e3,
                step.active_after.as_secs_f64() * 1e3,
                calls.answered,
                calls.failed,
                step.memory.0,
                step.memory.1,
            ));
            steps.push(step);
        }
    }
    let restarted = std::mem::take(&mut calls);
    let even = wait_even(args, stage).await?;
    calls.add(&flow, stage);
    flow.stop().await;
    processes.stop().await?;
    Ok(report(args, stage, &steps, [&restarted, &calls], even))
}

/// The silo process that has run for longest leaves, and another one starts.
async fn restart_oldest(processes: &mut Processes<'_>) -> Result<Step> {
    let oldest = processes.running.first().map(|process| process.name.clone());
    let name = oldest.ok_or_else(|| Failure::other("no silo is running"))?;
    let mut process = processes.take(&name)?;
    let asked = Instant::now();
    process.signal(Signal::TERM)?;
    if process.ended(LEAVE_LIMIT).await?.is_none() {
        return Err(Failure::other(format!("silo {name} does not end")));
    }
    let (ended_after, started) = (asked.elapsed(), Instant::now());
    processes.start()?;
    processes.wait_active().await?;
    let memory = (memory_of(std::process::id()), processes.pids().map(memory_of).sum());
    Ok(Step { name, ended_after, active_after: started.elapsed(), memory })
}

/// The memory of a process in MiB; 0 if it is not told.
fn memory_of(pid: u32) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "bytes far below 2^52")]
    let bytes = resident_of(pid).unwrap_or(0) as f64;
    bytes / f64::from(1 << 20)
}

/// Waits until no silo has many more grains than the others. Returns the time and the last
/// numbers.
async fn wait_even(args: &Args, stage: &Stage) -> Result<(Duration, Counts)> {
    let begun = Instant::now();
    loop {
        tokio::time::sleep(LOOK).await;
        let counts = counts(args, stage).await?;
        let took = begun.elapsed();
        if counts.ratio() <= EVEN || took > EVEN_LIMIT {
            stage.say(&format!("the fullest silo has {:.2} of the mean", counts.ratio()));
            return Ok((took, counts));
        }
    }
}

/// The numbers of grains as running silos told them last.
async fn counts(args: &Args, stage: &Stage) -> Result<Counts> {
    let active = stage.table.read_all().await.map_err(Failure::store)?.1;
    let active: Vec<_> = active.into_iter().filter(is_active).collect();
    let table = MetricsTable::new(stage.store.clone(), stage.cluster.clone());
    let told = table.silos().await.map_err(Failure::store)?;
    let told = told.iter().filter(|silo| active.iter().any(|a| a.instance_name == silo.name));
    let most = told.map(|silo| silo.activations).max().unwrap_or(0);
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let mean = args.grains as f64 / active.len().max(1) as f64;
    Ok(Counts { most, mean })
}

fn report(
    args: &Args,
    stage: &Stage,
    steps: &[Step],
    [restarted, rested]: [&Calls; 2],
    (even_after, counts): (Duration, Counts),
) -> Report {
    let times: Vec<Duration> = steps.iter().map(|step| step.ended_after).collect();
    let title = format!(
        "{} silo processes on {} with {} grains restarted {} times, one after the other, under {} \
         calls a second: each left after {}; {} calls meanwhile, {} while they rested; the fullest \
         silo had {} grains after {:.0} s",
        args.silos,
        stage.kind(),
        args.grains,
        args.rounds,
        args.rate,
        spread(&times),
        restarted.answered,
        rested.answered,
        counts.most,
        even_after.as_secs_f64(),
    );
    let columns =
        ["silo", "left after ms", "another Active after ms", "own MiB", "MiB of all silos"];
    let mut report = Report::new("bench-membership-restart", title, &columns);
    let ms = |time: Duration| Cell::Number(time.as_secs_f64() * 1_000.0, 1);
    for step in steps {
        report.push(vec![
            step.name.clone().into(),
            ms(step.ended_after),
            ms(step.active_after),
            Cell::Number(step.memory.0, 1),
            Cell::Number(step.memory.1, 1),
        ]);
    }
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let failed = (restarted.failed + rested.failed + restarted.left_out) as f64;
    let p999 = |calls: &Calls| {
        #[expect(clippy::cast_precision_loss, reason = "an hour at most")]
        calls.latencies.quantiles().map(|told| told.p999 as f64 / 1e6)
    };
    let goals = &mut report.goals;
    goals.push(Goal::at_most("failed calls", failed, 0.0));
    goals.push(Goal::at_most("p99.9 of the calls meanwhile, ms", p999(restarted), 100.0));
    goals.push(Goal::at_most("grains of the fullest silo / mean", counts.ratio(), EVEN));
    let taken = even_after.as_secs_f64();
    goals.push(Goal::at_most("time until then, s", taken, EVEN_LIMIT.as_secs_f64()));
    // The first restarts fill caches.
    if let (Some(early), Some(last)) = (steps.get(args.silos), steps.last()) {
        let grown = |of: fn(&Step) -> f64| of(last) / of(early).max(1.0);
        goals.push(Goal::at_most("memory of the client, last / early", grown(|s| s.memory.0), 1.2));
        goals.push(Goal::at_most("memory of the silos, last / early", grown(|s| s.memory.1), 1.2));
    }
    report
}
