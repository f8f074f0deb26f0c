//! The `emmer` command: runs silos, shows the membership table, and proves itself in a demo.

mod commands;
mod config;
mod exit;
mod grains;
mod logging;
mod text;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use crate::commands::Command;

/// Virtual actors in clusters that manage themselves.
#[derive(Parser)]
#[command(name = "emmer", version, after_help = exit::HELP)]
struct Cli {
    /// What to log on stderr: off, error, warn, info, debug, trace, or a list such as
    /// `warn,emmer_runtime=debug` [environment: EMMER_LOG] [default: warn]
    #[arg(long, global = true, value_name = "FILTER")]
    log: Option<String>,
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    let Cli { log, command } = Cli::parse();
    match command.run(log) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // With the reader gone (`2>&1 | head`) the exit code still tells.
            let _ = writeln!(std::io::stderr(), "emmer: {failure}");
            failure.code.into()
        }
    }
}
