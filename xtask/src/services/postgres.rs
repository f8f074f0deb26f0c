//! PostgreSQL as a service.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;

use emmer_test_servers::postgres::{PACKAGE, Programs, url};
use emmer_test_servers::{Trouble, process};

use super::state::Running;

/// The package to install, when its programs are missing.
pub(super) fn missing() -> Option<&'static str> {
    Programs::find().is_err().then_some(PACKAGE)
}

/// Starts a server that outlives this task, on the data `folder` holds since last time, or on none.
pub(super) fn start(folder: &Path) -> Result<Running, Trouble> {
    let programs = Programs::find()?;
    let failed = |e: std::io::Error| Trouble::Failed(format!("{}: {e}", folder.display()));
    if !folder.join("data").join("PG_VERSION").is_file() {
        fs::create_dir_all(folder).map_err(failed)?;
        programs.initialize(folder)?;
    }
    let port = process::free_port()?;
    // A group of its own: Ctrl-C in this terminal is not for it.
    let mut child = programs.server(folder, port)?.process_group(0).spawn().map_err(failed)?;
    if let Err(trouble) = programs.wait_until_ready(&mut child, folder, port) {
        process::end(&mut child, "INT");
        return Err(trouble);
    }
    Ok(Running { pid: child.id(), url: url(port, "postgres") })
}
