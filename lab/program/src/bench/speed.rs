//! Costs of calls, activations and idle grains, compared with the floors. The scenarios are in the
//! package `emmer-benches`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::builder::RangedU64ValueParser;
use clap::{Args, Subcommand};
use emmer_benches::job::{self, Launcher};
use emmer_benches::report::Compared;
use emmer_benches::scenarios;
use emmer_benches::{
    Settings, activate, cluster, connections, directory, local, memory, remote, ring, soak, storm,
    strangers,
};
use emmer_report::{Cell, Report};

use super::{duration, publish};
use crate::output::TableFormat;
use emmer_cli::exit::{Failure, Result};

/// The arguments of this program that come before a job.
const JOB: [&str; 2] = ["bench", "job"];

/// Scenario that is measured.
#[derive(Subcommand)]
pub(super) enum Scenario {
    /// Everything below except `soak`, one after the other, and the goals in one table
    All(Flags),
    /// Calls within one process: one caller, 64 callers, one way
    Local(Flags),
    /// The first call to grains that were never called before, with and without state
    Activate(Flags),
    /// Resident memory of a million idle grains
    Memory(Flags),
    /// Calls between two processes on loopback: 1, 64 and 1,024 callers
    Remote(Flags),
    /// Calls in a cluster of three silo processes, by a client through gateways and by a silo
    Cluster(Flags),
    /// 300,000 grains called for the first time, all at once
    Storm(StormFlags),
    /// Look-ups and registrations, and calls by a silo that does not know where a grain is
    Directory(Flags),
    /// Changes of view and look-ups on the ring, by the size of the cluster
    Ring(Flags),
    /// Calls from silo to silo at a steady rate for minutes: memory and slow calls
    Soak(SoakFlags),
    /// 10,000 idle connections, 5,000 silent sockets, 60 half-sent frames: their cost to a silo
    Connections(ConnectionsFlags),
    /// A million times bytes that are no frame and no handshake, without and with TLS
    Strangers(StrangersFlags),
    /// One contender's run, started by the others
    #[command(hide = true)]
    Job {
        /// The job as JSON
        job: String,
    },
}

/// Parameters of the measurement.
#[derive(Args, Clone)]
pub(super) struct Flags {
    /// Number of times every contender runs, in turn with the others
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = RangedU64ValueParser::<usize>::new().range(1..=100))]
    rounds: usize,
    /// Amount of work, as a share of the usual
    #[arg(long, value_name = "SHARE", default_value_t = 1.0)]
    scale: f64,
    /// On how many threads the runtimes run; 1 is a runtime without other threads [default: 1,2
    /// within a process, 2 between processes]
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = RangedU64ValueParser::<usize>::new().range(1..=256))]
    threads: Vec<usize>,
    #[command(flatten)]
    out: Out,
}

/// Parameters of a storm.
#[derive(Args, Clone)]
pub(super) struct StormFlags {
    #[command(flatten)]
    flags: Flags,
    /// A store, as its URL, from which each grain then reads a state
    #[arg(long, value_name = "URL")]
    store: Option<String>,
}

/// Parameters of a soak.
#[derive(Args, Clone)]
pub(super) struct SoakFlags {
    /// Calls in each second
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = RangedU64ValueParser::<u64>::new().range(1..=10_000_000))]
    rate: u64,
    /// Duration
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = duration)]
    time: Duration,
    /// Interval at which a row is written
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    every: Duration,
    /// On how many threads either process runs
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = RangedU64ValueParser::<usize>::new().range(1..=256))]
    threads: usize,
    #[command(flatten)]
    out: Out,
}

/// Number of connections.
#[derive(Args, Clone)]
pub(super) struct ConnectionsFlags {
    /// Clients that have said hello and nothing since
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    idle: usize,
    /// Sockets that say nothing at all
    #[arg(long, value_name = "N", default_value_t = 5_000, value_parser = RangedU64ValueParser::<usize>::new().range(1..=9_000))]
    silent: usize,
    /// Clients that send 15 of 16 MiB of a frame and stop
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1_000))]
    halves: usize,
    /// Time for which the idle ones are watched
    #[arg(long = "for", value_name = "TIME", default_value = "20s", value_parser = duration)]
    time: Duration,
    #[command(flatten)]
    out: Out,
}

/// The number of strangers, and the rest of their run.
#[derive(Args, Clone)]
pub(super) struct StrangersFlags {
    /// Strangers in all: a quarter each before and after the handshake, without and with TLS
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = RangedU64ValueParser::<usize>::new().range(40..=100_000_000))]
    count: usize,
    /// Sockets that say nothing while honest handshakes are timed
    #[arg(long, value_name = "N", default_value_t = 5_000, value_parser = RangedU64ValueParser::<usize>::new().range(1..=9_000))]
    silent: usize,
    /// Seed of their bytes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    out: Out,
}

/// Where results go.
#[derive(Args, Clone)]
struct Out {
    /// Format of the output
    #[arg(long, value_enum, default_value_t = TableFormat::Table)]
    format: TableFormat,
    /// Where the table is written to as CSV and JSON lines
    #[arg(long, value_name = "DIR", default_value = "target/reports")]
    reports: PathBuf,
}

impl Flags {
    fn settings(&self, usual_threads: &[usize]) -> Result<Settings> {
        if !(self.scale > 0.0 && self.scale <= 100.0) {
            return Err(Failure::usage("--scale is a share of the usual work, as in 0.1"));
        }
        let threads =
            if self.threads.is_empty() { usual_threads.to_vec() } else { self.threads.clone() };
        Ok(Settings { rounds: self.rounds, scale: self.scale, threads })
    }
}

type Measure = fn(&Settings, &Launcher, &dyn Fn(&str)) -> emmer_benches::Result<Compared>;

/// Measurement and report of one scenario.
struct Kind {
    name: &'static str,
    usual_threads: &'static [usize],
    measure: Measure,
    report: fn(&Compared) -> Report,
}

macro_rules! kind {
    ($scenario:ident, $threads:expr) => {
        Kind {
            name: stringify!($scenario),
            usual_threads: $threads,
            measure: $scenario::measure,
            report: $scenario::report,
        }
    };
}

const LOCAL: Kind = kind!(local, &[1, 2]);
const ACTIVATE: Kind = kind!(activate, &[1, 2]);
const MEMORY: Kind = kind!(memory, &[2]);
const REMOTE: Kind = kind!(remote, &[2]);
const CLUSTER: Kind = kind!(cluster, &[2]);
const STORM: Kind = kind!(storm, &[2]);
const DIRECTORY: Kind = kind!(directory, &[2]);
const RING: Kind = kind!(ring, &[1]);

/// Runs it.
pub(super) fn run(scenario: &Scenario) -> Result<()> {
    let launcher = scenarios::this_program(&JOB).map_err(Failure::other)?;
    match scenario {
        Scenario::Job { job } => job::main(job, &launcher).map_err(Failure::other),
        Scenario::All(flags) => all(flags, &launcher),
        Scenario::Local(flags) => one(&LOCAL, flags, &launcher),
        Scenario::Activate(flags) => one(&ACTIVATE, flags, &launcher),
        Scenario::Memory(flags) => one(&MEMORY, flags, &launcher),
        Scenario::Remote(flags) => one(&REMOTE, flags, &launcher),
        Scenario::Cluster(flags) => one(&CLUSTER, flags, &launcher),
        Scenario::Storm(StormFlags { flags, store: None }) => one(&STORM, flags, &launcher),
        Scenario::Storm(StormFlags { flags, store: Some(store) }) => {
            storm_on(store, flags, &launcher)
        }
        Scenario::Directory(flags) => one(&DIRECTORY, flags, &launcher),
        Scenario::Ring(flags) => one(&RING, flags, &launcher),
        Scenario::Soak(flags) => soak(flags, &launcher),
        Scenario::Connections(flags) => connections(flags, &launcher),
        Scenario::Strangers(flags) => strangers(flags, &launcher),
    }
}

/// Runs one scenario and shows its table.
fn one(kind: &Kind, flags: &Flags, launcher: &Launcher) -> Result<()> {
    let report = measured(kind, flags, launcher, Instant::now())?;
    publish(&report, &flags.out.reports, flags.out.format)
}

fn measured(kind: &Kind, flags: &Flags, launcher: &Launcher, begun: Instant) -> Result<Report> {
    let say =
        |line: &str| eprintln!("{:>6.1}s  {}: {line}", begun.elapsed().as_secs_f64(), kind.name);
    let compared = (kind.measure)(&flags.settings(kind.usual_threads)?, launcher, &say);
    Ok((kind.report)(&compared.map_err(Failure::other)?))
}

/// Runs every scenario, then shows all goals in one table.
fn all(flags: &Flags, launcher: &Launcher) -> Result<()> {
    let begun = Instant::now();
    let columns = ["goal", "reached", "at most", "verdict"];
    let mut goals = Report::new("bench-all", String::new(), &columns);
    for kind in [&LOCAL, &ACTIVATE, &MEMORY, &REMOTE, &CLUSTER, &STORM, &DIRECTORY, &RING] {
        let report = measured(kind, flags, launcher, begun)?;
        publish(&report, &flags.out.reports, flags.out.format)?;
        for goal in &report.goals {
            goals.push(vec![
                goal.what.clone().into(),
                Cell::number(goal.reached),
                Cell::number(goal.at_most),
                if goal.is_met() { "reached".into() } else { "MISSED".into() },
            ]);
        }
    }
    goals.title = format!("Every goal (emmer-lab bench all), {} s", begun.elapsed().as_secs());
    publish(&goals, &flags.out.reports, flags.out.format)
}

fn storm_on(store: &str, flags: &Flags, launcher: &Launcher) -> Result<()> {
    let settings = flags.settings(STORM.usual_threads)?;
    let compared = storm::measure_on(store, &settings, launcher, &|line| eprintln!("{line}"));
    let report = storm::report(&compared.map_err(Failure::other)?);
    publish(&report, &flags.out.reports, flags.out.format)
}

fn soak(flags: &SoakFlags, launcher: &Launcher) -> Result<()> {
    let plan = soak::Plan {
        rate: flags.rate,
        time: flags.time,
        every: flags.every,
        threads: flags.threads,
    };
    let intervals =
        soak::run(&plan, launcher, &|line| eprintln!("{line}")).map_err(Failure::other)?;
    publish(&soak::report(&plan, &intervals), &flags.out.reports, flags.out.format)
}

fn connections(flags: &ConnectionsFlags, launcher: &Launcher) -> Result<()> {
    let plan = connections::Plan {
        idle: flags.idle,
        silent: flags.silent,
        halves: flags.halves,
        time: flags.time,
    };
    let found =
        connections::run(&plan, launcher, &|line| eprintln!("{line}")).map_err(Failure::other)?;
    publish(&connections::report(&plan, &found), &flags.out.reports, flags.out.format)
}

fn strangers(flags: &StrangersFlags, launcher: &Launcher) -> Result<()> {
    let plan = strangers::Plan { count: flags.count, silent: flags.silent, seed: flags.seed };
    let found =
        strangers::run(&plan, launcher, &|line| eprintln!("{line}")).map_err(Failure::other)?;
    publish(&strangers::report(&found), &flags.out.reports, flags.out.format)
}
