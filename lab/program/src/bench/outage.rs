//! The store's server goes away under load and comes back.

use std::time::{Duration, Instant};

use clap::builder::RangedU64ValueParser;
use emmer::tables::SiloStatus;
use emmer_report::{Cell, Goal, Report};

use super::duration;
use super::load::{Load, Pace, Snapshot};
use super::processes::Processes;
use super::stage::Stage;
use emmer_cli::exit::{Failure, Result};
use emmer_cli::text;

#[derive(clap::Args)]
pub(super) struct Args {
    /// Number of silo processes
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = RangedU64ValueParser::<usize>::new().range(2..=200))]
    silos: usize,
    /// Time for which the server is away
    #[arg(long = "for", value_name = "TIME", default_value = "120s", value_parser = duration)]
    away: Duration,
    /// Time for which the load runs before, and again after the server's return
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    rest: Duration,
    /// Ends the server of --store, run by `sh -c`; with --own-postgres not needed
    #[arg(long, value_name = "COMMAND", requires = "start")]
    stop: Option<String>,
    /// Starts it again
    #[arg(long, value_name = "COMMAND", requires = "stop")]
    start: Option<String>,
}

pub(super) async fn measure(args: &Args, stage: &mut Stage) -> Result<Report> {
    let mut switch = Switch::of(args, stage)?;
    let stage = &*stage;
    let mut processes = Processes::new(stage, "warn");
    for _ in 0..args.silos {
        processes.start()?;
    }
    processes.wait_active().await?;
    stage.say(&format!("{} silo processes are Active", args.silos));
    let load = Load::start(stage, Pace::STEADY).await?;
    tokio::time::sleep(args.rest).await;
    let before = load.snapshot();

    tokio::task::block_in_place(|| switch.off())?;
    stage.say("the store's server is stopped");
    tokio::time::sleep(args.away).await;
    let during = load.snapshot();
    tokio::task::block_in_place(|| switch.on())?;
    let returned_at = Instant::now();
    stage.say("it accepts connections again");

    processes.start()?;
    processes.wait_active().await?;
    let joined = returned_at.elapsed();
    stage.say(&format!("a new silo is Active {} later", text::span(joined)));
    tokio::time::sleep(args.rest).await;
    let after = load.snapshot();
    let deaths = stage.wait_table("the table", |silos| {
        Some(silos.iter().filter(|silo| silo.status != SiloStatus::Active).count())
    });
    let deaths = deaths.await?;
    for failure in load.failures() {
        stage.say(&format!("a call that failed: {failure}"));
    }
    load.stop().await;

    Ok(Measured { before, during, after, deaths, joined }.report(args, stage))
}

/// Results of the load, and the state of the cluster afterwards.
struct Measured {
    before: Snapshot,
    during: Snapshot,
    after: Snapshot,
    /// Silos that are not Active.
    deaths: usize,
    /// Time after the server's return at which a new silo was Active.
    joined: Duration,
}

impl Measured {
    fn report(&self, args: &Args, stage: &Stage) -> Report {
        let title = format!(
            "The {} server of {} silo processes away for {} under load, profile {}",
            stage.kind(),
            args.silos,
            text::span(args.away),
            stage.profile
        );
        let columns = [
            "phase",
            "answered calls",
            "failed calls",
            "slowest answer ms",
            "silos not Active",
            "join after its return s",
        ];
        let mut report = Report::new("bench-membership-outage", title, &columns);
        let ms = |time: Duration| Cell::Number(time.as_secs_f64() * 1_000.0, 1);
        let joined = self.joined.as_secs_f64();
        for (phase, from, to) in [
            ("before", None, self.before),
            ("away", Some(self.before), self.during),
            ("back", Some(self.during), self.after),
        ] {
            let (answered, failed) = from.map_or((0, 0), |from| (from.answered, from.failed));
            let last = phase == "back";
            report.push(vec![
                phase.into(),
                (to.answered - answered).into(),
                (to.failed - failed).into(),
                ms(to.slowest),
                if last { self.deaths.into() } else { Cell::Nothing },
                if last { Cell::Number(joined, 2) } else { Cell::Nothing },
            ]);
        }
        let count = |count: u64| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
        report.goals.push(Goal::at_most("deaths", count(self.deaths as u64), 0.0));
        report.goals.push(Goal::at_most("failed calls", count(self.after.failed), 0.0));
        report.goals.push(Goal::at_most(
            "a new silo joins after the server's return, s",
            joined,
            5.0,
        ));
        report
    }
}

/// Switch that turns the server off and on.
enum Switch {
    Commands {
        stop: String,
        start: String,
    },
    #[cfg(feature = "postgres")]
    Own(emmer_test_servers::PostgresServer),
}

impl Switch {
    fn of(args: &Args, stage: &mut Stage) -> Result<Self> {
        #[cfg(feature = "postgres")]
        if let Some(server) = stage.server.take() {
            return Ok(Self::Own(server));
        }
        #[cfg(not(feature = "postgres"))]
        let _ = stage;
        match (&args.stop, &args.start) {
            (Some(stop), Some(start)) => {
                Ok(Self::Commands { stop: stop.clone(), start: start.clone() })
            }
            _ => Err(Failure::usage(
                "give --own-postgres, or --store with --stop and --start: what ends and starts its \
                 server",
            )),
        }
    }

    fn off(&mut self) -> Result<()> {
        match self {
            Self::Commands { stop, .. } => shell(stop),
            #[cfg(feature = "postgres")]
            Self::Own(server) => {
                server.kill();
                Ok(())
            }
        }
    }

    /// Returns when the server accepts connections.
    fn on(&mut self) -> Result<()> {
        match self {
            Self::Commands { start, .. } => shell(start),
            #[cfg(feature = "postgres")]
            Self::Own(server) => server.start_again().map_err(Failure::store),
        }
    }
}

fn shell(command: &str) -> Result<()> {
    let ended = std::process::Command::new("sh").args(["-c", command]).status();
    match ended {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::other(format!("{command:?} failed: {status}"))),
        Err(error) => Err(Failure::other(format!("{command:?} cannot be run: {error}"))),
    }
}
