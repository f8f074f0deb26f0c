//! The silo processes of measurements: `emmer silo` with grains that tell what ran when.

use std::path::PathBuf;

use emmer_cli::commands::silo;
use emmer_cli::exit::{Failure, Result};

use crate::grains::quick::{Quick, QuickGrain};
use crate::grains::slow::{Slow, SlowGrain};
use crate::grains::turn_log::TurnLog;
use crate::grains::{Probe, ProbeGrain};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    silo: silo::Args,
    /// Where the grains write what ran when
    #[arg(long, value_name = "FILE")]
    turn_log: Option<PathBuf>,
}

/// Runs it until it is asked to stop.
pub(crate) fn run(args: Args) -> Result<()> {
    let unwritten =
        |error: std::io::Error| Failure::other(format!("the turn log cannot be written: {error}"));
    let turns = args.turn_log.map(|path| TurnLog::start(&path)).transpose().map_err(unwritten)?;
    let ended = silo::run(args.silo, |builder| {
        builder
            .host::<dyn Probe, ProbeGrain>()
            .host::<dyn Slow, SlowGrain>()
            .host::<dyn Quick, QuickGrain>()
    });
    if let Some(turns) = turns {
        turns.finish().map_err(unwritten)?;
    }
    ended
}
