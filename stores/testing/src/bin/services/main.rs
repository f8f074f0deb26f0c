//! `cargo xtask services`: real servers for trying things by hand, as child processes on private
//! ports and in folders of their own. A server this program did not start is never touched.

#![cfg(unix)]

mod install;
mod servers;
mod state;

use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::{Parser, ValueEnum};
use emmer_test_servers::{Trouble, process};

use servers::{SERVERS, Server};
use state::State;

/// Real servers to try things with, on private ports and in temporary folders
///
/// apt-get, npm (azure, dynamodb), Maven (cassandra) and pip (mongodb, cassandra) install missing
/// parts. Exit codes: 0 every server is as asked; 1 one is not; 2 the command line is wrong.
#[derive(Parser)]
#[command(name = "cargo xtask services", bin_name = "cargo xtask services")]
struct Cli {
    /// Action
    #[arg(value_enum)]
    action: Action,
    /// With which servers [default: all]
    #[arg(value_parser = PossibleValuesParser::new(SERVERS.iter().map(|server| server.name)))]
    names: Vec<String>,
    /// With `up`: end servers that run, and start them without the data of last time
    #[arg(long)]
    fresh: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Action {
    /// Start servers that do not run, and install missing parts
    Up,
    /// End servers that were started
    Down,
    /// Say what runs where
    Status,
    /// Install missing parts by the system's package manager
    Install,
}

fn main() -> ExitCode {
    let Cli { action, names, fresh } = Cli::parse();
    let chosen: Vec<&Server> = SERVERS
        .iter()
        .filter(|server| names.is_empty() || names.iter().any(|name| name == server.name))
        .collect();
    if action == Action::Install {
        return if install::install(&chosen) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let mut fine = true;
    for server in chosen {
        let state = State::of(server.name);
        let line = match action {
            Action::Down => down(server, &state),
            Action::Status => Ok(status(server, &state)),
            Action::Up | Action::Install => {
                let ended =
                    if fresh { down(server, &state).map(|_| state.forget()) } else { Ok(()) };
                ended.and_then(|()| up(server, &state)).map(|url| format!("{}: {url}", server.name))
            }
        };
        match line {
            Ok(line) => println!("{line}"),
            Err(trouble) => {
                println!("{}: {trouble}", server.name);
                fine = false;
            }
        }
    }
    if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn up(server: &Server, state: &State) -> Result<String, Trouble> {
    if let Some(running) = state.running() {
        return Ok(running.url);
    }
    if (server.find)().is_err() {
        // What is still missing is named by the start.
        install::install(&[server]);
    }
    println!("{}: starting...", server.name);
    let started = server.start(state.folder())?;
    state.write(&started)?;
    Ok(started.url)
}

fn down(server: &Server, state: &State) -> Result<String, Trouble> {
    let name = server.name;
    let Some(running) = state.running() else { return Ok(format!("{name}: not running")) };
    process::signal(running.pid, server.end_signal)?;
    state.wait_until_gone(&running)?;
    Ok(format!("{name}: ended"))
}

fn status(server: &Server, state: &State) -> String {
    match state.running() {
        Some(running) => format!("{}: {} (process {})", server.name, running.url, running.pid),
        None => format!("{}: not running", server.name),
    }
}
