//! `cargo xtask services`: real servers for trying things by hand, as child processes on private
//! ports and in folders of their own. A server this task did not start is never touched.

pub(crate) mod install;
mod servers;
mod state;

use emmer_test_servers::{Trouble, process};

use crate::workspace;
use servers::{SERVERS, Server};
use state::State;

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Start servers that do not run, installing what is missing.
    Up,
    /// End servers this task started.
    Down,
    /// Say what runs where.
    Status,
    /// Install what is missing by the system's package manager.
    Install,
}

/// The names of the servers there are.
pub(crate) fn names() -> Vec<&'static str> {
    SERVERS.iter().map(|server| server.name).collect()
}

/// Does it for the servers named, or for all. Whether every one is as asked.
pub(crate) fn run(action: &Action, names: &[String]) -> Result<bool, String> {
    let root = workspace::root()?;
    let chosen: Vec<&Server> = SERVERS
        .iter()
        .filter(|server| names.is_empty() || names.iter().any(|name| name == server.name))
        .collect();
    if *action == Action::Install {
        return install::install(&chosen);
    }
    let mut fine = true;
    for server in chosen {
        let state = State::of(&root, server.name);
        let line = match action {
            Action::Down => down(server, &state),
            Action::Status => Ok(status(server, &state)),
            Action::Up | Action::Install => {
                up(server, &state).map(|url| format!("{}: {url}", server.name))
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
    Ok(fine)
}

/// The address of a server that was started, or ran already.
pub(crate) fn started(name: &str) -> Result<String, String> {
    let root = workspace::root()?;
    let server = SERVERS.iter().find(|server| server.name == name);
    let server = server.ok_or_else(|| format!("there is no server {name}"))?;
    up(server, &State::of(&root, name)).map_err(|trouble| trouble.to_string())
}

fn up(server: &Server, state: &State) -> Result<String, Trouble> {
    if let Some(running) = state.running() {
        return Ok(running.url);
    }
    if (server.find)().is_err() {
        install::install(&[server]).map_err(Trouble::Failed)?;
        // What is still missing is named by the start.
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
