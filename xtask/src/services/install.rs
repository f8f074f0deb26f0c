//! Installing what servers need, by the system's package manager.

use std::process::Command;
use std::time::Duration;

use emmer_test_servers::{Trouble, process};

use super::servers::Server;
use crate::run::{self, GRACE, Job};
use crate::workspace;

/// How long the package manager is given: the network may be slow.
const LIMIT: Duration = Duration::from_secs(15 * 60);

/// Installs what is missing for these servers, showing what happens. Whether each has all it needs
/// now, one line for each.
pub(super) fn install(servers: &[&Server]) -> Result<bool, String> {
    let missing: Vec<&&Server> = servers
        .iter()
        .filter(|server| !server.packages.is_empty() && (server.find)().is_err())
        .collect();
    let packages: Vec<&str> = missing.iter().flat_map(|server| server.packages).copied().collect();
    let trouble = if packages.is_empty() { None } else { apt(&packages).err() };
    let mut fine = true;
    for server in servers {
        // One that is fetched otherwise is fetched here.
        match (server.find)() {
            Ok(()) => println!("{}: installed", server.name),
            Err(found) => {
                fine = false;
                let why = trouble.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
                println!("{}: {found}{why}", server.name);
            }
        }
    }
    Ok(fine)
}

/// Needs root, as the package manager does.
pub(crate) fn apt(packages: &[&str]) -> Result<(), Trouble> {
    let line = format!("apt-get install -y --no-install-recommends {}", packages.join(" "));
    if !process::is_root() {
        return Err(Trouble::Failed(format!("only root may install it: run `sudo {line}`")));
    }
    println!("installing {} (apt-get, once)", packages.join(", "));
    // An index out of date or a network that is away shows in the second step, with the package's
    // name.
    let updated = step("apt-get update", &["update", "-q"]);
    let mut arguments = vec!["install", "-y", "-q", "--no-install-recommends"];
    arguments.extend(packages);
    step("apt-get install", &arguments).map_err(|trouble| match updated {
        Err(first) => Trouble::Failed(format!("{first}; {trouble}")),
        Ok(()) => trouble,
    })
}

fn step(name: &str, arguments: &[&str]) -> Result<(), Trouble> {
    let mut command = Command::new("apt-get");
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    // The servers' packages would start them as services of the system.
    command.env("RUNLEVEL", "1");
    let logs = workspace::root().map_err(Trouble::Failed)?.join("target").join("xtask");
    std::fs::create_dir_all(&logs)
        .map_err(|e| Trouble::Failed(format!("{}: {e}", logs.display())))?;
    let log = logs.join(format!("{}.log", name.replace(' ', "-")));
    let job = Job { name: name.to_owned(), command, log, limit: LIMIT, grace: GRACE };
    let ran = run::run(job, &mut |_| {}).map_err(Trouble::Failed)?;
    if ran.success {
        return Ok(());
    }
    let said = ran.excerpt.iter().rev().take(3).rev().cloned().collect::<Vec<_>>().join("; ");
    Err(Trouble::Failed(format!("{name}: {}; {said}", ran.ending)))
}
