//! One experiment: its table on stdout, its reports in files.

use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use emmer_sim::Profile;
use emmer_sim::experiments::{Experiment, Options};

use super::progress::Progress;
use crate::output::{TableFormat, show};
use emmer_cli::exit::{Failure, Result};

/// The most silos one world is asked for: the largest goal is 5,000, and memory grows with the
/// square.
const SILOS_MAX: u64 = 20_000;
/// The most seeds one command runs.
const SEEDS_MAX: u64 = 1_000_000;

#[derive(clap::Args)]
pub(super) struct Args {
    /// Parameter sets to compare in one table: default, classic, fast, orleans-2026; a list, or
    /// repeated [default: those the experiment is usually shown with]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    profile: Vec<Profile>,
    /// Number of seeds [default: as many as usual]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u32>::new().range(1..=SEEDS_MAX))]
    seeds: Option<u32>,
    /// Number of silos [default: as many as usual]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u32>::new().range(3..=SILOS_MAX))]
    silos: Option<u32>,
    /// A small version that ends within seconds
    #[arg(long)]
    quick: bool,
    /// Format of the output
    #[arg(long, value_enum, default_value_t = TableFormat::Table)]
    format: TableFormat,
    /// Where the table is written to as CSV and JSON lines
    #[arg(long, value_name = "DIR", default_value = "target/reports")]
    reports: PathBuf,
}

pub(super) fn run(experiment: Experiment, args: &Args) -> Result<()> {
    let mut profiles = Vec::new();
    for profile in &args.profile {
        if !profiles.contains(profile) {
            profiles.push(*profile);
        }
    }
    let options = Options {
        profiles,
        seeds: args.seeds.unwrap_or(0),
        silos: args.silos.unwrap_or(0),
        quick: args.quick,
    };
    let progress = Progress::start(move || format!("{} is being simulated", experiment.name()));
    let report = experiment.run(&options);
    drop(progress);
    let written = report.write(&args.reports).map_err(|error| {
        Failure::other(format!(
            "the reports cannot be written to {}: {error}",
            args.reports.display()
        ))
    })?;
    for path in written {
        eprintln!("wrote {}", path.display());
    }
    show(&report, args.format)
}
