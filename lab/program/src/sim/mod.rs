//! `emmer-lab sim`: the simulator from the command line.
//!
//! | module | subject |
//! |---|---|
//! | [`experiment`] | the experiments: tables, and reports in files |
//! | [`seeds`] | random scenarios: many of them, one again exactly, one made smaller |
//! | [`progress`] | the line on stderr that moves meanwhile |

mod experiment;
mod progress;
mod seeds;

use clap::Subcommand;
use emmer_sim::experiments::Experiment;

use emmer_cli::exit::Result;

#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Crash to Dead for four kinds of crash, what probing costs, how fast views spread
    Detect(experiment::Args),
    /// Wrong deaths and detection under message loss
    Loss(experiment::Args),
    /// Every silo starts at once
    #[command(name = "coldstart")]
    ColdStart(experiment::Args),
    /// A tenth of the cluster crashes at once
    MassCrash(experiment::Args),
    /// One silo cannot be reached, the store can: how long does it still run turns?
    Isolate(experiment::Args),
    /// Replay the random scenario of one seed exactly; exit code 8 when it violates an invariant
    Run(seeds::RunArgs),
    /// Run the random scenarios of many seeds; exit code 8 when one violates an invariant
    Swarm(seeds::SwarmArgs),
    /// Make the scenario of a seed that violates an invariant as small as can be
    Shrink(seeds::ShrinkArgs),
}

pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.command {
        Command::Detect(args) => experiment::run(Experiment::Detect, args),
        Command::Loss(args) => experiment::run(Experiment::Loss, args),
        Command::ColdStart(args) => experiment::run(Experiment::ColdStart, args),
        Command::MassCrash(args) => experiment::run(Experiment::MassCrash, args),
        Command::Isolate(args) => experiment::run(Experiment::Isolate, args),
        Command::Run(args) => seeds::run(args),
        Command::Swarm(args) => seeds::swarm(args),
        Command::Shrink(args) => seeds::shrink(args),
    }
}
