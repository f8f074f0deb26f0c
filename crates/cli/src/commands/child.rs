//! Silo processes that a command starts: their arguments, and their logs when they fail.

use std::fs::File;
use std::io::{Read, Result, Seek, SeekFrom};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

/// Number of bytes of a log that an error shows.
const LOG_TAIL: u64 = 2_000;

/// Settings of one silo.
pub struct Settings<'a> {
    /// The URL of the store.
    pub store: &'a str,
    /// The cluster to join.
    pub cluster: &'a str,
    /// Its name for people.
    pub name: &'a str,
    /// Its membership options.
    pub profile: &'a str,
    /// The strategy of classes that name none; None: the default.
    pub placement: Option<&'a str>,
    /// Its log filter, as in `warn`.
    pub log: &'a str,
    /// The folder with what `emmer certs` makes; no TLS when none.
    pub certs: Option<&'a Path>,
}

/// Addresses of a process on this machine.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its network namespace; this process's own when none.
    pub namespace: Option<String>,
    /// Address where it listens for silos.
    pub listen: SocketAddr,
    /// Address where it listens for clients.
    pub gateway: SocketAddr,
    /// Address that other silos dial, when that is another one.
    pub advertise: Option<SocketAddr>,
}

impl Default for Place {
    /// Free ports of the loopback device.
    fn default() -> Self {
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self { namespace: None, listen: free, gateway: free, advertise: None }
    }
}

impl Place {
    /// This program, run there; configured by its arguments only.
    pub fn program(&self) -> Result<Command> {
        let program = std::env::current_exe()?;
        let mut command = match &self.namespace {
            None => Command::new(program),
            Some(name) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", name]).arg(program);
                command
            }
        };
        // The user's settings of a silo are not for these.
        for (variable, _) in std::env::vars_os() {
            if variable.to_str().is_some_and(|name| name.starts_with("EMMER_")) {
                command.env_remove(variable);
            }
        }
        // Ctrl-C on the terminal is for the command alone, which ends them.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        Ok(command)
    }
}

/// This program as a silo with a gateway. It stops when its standard input ends, so it does not
/// outlive its parent.
pub fn silo(settings: &Settings<'_>, place: &Place) -> Result<Command> {
    let Settings { store, cluster, name, profile, placement, log, certs } = settings;
    let mut command = place.program()?;
    command.args(["silo", "--until-stdin-ends", "--listen", &place.listen.to_string()]);
    for (key, file) in [
        ("tls.authority", "authority.pem"),
        ("tls.certificate", "silo.pem"),
        ("tls.key", "silo.key"),
    ] {
        if let Some(folder) = certs {
            command.arg("--set").arg(format!("{key}={}", folder.join(file).display()));
        }
    }
    if certs.is_none() && !place.listen.ip().is_loopback() {
        // Addresses of a network namespace: no other process is in it.
        command.arg("--insecure");
    }
    command.args(["--gateway", &place.gateway.to_string()]);
    if let Some(address) = place.advertise {
        command.args(["--advertise", &address.to_string()]);
    }
    command.args(["--cluster-id", cluster, "--name", name]);
    command.args(["--profile", profile, "--log", log]);
    if let Some(placement) = placement {
        command.args(["--placement", placement]);
    }
    // Not on the command line, where every user sees the password in it.
    command.env("EMMER_STORE", store);
    Ok(command)
}

/// The last lines of a log as the end of an error; nothing when there are none.
pub fn said(log: &Path) -> String {
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
