//! One silo process is frozen under load, declared dead, and woken again.

use std::time::Duration;

use clap::builder::RangedU64ValueParser;

use super::ground::Ground;
use super::silence::{self, Fault, Plan};
use super::stage::Stage;
use super::{Measured, duration};
use emmer_cli::exit::Result;

#[derive(clap::Args)]
pub(super) struct Args {
    /// Number of silo processes
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = RangedU64ValueParser::<usize>::new().range(2..=200))]
    silos: usize,
    /// Number of silos that are frozen, one after the other; each is replaced by a fresh process
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1_000))]
    rounds: usize,
    /// Time for which the cluster is under load before each freeze
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    rest: Duration,
    /// Time for which the process stays frozen after its death
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    hold: Duration,
    /// Calls in a second, of each of the processes that call: one for each silo, and one more
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = RangedU64ValueParser::<u64>::new().range(1..=10_000))]
    rate: u64,
}

pub(super) async fn measure(args: &Args, stage: &Stage) -> Result<Measured> {
    let plan = Plan {
        fault: Fault::Freeze,
        silos: args.silos,
        rounds: args.rounds,
        rest: args.rest,
        hold: args.hold,
        rate: args.rate,
    };
    silence::measure(&plan, stage, Ground::loopback(stage)).await
}
