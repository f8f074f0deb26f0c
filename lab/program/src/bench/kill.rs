//! One of many silo processes is killed.

use std::time::{Duration, Instant};

use clap::builder::RangedU64ValueParser;
use emmer_report::{Cell, Goal, Report, quantile};
use rustix::process::Signal;

use super::processes::{Processes, victim};
use super::stage::Stage;
use super::{duration, spread};
use emmer_cli::exit::{Failure, Result};

/// Interval at which the row of the killed silo is read: the precision of the times.
const LOOK: Duration = Duration::from_millis(2);

#[derive(clap::Args)]
pub(super) struct Args {
    /// Number of silo processes
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = RangedU64ValueParser::<usize>::new().range(2..=200))]
    silos: usize,
    /// Number of silos that are killed, one after the other; each is replaced by a fresh process
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1_000))]
    rounds: usize,
    /// Time for which the cluster is left alone before each kill
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = duration)]
    rest: Duration,
}

pub(super) async fn measure(args: &Args, stage: &Stage) -> Result<Report> {
    let mut processes = Processes::new(stage, "warn");
    for _ in 0..args.silos {
        processes.start()?;
    }
    let mut active = processes.wait_active().await?;
    stage.say(&format!("{} silo processes are Active", args.silos));
    let mut times: Vec<Duration> = Vec::new();
    let title = "killed";
    let columns = ["round", title, "Dead after ms", "versions"];
    let mut rows = Vec::new();
    for round in 1..=args.rounds {
        tokio::time::sleep(args.rest).await;
        let (silo, name) = victim(&active, round)?;
        let process = processes.take(&name)?;
        let version = version(stage).await?;
        let killed_at = Instant::now();
        process.signal(Signal::KILL)?;
        let after = stage.wait_dead(&silo, killed_at, LOOK).await?;
        let versions = self::version(stage).await?.saturating_sub(version);
        stage.say(&format!(
            "round {round}: {name} is Dead after {:.1} ms",
            after.as_secs_f64() * 1_000.0
        ));
        drop(process);
        times.push(after);
        let ms = Cell::Number(after.as_secs_f64() * 1_000.0, 1);
        rows.push(vec![round.into(), silo.to_string().into(), ms, versions.into()]);
        processes.start()?;
        active = processes.wait_active().await?;
    }
    let title = format!(
        "{} silo processes on {}, profile {}, one killed (SIGKILL) at a time: Dead after {}\n\
         For comparison: three silos of the original, run by us: 5,200 to 10,600 ms",
        args.silos,
        stage.kind(),
        stage.profile,
        spread(&times)
    );
    let mut report = Report::new("bench-membership-kill", title, &columns);
    report.rows = rows;
    let middle = quantile(&times, 0.5).map(|time| time.as_secs_f64() * 1_000.0);
    report.goals.push(Goal::at_most("median, ms", middle, 300.0));
    Ok(report)
}

async fn version(stage: &Stage) -> Result<u64> {
    stage.table.read_version().await.map(|version| version.number).map_err(Failure::store)
}
