//! `emmer-lab bench`: silos measured on real sockets and a real store. Timing claims are made here,
//! not in tests.
//!
//! | module | subject |
//! |---|---|
//! | [`stage`] | what every measurement needs: a store, a cluster of its own, a folder for logs |
//! | [`processes`] | silo processes, none of which outlives the command |
//! | [`load`], [`flow`] | a client that calls grains all the while, and what it saw: in a few loops, or at a steady pace |
//! | [`start`], [`kill`], [`leave`], [`outage`] | measurements of membership |
//! | [`restart`], [`moves`] | measurements of grains that move from process to process |
//! | [`faults`] | what a client sees of each fault, beside what others were measured to do |
//! | [`silence`] | one silo falls silent: [`freeze`] and [`cut`] |
//! | [`callers`], [`crowd`] | processes that call slow grains, and those as seen by the measurement |
//! | [`ground`] | where processes run, and how one silo is cut from the others |
//! | [`pursuit`] | calls that follow the grains of a dead silo |
//! | [`judge`], [`logs`] | whether any grain ran on two silos, by the turn logs |
//! | [`speed`] | what calls, activations and idle grains cost |

mod callers;
mod crowd;
mod cut;
mod faults;
mod flow;
mod freeze;
mod ground;
mod judge;
mod kill;
mod leave;
mod load;
mod logs;
mod moves;
mod outage;
mod processes;
mod pursuit;
mod restart;
mod silence;
mod speed;
mod stage;
mod start;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Subcommand;
use emmer_report::{Report, quantile};

use self::stage::Stage;
use crate::output::{TableFormat, show};
use emmer::config::{ConfigArgs, Settings};
use emmer_cli::exit::{Code, Failure, Result};
use emmer_cli::logging;
use emmer_cli::process::runtime;

#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    subject: Subject,
}

#[derive(Subcommand)]
enum Subject {
    /// Speed of joins, and of the detection of deaths
    Membership {
        #[command(subcommand)]
        what: Membership,
    },
    /// Effects on a client when a silo process is killed, frozen, woken, asked to leave, and when
    /// all are replaced
    Faults {
        #[command(flatten)]
        args: faults::Args,
        #[command(flatten)]
        common: Common,
    },
    #[command(flatten)]
    Speed(speed::Scenario),
    /// The callers of a measurement, which starts them
    #[command(hide = true)]
    Callers(callers::Args),
}

#[derive(Subcommand)]
enum Membership {
    /// Many silos of one process start together: how long until all are Active on one version?
    Start {
        #[command(flatten)]
        args: start::Args,
        #[command(flatten)]
        common: Common,
    },
    /// One of many silo processes is killed (SIGKILL): how long until it is Dead in the table?
    Kill {
        #[command(flatten)]
        args: kill::Args,
        #[command(flatten)]
        common: Common,
    },
    /// One silo process after the other ends under load, by SIGTERM or `kill -9`, and is replaced:
    /// which calls fail?
    Leave {
        #[command(flatten)]
        args: leave::Args,
        #[command(flatten)]
        common: Common,
    },
    /// All silo processes are restarted, one after the other, under load: which calls fail, how
    /// long do they take, and how even are the grains afterwards?
    Restart {
        #[command(flatten)]
        args: restart::Args,
        #[command(flatten)]
        common: Common,
    },
    /// One silo process leaves with its grains, and it or another one is killed in the midst: does
    /// any grain run on two silos?
    Moves {
        #[command(flatten)]
        args: moves::Args,
        #[command(flatten)]
        common: Common,
    },
    /// One silo process is frozen (SIGSTOP) under load: how long until it is Dead, and does any
    /// grain run on two silos?
    Freeze {
        #[command(flatten)]
        args: freeze::Args,
        #[command(flatten)]
        common: Common,
    },
    /// One silo process is cut from the others under load, but reaches the store: does any grain
    /// run on two silos?
    Cut {
        #[command(flatten)]
        args: cut::Args,
        #[command(flatten)]
        common: Common,
    },
    /// The store's server goes away under load and comes back: does any silo die, does any call
    /// fail?
    Outage {
        #[command(flatten)]
        args: outage::Args,
        #[command(flatten)]
        common: Common,
    },
}

/// The flags of every measurement.
#[derive(clap::Args, Clone)]
struct Common {
    /// The system store; the measurement takes a cluster of its own in it [default: a SQLite file
    /// in a temporary folder]
    #[arg(long, value_name = "URL", conflicts_with = "own_postgres")]
    store: Option<String>,
    /// Start a PostgreSQL server for the measurement (it must be installed; needs the feature
    /// `postgres`)
    #[arg(long)]
    own_postgres: bool,
    /// The silos' membership options: default, classic, fast, orleans-2026
    #[arg(long, default_value = "default")]
    profile: String,
    /// Format of the output
    #[arg(long, value_enum, default_value_t = TableFormat::Table)]
    format: TableFormat,
    /// Where the table is written to as CSV and JSON lines
    #[arg(long, value_name = "DIR", default_value = "target/reports")]
    reports: PathBuf,
    /// Keep the folder with the silos' logs; kept as well when the measurement fails or misses a
    /// goal
    #[arg(long)]
    keep: bool,
}

pub(crate) fn run(args: &Args, log: Option<String>) -> Result<()> {
    match &args.subject {
        Subject::Membership { what } => membership(what, log),
        Subject::Faults { args, common } => on_stage(common, log, What::Faults(args)),
        Subject::Speed(scenario) => {
            let flags = vec![("log", log, "--log")];
            logging::start(&Settings::of_process(&ConfigArgs::default(), flags)?)?;
            speed::run(scenario)
        }
        Subject::Callers(args) => {
            let flags = vec![
                ("log", log, "--log"),
                ("cluster_id", Some(args.cluster_id.clone()), "--cluster-id"),
            ];
            let settings = Settings::of_process(&ConfigArgs::default(), flags)?;
            logging::start(&settings)?;
            let runtime = runtime()?;
            let called = runtime.block_on(callers::run(args, &settings));
            // The thread that watches the standard input may still be there.
            runtime.shutdown_background();
            called
        }
    }
}

fn membership(what: &Membership, log: Option<String>) -> Result<()> {
    let (Membership::Start { common, .. }
    | Membership::Kill { common, .. }
    | Membership::Leave { common, .. }
    | Membership::Restart { common, .. }
    | Membership::Moves { common, .. }
    | Membership::Freeze { common, .. }
    | Membership::Cut { common, .. }
    | Membership::Outage { common, .. }) = what;
    on_stage(common, log, What::Membership(what))
}

/// Measurement on a stage.
#[derive(Clone, Copy)]
enum What<'a> {
    Membership(&'a Membership),
    Faults(&'a faults::Args),
}

async fn measure(what: What<'_>, stage: &mut Stage) -> Result<Measured> {
    match what {
        What::Faults(args) => Box::pin(faults::measure(args, stage)).await,
        What::Membership(what) => match what {
            Membership::Start { args, .. } => {
                Box::pin(start::measure(args, stage)).await.map(clean)
            }
            Membership::Kill { args, .. } => Box::pin(kill::measure(args, stage)).await.map(clean),
            Membership::Leave { args, .. } => {
                Box::pin(leave::measure(args, stage)).await.map(clean)
            }
            Membership::Restart { args, .. } => {
                Box::pin(restart::measure(args, stage)).await.map(clean)
            }
            Membership::Moves { args, .. } => Box::pin(moves::measure(args, stage)).await,
            Membership::Freeze { args, .. } => Box::pin(freeze::measure(args, stage)).await,
            Membership::Cut { args, .. } => Box::pin(cut::measure(args, stage)).await,
            Membership::Outage { args, .. } => {
                Box::pin(outage::measure(args, stage)).await.map(clean)
            }
        },
    }
}

/// Prepares a measurement and shows its results.
fn on_stage(common: &Common, log: Option<String>, what: What<'_>) -> Result<()> {
    let flags = vec![
        ("log", log, "--log"),
        ("membership.profile", Some(common.profile.clone()), "--profile"),
    ];
    let settings = Settings::of_process(&ConfigArgs::default(), flags)?;
    logging::start(&settings)?;
    let membership = settings.membership()?;
    let runtime = runtime()?;
    let measured = runtime.block_on(async {
        let measured = async {
            let mut stage = Stage::set(common, membership).await?;
            let measured = Box::pin(measure(what, &mut stage)).await;
            let missed = match &measured {
                Ok((report, _)) => report.goals.iter().any(|goal| !goal.is_met()),
                Err(failure) => failure.code != Code::Usage,
            };
            if common.keep || missed {
                eprintln!("kept {}", stage.keep().display());
            }
            measured
        };
        tokio::select! {
            measured = measured => measured,
            _ = tokio::signal::ctrl_c() => Err(Failure::new(Code::Interrupted, "interrupted; every \
                silo was ended")),
        }
    });
    runtime.shutdown_background();
    let (report, violated) = measured?;
    publish(&report, &common.reports, common.format)?;
    violated.map_or(Ok(()), |what| Err(Failure::new(Code::Violated, what)))
}

/// A report, and the promise that was broken, if any was.
type Measured = (Report, Option<String>);

/// A measurement that looks at no promise.
const fn clean(report: Report) -> Measured {
    (report, None)
}

fn publish(report: &Report, folder: &Path, format: TableFormat) -> Result<()> {
    let written = report.write(folder).map_err(|error| {
        Failure::other(format!("the reports cannot be written to {}: {error}", folder.display()))
    })?;
    for path in written {
        eprintln!("wrote {}", path.display());
    }
    show(report, format)
}

/// A duration with its unit, as in `120s`.
fn duration(text: &str) -> std::result::Result<Duration, String> {
    emmer::membership::humantime::parse(text).map_err(|error| error.to_string())
}

/// `median 8.1 ms (5.9 to 12.0)`.
fn spread(times: &[Duration]) -> String {
    let ms = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1_000.0);
    match (quantile(times, 0.5), times.iter().min(), times.iter().max()) {
        (Some(median), Some(min), Some(max)) => {
            format!("median {} ms ({} to {})", ms(median), ms(*min), ms(*max))
        }
        _ => "nothing measured".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_of_some_times_is_told() {
        let ms = |n: &[u64]| n.iter().map(|n| Duration::from_millis(*n)).collect::<Vec<_>>();
        assert_eq!(spread(&[]), "nothing measured");
        assert_eq!(spread(&ms(&[3, 1, 2])), "median 2.0 ms (1.0 to 3.0)");
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("120s"), Ok(Duration::from_secs(120)));
        assert!(duration("120").is_err() && duration("soon").is_err());
    }
}
