//! Silo processes that a command starts: how they are called, and what their logs said when they fail.

use std::fs::File;
use std::io::{Read, Result, Seek, SeekFrom};
use std::path::Path;
use std::process::Command;

/// How much of a log an error shows, in bytes.
const LOG_TAIL: u64 = 2_000;

/// What one silo is told.
pub(super) struct Settings<'a> {
    pub(super) store: &'a str,
    pub(super) cluster: &'a str,
    pub(super) name: &'a str,
    pub(super) profile: &'a str,
    pub(super) log: &'a str,
}

/// This program as a silo on free ports, with a gateway. It stops when its standard input ends, so that it does not
/// outlive whoever started it.
pub(super) fn silo(settings: &Settings<'_>) -> Result<Command> {
    let Settings { store, cluster, name, profile, log } = settings;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["silo", "--until-stdin-ends", "--listen", "127.0.0.1:0", "--gateway", "127.0.0.1:0"]);
    command.args(["--cluster-id", cluster, "--name", name]);
    command.args(["--profile", profile, "--log", log]);
    // What configures a silo of the user's is not for these.
    for (variable, _) in std::env::vars_os() {
        if variable.to_str().is_some_and(|name| name.starts_with("EMMER_")) {
            command.env_remove(variable);
        }
    }
    // Not on the command line, where everybody sees the password in it.
    command.env("EMMER_STORE", store);
    // Ctrl-C on the terminal is for the command alone, which ends them.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    Ok(command)
}

/// The last lines of a log as the end of an error; nothing when there are none.
pub(super) fn said(log: &Path) -> String {
    let said = tail(log).unwrap_or_default();
    if said.is_empty() { String::new() } else { format!("; its log ends with: {said}") }
}

fn tail(path: &Path) -> Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL)))?;
    let mut bytes = Vec::new();
    file.take(LOG_TAIL).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let last: Vec<_> = text.lines().rev().take(3).collect();
    Ok(last.into_iter().rev().collect::<Vec<_>>().join(" / "))
}
