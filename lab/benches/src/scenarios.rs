//! The scenarios that a process can run, by their names.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::job::{Launcher, Scenarios};
use crate::sample::Sample;
use crate::{Result, activate, cluster, directory, local, memory, remote, ring, storm};

/// All of them.
pub const ALL: Scenarios = Scenarios::new(run, remote::serve);

/// The running program with `arguments` before the job.
///
/// # Errors
/// The operating system's error.
pub fn this_program(arguments: &[&str]) -> Result<Launcher> {
    Launcher::of_program(ALL, arguments)
}

/// Threads of this process: for tests, which have no program.
pub const fn threads() -> Launcher {
    Launcher::of_threads(ALL)
}

fn run(scenario: &str, plan: Value, launcher: &Launcher) -> Result<Vec<Sample>> {
    match scenario {
        "local" => local::run(&read(plan)?),
        "activate" => activate::run(&read(plan)?),
        "memory" => memory::run(&read(plan)?).map(|sample| vec![sample]),
        "remote" => remote::run(&read(plan)?, launcher),
        "cluster" => cluster::run(&read(plan)?, launcher),
        "storm" => storm::run(&read(plan)?, launcher),
        "directory" => directory::run(&read(plan)?, launcher),
        "ring" => ring::run(&read(plan)?),
        _ => Err(format!("there is no scenario `{scenario}`").into()),
    }
}

fn read<P: DeserializeOwned>(plan: Value) -> Result<P> {
    Ok(serde_json::from_value(plan)?)
}
