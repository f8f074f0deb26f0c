//! `emmer-lab`: what measures Emmer and runs its machines in virtual time. Operators do not need
//! it.
//!
//! | module | subject |
//! |---|---|
//! | [`sim`] | the simulator |
//! | [`mod@bench`] | silos measured on real sockets and a real store |
//! | [`silo`] | the silo processes of measurements |
//! | [`grains`] | the grains that these host |
//! | [`output`] | tables on stdout |
//!
//! Settings, exit codes and the silo itself are those of `emmer`.

mod bench;
mod grains;
mod output;
mod silo;
mod sim;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use emmer_cli::exit::{self, Result};

/// The laboratory of Emmer: simulations and measurements.
#[derive(Parser)]
#[command(name = "emmer-lab", version, after_help = HELP)]
struct Cli {
    /// The log on stderr: off, error, warn, info, debug, trace, or a list such as
    /// `warn,emmer_runtime=debug` [environment: EMMER_LOG] [default: warn]
    #[arg(long, global = true, value_name = "FILTER")]
    log: Option<String>,
    #[command(subcommand)]
    command: Command,
}

/// Text of `--help` about exit codes.
const HELP: &str = "\
Exit codes: those of `emmer`, and 8: a simulated run or a measurement violated an invariant";

/// Subcommand.
#[derive(Subcommand)]
enum Command {
    /// Run the simulator: experiments in virtual time, random scenarios, replays
    ///
    /// Thousands of silos in one process and no socket: the same protocol code that `emmer silo`
    /// runs.
    Sim(sim::Args),
    /// Measure silos on real sockets and a real store
    Bench(bench::Args),
    /// A silo process of a measurement
    #[command(hide = true)]
    Silo(Box<silo::Args>),
}

fn main() -> ExitCode {
    let Cli { log, command } = Cli::parse();
    exit::code("emmer-lab", run(command, log))
}

fn run(command: Command, log: Option<String>) -> Result<()> {
    match command {
        Command::Sim(args) => sim::run(&args),
        Command::Bench(args) => bench::run(&args, log),
        Command::Silo(args) => silo::run(*args),
    }
}

#[test]
fn the_command_line_is_sound() {
    use clap::CommandFactory as _;
    Cli::command().debug_assert();
}
