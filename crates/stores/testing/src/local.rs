//! What servers have in common that are one process with one folder and one port.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use tempfile::TempDir;

use crate::Trouble;
use crate::process::{POLL, end, free_port, signal};

/// The programs of a server, found on this machine, and how it is started.
pub(crate) trait Starter {
    /// A server on a folder that was given to it before, or never; not started yet.
    fn server(&self, folder: &Path, port: u16) -> Result<Command, Trouble>;
    /// Waits until it serves.
    fn wait_until_ready(&self, child: &mut Child, folder: &Path, port: u16) -> Result<(), Trouble>;
}

/// A running server. Dropped, it ends and its folder is removed.
#[derive(Debug)]
pub(crate) struct Local<S: Starter> {
    pub(crate) starter: S,
    child: Child,
    folder: TempDir,
    pub(crate) port: u16,
}

impl<S: Starter> Local<S> {
    /// Starts a server in a new folder.
    pub(crate) fn start(starter: S, name: &str) -> Result<Self, Trouble> {
        let folder =
            TempDir::with_prefix(format!("emmer-{name}-")).map_err(|e| Trouble::Failed(e.to_string()))?;
        // Between the choice of a port and its use somebody else may take it.
        let (port, child) = match try_launch(&starter, folder.path()) {
            Ok(started) => started,
            Err(_) => try_launch(&starter, folder.path())?,
        };
        Ok(Self { starter, child, folder, port })
    }

    /// Starts a server in a new folder on this port.
    pub(crate) fn start_at(starter: S, name: &str, port: u16) -> Result<Self, Trouble> {
        let folder =
            TempDir::with_prefix(format!("emmer-{name}-")).map_err(|e| Trouble::Failed(e.to_string()))?;
        let child = launch(&starter, folder.path(), port)?;
        Ok(Self { starter, child, folder, port })
    }

    #[cfg(feature = "suite")]
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, name: &str) -> Result<(), Trouble> {
        signal(self.child.id(), name)
    }

    /// Kills it as a crash would.
    pub(crate) fn kill(&mut self) {
        // It may have died by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again on the same data and port.
    pub(crate) fn start_again(&mut self) -> Result<(), Trouble> {
        let begun = Instant::now();
        loop {
            // The kernel may hold the port for a moment.
            match launch(&self.starter, self.folder.path(), self.port) {
                Ok(child) => {
                    self.child = child;
                    return Ok(());
                }
                Err(trouble) if begun.elapsed() > crate::process::READY_LIMIT => return Err(trouble),
                Err(_) => std::thread::sleep(POLL),
            }
        }
    }
}

fn try_launch<S: Starter>(starter: &S, folder: &Path) -> Result<(u16, Child), Trouble> {
    let port = free_port()?;
    launch(starter, folder, port).map(|child| (port, child))
}

fn launch<S: Starter>(starter: &S, folder: &Path, port: u16) -> Result<Child, Trouble> {
    let mut child = starter.server(folder, port)?.spawn().map_err(|e| Trouble::Failed(e.to_string()))?;
    if let Err(trouble) = starter.wait_until_ready(&mut child, folder, port) {
        end(&mut child, "TERM");
        return Err(trouble);
    }
    Ok(child)
}

impl<S: Starter> Drop for Local<S> {
    fn drop(&mut self) {
        end(&mut self.child, "TERM");
    }
}

/// Lets a command write to the file `log` in `folder`.
pub(crate) fn log_to(command: &mut Command, folder: &Path) -> Result<(), Trouble> {
    let failed = |e: std::io::Error| Trouble::Failed(format!("{}: {e}", folder.display()));
    let log = File::options().create(true).append(true).open(folder.join("log")).map_err(failed)?;
    command.stdin(Stdio::null()).stdout(log.try_clone().map_err(failed)?).stderr(log).current_dir(folder);
    Ok(())
}

/// A port of the server's own that its clients do not use: chosen once for a folder, so that a server that is started
/// again is the same one to itself.
pub(crate) fn kept_port(folder: &Path, name: &str) -> Result<u16, Trouble> {
    let failed = |e: std::io::Error| Trouble::Failed(format!("{}: {e}", folder.display()));
    let file = folder.join(name);
    if let Some(port) = fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok()) {
        return Ok(port);
    }
    let port = free_port()?;
    fs::write(&file, port.to_string()).map_err(failed)?;
    Ok(port)
}

/// What a program prints.
pub(crate) fn output_of(command: &mut Command) -> Result<String, Trouble> {
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |words: String| Trouble::Failed(format!("{program}: {words}"));
    let ended = command.stdin(Stdio::null()).output().map_err(|e| failed(e.to_string()))?;
    if !ended.status.success() {
        return Err(failed(String::from_utf8_lossy(&ended.stderr).into_owned()));
    }
    Ok(String::from_utf8_lossy(&ended.stdout).into_owned())
}
