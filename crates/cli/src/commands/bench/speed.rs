//! What calls, activations and idle grains cost, beside the floors. The scenarios are in the package `emmer-benches`.

use std::path::PathBuf;
use std::time::Instant;

use clap::builder::RangedU64ValueParser;
use clap::{Args, Subcommand};
use emmer_benches::job::{self, Launcher};
use emmer_benches::{Settings, activate, local, memory, remote};
use emmer_sim::report::Report;

use super::publish;
use crate::commands::output::TableFormat;
use crate::exit::{Failure, Result};

/// The arguments of this program that come before a job.
const JOB: [&str; 2] = ["bench", "job"];

/// What is measured.
#[derive(Subcommand)]
pub(super) enum Scenario {
    /// Calls within one process: one caller, 64 callers, one way
    Local(Flags),
    /// The first call to grains that nobody called before, with and without state
    Activate(Flags),
    /// Resident memory of a million idle grains
    Memory(Flags),
    /// Calls between two processes on loopback: 1, 64 and 1,024 callers
    Remote(Flags),
    /// One contender's run, started by the others
    #[command(hide = true)]
    Job {
        /// The job as JSON
        job: String,
    },
}

/// How it is measured.
#[derive(Args, Clone)]
pub(super) struct Flags {
    /// How often every contender runs, in turn with the others
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = RangedU64ValueParser::<usize>::new().range(1..=100))]
    rounds: usize,
    /// How much work, as a share of the usual
    #[arg(long, value_name = "SHARE", default_value_t = 1.0)]
    scale: f64,
    /// On how many threads the runtimes run; 1 is a runtime without other threads [default: 1,2 within a process, 2
    /// between processes]
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = RangedU64ValueParser::<usize>::new().range(1..=256))]
    threads: Vec<usize>,
    /// What is printed
    #[arg(long, value_enum, default_value_t = TableFormat::Table)]
    format: TableFormat,
    /// Where the table is written to as CSV, JSON lines and SVG
    #[arg(long, value_name = "DIR", default_value = "target/reports")]
    reports: PathBuf,
}

impl Flags {
    fn settings(&self, usual_threads: &[usize]) -> Result<Settings> {
        if !(self.scale > 0.0 && self.scale <= 100.0) {
            return Err(Failure::usage("--scale is a share of the usual work, as in 0.1"));
        }
        let threads = if self.threads.is_empty() { usual_threads.to_vec() } else { self.threads.clone() };
        Ok(Settings { rounds: self.rounds, scale: self.scale, threads })
    }
}

/// Runs it.
pub(super) fn run(scenario: &Scenario) -> Result<()> {
    let launcher = Launcher::this_program(&JOB).map_err(Failure::other)?;
    let (report, flags) = match scenario {
        Scenario::Job { job } => return job::main(job, &launcher).map_err(Failure::other),
        Scenario::Local(flags) => {
            (measured(flags, &[1, 2], &launcher, local::measure, local::report)?, flags)
        }
        Scenario::Activate(flags) => {
            (measured(flags, &[1, 2], &launcher, activate::measure, activate::report)?, flags)
        }
        Scenario::Memory(flags) => {
            (measured(flags, &[2], &launcher, memory::measure, memory::report)?, flags)
        }
        Scenario::Remote(flags) => {
            (measured(flags, &[2], &launcher, remote::measure, remote::report)?, flags)
        }
    };
    publish(&report, &flags.reports, flags.format)
}

type Measure<T> = fn(&Settings, &Launcher, &dyn Fn(&str)) -> emmer_benches::Result<T>;

fn measured<T>(
    flags: &Flags,
    usual_threads: &[usize],
    launcher: &Launcher,
    measure: Measure<T>,
    report: fn(&T) -> Report,
) -> Result<Report> {
    let begun = Instant::now();
    let say = |line: &str| eprintln!("{:>6.1}s  {line}", begun.elapsed().as_secs_f64());
    let measured = measure(&flags.settings(usual_threads)?, launcher, &say).map_err(Failure::other)?;
    Ok(report(&measured))
}
