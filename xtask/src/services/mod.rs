//! `cargo xtask services`: real servers for trying things by hand, as child processes on private ports and in folders of
//! their own. A server this task did not start is never touched.

mod postgres;
mod state;

use std::process::Command;

use emmer_test_servers::{Trouble, process};

use crate::workspace;
use state::State;

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Start servers that do not run.
    Up,
    /// End servers this task started.
    Down,
    /// Say what runs where.
    Status,
    /// Install what is missing by the system's package manager.
    Install,
}

/// The servers there are.
pub(crate) const NAMES: &[&str] = &["postgres"];

/// Does it for the servers named, or for all. Whether every one is as asked.
pub(crate) fn run(action: &Action, names: &[String]) -> Result<bool, String> {
    let root = workspace::root()?;
    let chosen = NAMES.iter().filter(|name| names.is_empty() || names.iter().any(|n| n == *name));
    let mut fine = true;
    for name in chosen {
        let state = State::of(&root, name);
        let line = match action {
            Action::Up => up(name, &state),
            Action::Down => down(name, &state),
            Action::Status => Ok(status(name, &state)),
            Action::Install => install(name),
        };
        match line {
            Ok(line) => println!("{line}"),
            Err(trouble) => {
                println!("{name}: {trouble}");
                fine = false;
            }
        }
    }
    Ok(fine)
}

fn up(name: &str, state: &State) -> Result<String, Trouble> {
    if let Some(running) = state.running() {
        return Ok(format!("{name}: already running at {}", running.url));
    }
    println!("{name}: starting...");
    let started = match name {
        "postgres" => postgres::start(state.folder())?,
        other => return Err(Trouble::Failed(format!("there is no server {other}"))),
    };
    state.write(&started)?;
    Ok(format!("{name}: {}", started.url))
}

fn down(name: &str, state: &State) -> Result<String, Trouble> {
    let Some(running) = state.running() else { return Ok(format!("{name}: not running")) };
    process::signal(running.pid, "INT")?;
    state.wait_until_gone(&running)?;
    Ok(format!("{name}: ended"))
}

fn status(name: &str, state: &State) -> String {
    match state.running() {
        Some(running) => format!("{name}: {} (process {})", running.url, running.pid),
        None => format!("{name}: not running"),
    }
}

/// Installs a server's package where its programs are missing. Needs root, as the package manager does.
fn install(name: &str) -> Result<String, Trouble> {
    let Some(package) = postgres::missing() else { return Ok(format!("{name}: installed")) };
    println!("{name}: installing {package} (apt-get)...");
    let apt = |arguments: &[&str]| {
        process::run(Command::new("apt-get").args(arguments).env("DEBIAN_FRONTEND", "noninteractive"))
    };
    // An index out of date or a network that is away shows in the second step, with the package's name.
    let updated = apt(&["update", "-q"]);
    let installed = apt(&["install", "-y", "-q", "--no-install-recommends", package]);
    installed.map_err(|trouble| match updated {
        Err(first) => Trouble::Failed(format!("{package} cannot be installed: {first}; {trouble}")),
        Ok(()) => Trouble::Failed(format!("{package} cannot be installed: {trouble}")),
    })?;
    Ok(format!("{name}: installed"))
}
