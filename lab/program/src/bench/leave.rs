//! One silo process after the other ends under load, in good order or killed, and is replaced.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::builder::RangedU64ValueParser;
use emmer_report::{Cell, Goal, Report};
use rustix::process::Signal;

use super::load::{Load, Pace, Snapshot};
use super::processes::{Processes, victim};
use super::stage::Stage;
use super::{duration, spread};
use emmer_cli::exit::{Failure, Result};

/// Time that a silo may take to leave.
const LEAVE_LIMIT: Duration = Duration::from_secs(70);

#[derive(clap::Args)]
pub(super) struct Args {
    /// Number of silo processes
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = RangedU64ValueParser::<usize>::new().range(2..=200))]
    silos: usize,
    /// Number of silos that end, one after the other; each is replaced by a fresh process
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1_000))]
    rounds: usize,
    /// Calls in a second
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = RangedU64ValueParser::<u64>::new().range(1..=100_000))]
    rate: u64,
    /// Kill them (SIGKILL) instead of asking them to leave (SIGTERM)
    #[arg(long)]
    kill: bool,
    /// Number of processes that compute all the while and nothing else
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = RangedU64ValueParser::<usize>::new().range(0..=64))]
    busy: usize,
    /// Time for which the load runs before each end
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    rest: Duration,
}

/// A process that computes until it is dropped.
struct Busy(Child);

impl Busy {
    fn start() -> Result<Self> {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
        let started = command.spawn();
        started
            .map(Self)
            .map_err(|error| Failure::other(format!("a busy loop cannot be started: {error}")))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // Fails only for a process that has ended, which is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Measurements of one round.
struct Round {
    silo: String,
    ended_after: Duration,
    calls: Snapshot,
}

pub(super) async fn measure(args: &Args, stage: &Stage) -> Result<Report> {
    let mut processes = Processes::new(stage, "warn");
    for _ in 0..args.silos {
        processes.start()?;
    }
    let mut active = processes.wait_active().await?;
    stage.say(&format!("{} silo processes are Active", args.silos));
    let load = Load::start(stage, Pace::of_rate(args.rate)).await?;
    let busy = (0..args.busy).map(|_| Busy::start()).collect::<Result<Vec<_>>>()?;
    let (signal, begun) = (if args.kill { Signal::KILL } else { Signal::TERM }, Instant::now());
    let mut rounds = Vec::new();
    for round in 1..=args.rounds {
        tokio::time::sleep(args.rest).await;
        let before = load.snapshot();
        let (_, name) = victim(&active, round)?;
        let mut process = processes.take(&name)?;
        let asked = Instant::now();
        process.signal(signal)?;
        if process.ended(LEAVE_LIMIT).await?.is_none() {
            return Err(Failure::other(format!("silo {name} does not end")));
        }
        let ended_after = asked.elapsed();
        processes.start()?;
        active = processes.wait_active().await?;
        let calls = since(load.snapshot(), before);
        stage.say(&format!(
            "round {round}: {name} ended after {:.0} ms, {} calls answered, {} failed",
            ended_after.as_secs_f64() * 1_000.0,
            calls.answered,
            calls.failed
        ));
        rounds.push(Round { silo: name, ended_after, calls });
    }
    let (took, last) = (begun.elapsed(), load.snapshot());
    for failure in load.failures() {
        stage.say(&format!("a call that failed: {failure}"));
    }
    load.stop().await;
    drop(busy);
    Ok(report(args, stage, &rounds, last, took))
}

fn since(now: Snapshot, before: Snapshot) -> Snapshot {
    Snapshot {
        answered: now.answered - before.answered,
        failed: now.failed - before.failed,
        unrun: now.unrun - before.unrun,
        slowest: now.slowest,
    }
}

fn report(args: &Args, stage: &Stage, rounds: &[Round], all: Snapshot, took: Duration) -> Report {
    let times: Vec<Duration> = rounds.iter().map(|round| round.ended_after).collect();
    let how = if args.kill { "killed (SIGKILL)" } else { "asked to leave (SIGTERM)" };
    let title = format!(
        "One of {} silo processes on {} after the other {how} and replaced, profile {}, beside {} \
         busy loops; ended after {}; {} calls in {:.0} s",
        args.silos,
        stage.kind(),
        stage.profile,
        args.busy,
        spread(&times),
        all.answered + all.failed,
        took.as_secs_f64()
    );
    let columns = [
        "round",
        "silo",
        "ended after ms",
        "answered",
        "failed",
        "known not to have run",
        "slowest ms",
    ];
    let mut report = Report::new("bench-membership-leave", title, &columns);
    let ms = |time: Duration| Cell::Number(time.as_secs_f64() * 1_000.0, 1);
    for (at, round) in rounds.iter().enumerate() {
        let Snapshot { answered, failed, unrun, slowest } = round.calls;
        report.push(vec![
            (at + 1).into(),
            round.silo.clone().into(),
            ms(round.ended_after),
            answered.into(),
            failed.into(),
            unrun.into(),
            ms(slowest),
        ]);
    }
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let (failed, unrun) = (all.failed as f64, all.unrun as f64);
    if args.kill {
        report.goals.push(Goal::at_most("failed calls that are known not to have run", unrun, 0.0));
    } else {
        report.goals.push(Goal::at_most("failed calls", failed, 0.0));
    }
    report
}
