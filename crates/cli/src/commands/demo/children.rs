//! The silo processes. None outlives the demo: each is killed when its handle is dropped, and each
//! stops by itself when its standard input ends, in case the demo is killed.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::time::Duration;

use emmer::placement::Strategy;
use emmer::tables::{SiloEntry, SiloStatus};

use super::PATIENCE;
use super::watch::Watcher;
use crate::commands::child;
use crate::exit::{Failure, Result};

/// Time between two looks for an ended process.
const POLL: Duration = Duration::from_millis(20);

/// One silo process.
struct Silo {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Drop for Silo {
    fn drop(&mut self) {
        // Fails only for a process that has ended, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Silo {
    fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child
            .try_wait()
            .map_err(|error| Failure::other(format!("silo {}: {error}", self.name)))
    }

    /// Waits for its end, which is to be in good order.
    async fn left(&mut self, deadline: tokio::time::Instant) -> Result<()> {
        loop {
            match self.ended()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => {
                    return Err(self.failure(&format!("did not stop in good order ({status})")));
                }
                None if tokio::time::Instant::now() > deadline => {
                    return Err(self.failure("did not stop in good order"));
                }
                None => tokio::time::sleep(POLL).await,
            }
        }
    }

    fn failure(&self, what: &str) -> Failure {
        let said = child::said(&self.log);
        Failure::other(format!("silo {} {what}{said}", self.name))
    }
}

/// The processes of the demo's cluster.
pub(super) struct Cluster {
    dir: PathBuf,
    url: String,
    id: String,
    profile: String,
    placement: Strategy,
    certs: Option<PathBuf>,
    started: usize,
    silos: Vec<Silo>,
}

impl Cluster {
    /// No process yet; logs go to `dir`.
    pub(super) const fn new(
        dir: PathBuf,
        url: String,
        id: String,
        profile: String,
        placement: Strategy,
        certs: Option<PathBuf>,
    ) -> Self {
        Self { dir, url, id, profile, placement, certs, started: 0, silos: Vec::new() }
    }

    /// Starts the next silo, on free ports, and returns its name: `a`, `b`, ...
    pub(super) fn start(&mut self) -> Result<String> {
        let letter = u8::try_from(self.started).map_or(b'z', |n| b'a'.saturating_add(n).min(b'z'));
        let name = char::from(letter).to_string();
        self.started += 1;
        let log = self.dir.join(format!("silo-{name}.log"));
        let failed = |error: std::io::Error| {
            Failure::other(format!("silo {name} cannot be started: {error}"))
        };
        let out = File::create(&log).map_err(failed)?;
        let errors = out.try_clone().map_err(failed)?;
        let settings = child::Settings {
            store: &self.url,
            cluster: &self.id,
            name: &name,
            profile: &self.profile,
            placement: Some(self.placement.name()),
            certs: self.certs.as_deref(),
            log: &std::env::var("EMMER_LOG").unwrap_or_else(|_| "info".to_owned()),
        };
        let mut command = child::silo(&settings, &child::Place::default()).map_err(failed)?;
        command.stdin(Stdio::piped()).stdout(out).stderr(errors);
        let child = command.spawn().map_err(failed)?;
        self.silos.push(Silo { name: name.clone(), child, log });
        Ok(name)
    }

    /// The names of the running ones.
    pub(super) fn names(&self) -> Vec<String> {
        self.silos.iter().map(|silo| silo.name.clone()).collect()
    }

    /// Waits until the table says that `name` is Active; fails at once when its process ends.
    pub(super) async fn wait_active(&mut self, name: &str, watcher: &Watcher) -> Result<SiloEntry> {
        let active = |s: &SiloEntry| *s.instance_name == *name && s.status == SiloStatus::Active;
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            if let Some(entry) = watcher.find(active) {
                return Ok(entry);
            }
            if let Some(silo) = self.silos.iter_mut().find(|silo| silo.name == name)
                && let Some(status) = silo.ended()?
            {
                return Err(silo.failure(&format!("ended before it was Active ({status})")));
            }
            if tokio::time::Instant::now() > deadline {
                let late =
                    format!("silo {name} was not Active within {}", crate::text::span(PATIENCE));
                return Err(Failure::other(late));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// The name of the `which`-th running silo.
    pub(super) fn nth(&self, which: u64) -> Result<String> {
        let count = self.silos.len().max(1) as u64;
        let at = usize::try_from(which % count).unwrap_or(0);
        let silo = self.silos.get(at).ok_or_else(|| Failure::other("no silo is left"))?;
        Ok(silo.name.clone())
    }

    fn take(&mut self, name: &str) -> Result<Silo> {
        let at = self.silos.iter().position(|silo| silo.name == name);
        let at = at.ok_or_else(|| Failure::other(format!("silo {name} does not run")))?;
        Ok(self.silos.remove(at))
    }

    /// Ends a silo as a crash would (SIGKILL).
    pub(super) fn kill(&mut self, name: &str) -> Result<()> {
        let mut silo = self.take(name)?;
        let failed = |error: std::io::Error| {
            Failure::other(format!("silo {} cannot be killed: {error}", silo.name))
        };
        silo.child.kill().map_err(failed)?;
        silo.child.wait().map_err(failed)?;
        Ok(())
    }

    /// Stops a silo in good order.
    pub(super) async fn leave(&mut self, name: &str) -> Result<()> {
        let mut silo = self.take(name)?;
        drop(silo.child.stdin.take());
        silo.left(tokio::time::Instant::now() + PATIENCE).await
    }

    /// Stops all silos in good order, and says so when one does not end well.
    pub(super) async fn stop(&mut self) -> Result<()> {
        for silo in &mut self.silos {
            drop(silo.child.stdin.take());
        }
        let deadline = tokio::time::Instant::now() + PATIENCE;
        for mut silo in self.silos.drain(..) {
            silo.left(deadline).await?;
        }
        Ok(())
    }
}
