//! The processes of the chat, for what kills them.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::CLUSTER;

/// Kind of a process.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// It hosts grains.
    Silo,
    /// It serves pages.
    Web,
}

/// A process that is started again where it was.
#[derive(Debug)]
pub struct Process {
    kind: Kind,
    program: PathBuf,
    dir: PathBuf,
    address: String,
    child: Child,
}

impl Process {
    /// Starts `program` in `dir`, and waits until it says where it serves.
    ///
    /// # Errors
    /// It says nothing; with its log.
    pub async fn start(kind: Kind, program: &Path, dir: &Path) -> emmer::Result<Self> {
        let mut child = spawn(kind, program, dir, "127.0.0.1:0")?;
        let out = child.stdout.take().ok_or_else(|| emmer::Error::new("no output"))?;
        let line = BufReader::new(out).lines().next_line().await?.unwrap_or_default();
        let says = match kind {
            Kind::Silo => "the silo serves at ",
            Kind::Web => "the chat is open at http://",
        };
        let Some(address) = line.strip_prefix(says) else {
            let log = std::fs::read_to_string(log(dir)).unwrap_or_default();
            return Err(emmer::Error::new(format!("a process did not start: {log}")));
        };
        let (program, dir) = (program.to_owned(), dir.to_owned());
        Ok(Self { kind, program, dir, address: address.to_owned(), child })
    }

    /// Where it listens.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Ends it like a power cut, and starts another in its place. That one may be killed before it
    /// serves.
    ///
    /// # Errors
    /// A process could not be killed or started.
    pub async fn kill_and_start(&mut self) -> emmer::Result<()> {
        self.kill().await?;
        self.child = spawn(self.kind, &self.program, &self.dir, &self.address)?;
        Ok(())
    }

    /// Ends it like a power cut.
    ///
    /// # Errors
    /// The process could not be killed.
    pub async fn kill(&mut self) -> emmer::Result<()> {
        Ok(self.child.kill().await?)
    }
}

fn log(dir: &Path) -> PathBuf {
    dir.join("processes.log")
}

fn spawn(kind: Kind, program: &Path, dir: &Path, listen: &str) -> emmer::Result<Child> {
    let log = std::fs::OpenOptions::new().create(true).append(true).open(log(dir))?;
    let mut command = Command::new(program);
    // Settings of the user's own silos would change these.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("EMMER_") {
            command.env_remove(name);
        }
    }
    let store = format!("sqlite://{}?mode=rwc", dir.join("chat.db").display());
    match kind {
        Kind::Silo => command.args(["silo", "--cluster-id", CLUSTER, "--gateway", "127.0.0.1:0"]),
        Kind::Web => command.arg("web"),
    };
    command.args(["--store", &store, "--listen", listen]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
    Ok(command.spawn()?)
}
