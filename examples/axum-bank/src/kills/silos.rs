//! The silo processes.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// Silos that are started again where they were.
pub(super) struct Silos {
    store: String,
    dir: PathBuf,
    running: Vec<(String, Child)>,
}

impl Silos {
    /// Starts silos, and waits until each is Active.
    pub(super) async fn start(count: usize, store: &str, dir: &Path) -> emmer::Result<Self> {
        let mut silos = Self { store: store.to_owned(), dir: dir.to_owned(), running: Vec::new() };
        for _ in 0..count {
            let mut child = silos.spawn("127.0.0.1:0")?;
            let out = child.stdout.take().ok_or_else(|| emmer::Error::new("no output"))?;
            let line = BufReader::new(out).lines().next_line().await?.unwrap_or_default();
            let Some(address) = line.strip_prefix("the silo serves at ") else {
                let log = std::fs::read_to_string(silos.log()).unwrap_or_default();
                return Err(emmer::Error::new(format!("a silo did not start: {log}")));
            };
            silos.running.push((address.to_owned(), child));
        }
        Ok(silos)
    }

    /// Ends a silo like a power cut, and starts another in its place. That one may be killed before
    /// it is Active.
    pub(super) async fn kill_and_start(&mut self, which: usize) -> emmer::Result<()> {
        let (address, mut child) = self.running.swap_remove(which);
        child.kill().await?;
        let next = self.spawn(&address)?;
        self.running.push((address, next));
        Ok(())
    }

    fn log(&self) -> PathBuf {
        self.dir.join("silos.log")
    }

    fn spawn(&self, listen: &str) -> emmer::Result<Child> {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.log())?;
        let mut command = Command::new(std::env::current_exe()?);
        // What configures a silo of the user's is not for these.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("EMMER_") {
                command.env_remove(name);
            }
        }
        command.args(["silo", "--store", &self.store, "--cluster-id", "bank"]);
        command.args(["--listen", listen, "--gateway", "127.0.0.1:0"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
        Ok(command.spawn()?)
    }
}
