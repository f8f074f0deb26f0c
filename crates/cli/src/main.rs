//! The `emmer` command: runs silos, shows the membership table, and proves itself in a demo.

use std::process::ExitCode;

use clap::Parser;
use emmer_cli::commands::CommandLine;
use emmer_cli::exit;

fn main() -> ExitCode {
    exit::code("emmer", CommandLine::parse().run())
}
