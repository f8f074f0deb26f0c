//! Silo processes: each is killed when its handle is dropped, and stops by itself when its standard
//! input ends, should this process be killed.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use emmer::tables::{SiloAddress, SiloEntry, SiloStatus};
use rustix::process::{Pid, Signal, kill_process};

use super::ground::Ground;
use super::stage::Stage;
use emmer_cli::commands::child;
use emmer_cli::exit::{Failure, Result};

/// Interval at which an ended process is looked for.
const POLL: Duration = Duration::from_millis(5);

/// Time that silos may take to leave in good order.
const LEAVE_LIMIT: Duration = Duration::from_secs(30);

/// One silo process.
pub(super) struct Process {
    pub(super) name: String,
    /// Its place on the ground.
    pub(super) slot: usize,
    pub(super) log: PathBuf,
    /// Its turn log, when it writes one.
    pub(super) turns: PathBuf,
    child: Child,
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails only for a process that has ended, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    /// Sends a signal.
    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        kill_process(Pid::from_child(&self.child), signal)
            .map_err(|error| Failure::other(format!("silo {}: {error}", self.name)))
    }

    /// Waits for the end of the process, not longer than `limit`.
    pub(super) async fn ended(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        let begun = Instant::now();
        loop {
            let ended = self.child.try_wait();
            let ended =
                ended.map_err(|error| Failure::other(format!("silo {}: {error}", self.name)))?;
            if ended.is_some() || begun.elapsed() > limit {
                return Ok(ended);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// This process, when it is not running.
    fn if_ended(&mut self) -> Option<&Self> {
        let running = matches!(self.child.try_wait(), Ok(None));
        (!running).then_some(self)
    }
}

/// The processes of a measurement.
pub(super) struct Processes<'a> {
    stage: &'a Stage,
    ground: Ground,
    log: &'a str,
    turn_logs: bool,
    /// Settings besides those of the stage, as `key=value`.
    settings: Vec<String>,
    started: usize,
    pub(super) running: Vec<Process>,
}

impl<'a> Processes<'a> {
    /// None yet; `log` is what each logs.
    pub(super) fn new(stage: &'a Stage, log: &'a str) -> Self {
        Self {
            stage,
            ground: Ground::loopback(stage),
            log,
            turn_logs: false,
            settings: Vec::new(),
            started: 0,
            running: Vec::new(),
        }
    }

    /// Silo processes on this ground, with turn logs.
    pub(super) fn logged(stage: &'a Stage, log: &'a str, ground: Ground) -> Self {
        Self { ground, turn_logs: true, ..Self::new(stage, log) }
    }

    /// These settings too, as `key=value`.
    pub(super) fn with(mut self, settings: &[String]) -> Self {
        self.settings.extend_from_slice(settings);
        self
    }

    /// The numbers of the running processes.
    pub(super) fn pids(&self) -> impl Iterator<Item = u32> {
        self.running.iter().map(|process| process.child.id())
    }

    /// Where they run.
    pub(super) const fn ground(&self) -> &Ground {
        &self.ground
    }

    /// Starts another one.
    pub(super) fn start(&mut self) -> Result<()> {
        self.start_in(self.started)
    }

    /// Starts another one at a place of the ground.
    pub(super) fn start_in(&mut self, slot: usize) -> Result<()> {
        self.started += 1;
        let name = format!("s{}", self.started);
        let failed = |error: std::io::Error| {
            Failure::other(format!("silo {name} cannot be started: {error}"))
        };
        let log = self.stage.dir().join(format!("silo-{name}.log"));
        let out = File::create(&log).map_err(failed)?;
        let errors = out.try_clone().map_err(failed)?;
        let settings = child::Settings {
            placement: None,
            store: self.ground.store(),
            cluster: self.stage.cluster.as_str(),
            name: &name,
            profile: &self.stage.profile,
            certs: None,
            log: self.log,
        };
        let mut command = child::silo(&settings, &self.ground.silo(slot)).map_err(failed)?;
        let turns = self.stage.dir().join(format!("turns-{name}.log"));
        if self.turn_logs {
            command.arg("--turn-log").arg(&turns);
        }
        for setting in &self.settings {
            command.args(["--set", setting]);
        }
        command.stdin(Stdio::piped()).stdout(out).stderr(errors);
        let child = command.spawn().map_err(failed)?;
        self.ground.started(slot, child.id());
        self.running.push(Process { name, slot, log, turns, child });
        Ok(())
    }

    /// Waits until every running one is Active.
    pub(super) async fn wait_active(&mut self) -> Result<Vec<SiloEntry>> {
        let stage = self.stage;
        let names: Vec<String> = self.running.iter().map(|process| process.name.clone()).collect();
        let running = &mut self.running;
        let found = stage.wait_table("every silo process to be Active", |silos| {
            if let Some(ended) = running.iter_mut().find_map(Process::if_ended) {
                let name = &ended.name;
                let why =
                    format!("silo {name} ended before all were Active{}", child::said(&ended.log));
                return Some(Err(Failure::other(why)));
            }
            let active = |name: &String| {
                silos.iter().find(|s| *s.instance_name == **name && is_active(s)).cloned()
            };
            names.iter().map(active).collect::<Option<Vec<_>>>().map(Ok)
        });
        found.await?
    }

    /// Takes those out that have ended without being asked to.
    pub(super) fn take_ended(&mut self) -> Vec<Process> {
        self.running.extract_if(.., |process| process.if_ended().is_some()).collect()
    }

    /// Lets all of them leave in good order.
    pub(super) async fn stop(&mut self) -> Result<()> {
        for process in &mut self.running {
            drop(process.child.stdin.take());
        }
        for process in &mut self.running {
            if process.ended(LEAVE_LIMIT).await?.is_none() {
                return Err(Failure::other(format!("silo {} does not leave", process.name)));
            }
        }
        Ok(())
    }

    /// Takes out the process with this name.
    pub(super) fn take(&mut self, name: &str) -> Result<Process> {
        let at = self.running.iter().position(|process| process.name == name);
        at.map(|at| self.running.remove(at))
            .ok_or_else(|| Failure::other(format!("no silo {name} is running")))
    }
}

pub(super) fn is_active(silo: &SiloEntry) -> bool {
    silo.status == SiloStatus::Active
}

/// The silo that round `round` is about: another place in the list each time.
pub(super) fn victim(silos: &[SiloEntry], round: usize) -> Result<(SiloAddress, String)> {
    // A stride that has no factor in common with usual sizes.
    let silo = silos.get((round * 7 + 3) % silos.len().max(1));
    let silo = silo.ok_or_else(|| Failure::other("no silo is running"))?;
    Ok((silo.address, silo.instance_name.to_string()))
}
