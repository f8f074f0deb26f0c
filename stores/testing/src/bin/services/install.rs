//! Installing what servers need, by the system's package manager.

use std::process::Command;

use emmer_test_servers::{Trouble, process};

use super::servers::Server;

/// Installs missing parts for these servers, and shows progress. Returns for each server whether it
/// has everything now.
pub(super) fn install(servers: &[&Server]) -> bool {
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
    fine
}

/// Needs root, as the package manager does.
fn apt(packages: &[&str]) -> Result<(), Trouble> {
    let line = format!("apt-get install -y --no-install-recommends {}", packages.join(" "));
    if !process::is_root() {
        return Err(Trouble::Failed(format!("only root may install it: run `sudo {line}`")));
    }
    println!("installing {} (apt-get, once)", packages.join(", "));
    // An index out of date or a network that is away shows in the second step, with the package's
    // name.
    let updated = apt_get(&["update", "-qq"]);
    let mut arguments = vec!["install", "-y", "-qq", "--no-install-recommends"];
    arguments.extend(packages);
    apt_get(&arguments).map_err(|trouble| match updated {
        Err(first) => Trouble::Failed(format!("{first}; {trouble}")),
        Ok(()) => trouble,
    })
}

fn apt_get(arguments: &[&str]) -> Result<(), Trouble> {
    let mut command = Command::new("apt-get");
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    // The servers' packages would start them as services of the system.
    process::run(command.env("RUNLEVEL", "1"))
}
