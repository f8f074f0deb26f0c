//! One silo process is cut from the others under load, while the store and its own callers still
//! reach it.

use std::time::Duration;

use clap::builder::RangedU64ValueParser;

use super::ground::{By, Ground};
use super::silence::{self, Fault, Plan};
use super::stage::Stage;
use super::{Measured, duration};
use emmer_cli::exit::Result;

#[derive(clap::Args)]
pub(super) struct Args {
    /// Number of silo processes
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = RangedU64ValueParser::<usize>::new().range(3..=60))]
    silos: usize,
    /// Number of silos that are cut off, one after the other; each is replaced by a fresh process
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1_000))]
    rounds: usize,
    /// Time for which the cluster is under load before each cut
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    rest: Duration,
    /// Time for which the cut lasts after the silo has ended
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    hold: Duration,
    /// Calls in a second, of each of the processes that call: one next to each silo, one outside
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = RangedU64ValueParser::<u64>::new().range(1..=10_000))]
    rate: u64,
    /// Method by which silos are cut from each other [default: netns, where it is allowed]
    #[arg(long, value_enum)]
    by: Option<By>,
}

pub(super) async fn measure(args: &Args, stage: &Stage) -> Result<Measured> {
    let ground = Ground::divided(args.by, args.silos, stage).await?;
    let plan = Plan {
        fault: Fault::Cut,
        silos: args.silos,
        rounds: args.rounds,
        rest: args.rest,
        hold: args.hold,
        rate: args.rate,
    };
    silence::measure(&plan, stage, ground).await
}
