//! The `emmer` command: runs silos, shows the membership table, and proves itself in a demo.

use std::process::ExitCode;

use clap::Parser;
use emmer_cli::commands::Command;
use emmer_cli::exit;

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
    exit::code("emmer", command.run(log))
}

#[test]
fn the_command_line_is_sound() {
    use clap::CommandFactory as _;
    Cli::command().debug_assert();
}
