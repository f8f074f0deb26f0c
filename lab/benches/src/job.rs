//! One contender's run as a value, and the processes that run it.
//!
//! A [`Job`] travels as JSON in a command line; its results come back as JSON lines on standard
//! output. A serving process says `READY` and its address, then answers each line on its standard
//! input with its processor time and its resident memory. It ends when its standard input ends, so
//! it never outlives its parent.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use emmer::Silo;
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use crate::sample::{Sample, nanos};
use crate::{Result, meter};

/// Maximum time of a job in a process of its own before it ends itself, because it hangs.
const LIMIT: Duration = Duration::from_secs(30 * 60);

/// Task of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Job {
    /// Runs a scenario.
    Run {
        /// Its name.
        scenario: String,
        /// Its plan: what a contender does.
        plan: serde_json::Value,
    },
    /// Serves a scenario between processes.
    Serve(Serve),
}

/// Runs the scenario of this name by a plan.
type Run = fn(&str, serde_json::Value, &Launcher) -> Result<Vec<Sample>>;

/// Serves until it is stopped; the address goes out as soon as it is known.
type ServeUntil = fn(&Serve, Ready, oneshot::Receiver<()>) -> Result<()>;

/// Takes the address of a server.
pub type Ready = Box<dyn FnOnce(String)>;

/// The scenarios that a job may name.
#[derive(Clone, Copy, Debug)]
pub struct Scenarios {
    run: Run,
    serve: ServeUntil,
}

impl Scenarios {
    /// The scenarios that `run` knows, and how their servers serve.
    pub const fn new(run: Run, serve: ServeUntil) -> Self {
        Self { run, serve }
    }
}

/// Kind of a serving process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Served {
    /// A floor that echoes from its read loop.
    Echo,
    /// A floor that runs a turn of a grain in its read loop.
    Turns,
    /// A floor that hands each call to an actor.
    Actors,
}

/// A serving process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Serve {
    /// Threads of its runtime.
    pub threads: usize,
    /// Service of the process.
    pub what: What,
}

/// Service of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum What {
    /// A floor on a free port.
    Floor(Served),
    /// A silo with a gateway and every grain of [`crate::grains`], in the cluster of this store.
    Silo(String),
    /// An Emmer silo with TLS, by the certificates in this folder.
    SecuredSilo(String, PathBuf),
}

/// A runtime with this number of threads; with one, it has no other thread than the caller's.
///
/// # Errors
/// The operating system's error.
pub fn runtime(threads: usize) -> Result<Runtime> {
    let mut builder = if threads <= 1 {
        tokio::runtime::Builder::new_current_thread()
    } else {
        tokio::runtime::Builder::new_multi_thread()
    };
    Ok(builder.worker_threads(threads.max(1)).enable_all().build()?)
}

impl Job {
    /// The run of `scenario` by `plan`.
    ///
    /// # Errors
    /// A plan that is no JSON.
    pub fn run_of(scenario: &str, plan: &impl Serialize) -> Result<Self> {
        Ok(Self::Run { scenario: scenario.to_owned(), plan: serde_json::to_value(plan)? })
    }

    /// Runs it here and returns its results.
    ///
    /// # Errors
    /// What went wrong first.
    pub fn run(&self, launcher: &Launcher) -> Result<Vec<Sample>> {
        match self {
            Self::Run { scenario, plan } => {
                (launcher.scenarios.run)(scenario, plan.clone(), launcher)
            }
            Self::Serve(_) => Err("a serving process measures nothing".into()),
        }
    }
}

/// Main function of a process started with a job: runs it, and prints its measurements.
///
/// # Errors
/// A job that cannot be read, or what went wrong in it.
pub fn main(job: &str, launcher: &Launcher) -> Result<()> {
    let job: Job = serde_json::from_str(job)?;
    std::thread::spawn(|| {
        std::thread::sleep(LIMIT);
        eprintln!("a job took longer than {} s", LIMIT.as_secs());
        std::process::exit(1);
    });
    if let Job::Serve(serve) = &job {
        return serve_on_standard_streams(serve, launcher.scenarios);
    }
    let samples = job.run(launcher)?;
    let mut out = std::io::stdout().lock();
    for sample in samples {
        writeln!(out, "{}", serde_json::to_string(&sample)?)?;
    }
    out.flush()?;
    // The process ends without taking its runtimes apart.
    std::process::exit(0)
}

fn serve_on_standard_streams(serve: &Serve, scenarios: Scenarios) -> Result<()> {
    let ready = Box::new(|address: String| {
        println!("READY {address}");
        // A thread of its own: the runtime may have none to spare for blocking reads.
        std::thread::spawn(|| {
            for _ in std::io::stdin().lock().lines().map_while(std::io::Result::ok) {
                let calm = CALM.get().map_or_else(Calm::default, |calm| calm());
                println!(
                    "USED {} {} {} {} {}",
                    nanos(meter::cpu()),
                    meter::resident().unwrap_or(0),
                    calm.fences,
                    nanos(calm.fence_shut),
                    nanos(calm.probe)
                );
            }
            std::process::exit(0);
        });
    });
    // Never sent: the thread ends the process.
    let (_never, stop) = oneshot::channel();
    (scenarios.serve)(serve, ready, stop)
}

/// Starts jobs and servers.
#[derive(Clone, Debug)]
pub struct Launcher {
    how: How,
    scenarios: Scenarios,
}

#[derive(Clone, Debug)]
enum How {
    /// This program with these arguments and the job after them.
    Program { path: PathBuf, arguments: Vec<String> },
    /// Threads of this process: for tests, which have no program.
    Threads,
}

impl Launcher {
    /// The running program with `arguments` before the job.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn of_program(scenarios: Scenarios, arguments: &[&str]) -> Result<Self> {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let how = How::Program { path: std::env::current_exe()?, arguments };
        Ok(Self { how, scenarios })
    }

    /// Threads of this process: for tests, which have no program.
    pub const fn of_threads(scenarios: Scenarios) -> Self {
        Self { how: How::Threads, scenarios }
    }

    /// Runs a job to its end.
    ///
    /// # Errors
    /// What went wrong in it.
    pub fn measure(&self, job: &Job) -> Result<Vec<Sample>> {
        let How::Program { path, arguments } = &self.how else { return job.run(self) };
        let mut command = Command::new(path);
        command.args(arguments).arg(serde_json::to_string(job)?).stdin(Stdio::null());
        let output = command.stderr(Stdio::inherit()).output()?;
        if !output.status.success() {
            return Err(format!("the job {job:?} failed ({})", output.status).into());
        }
        let text = String::from_utf8(output.stdout)?;
        text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    }

    /// Starts a serving process.
    ///
    /// # Errors
    /// What went wrong in it.
    pub fn serve(&self, serve: Serve) -> Result<Server> {
        match &self.how {
            How::Program { path, arguments } => {
                let mut command = Command::new(path);
                command.args(arguments).arg(serde_json::to_string(&Job::Serve(serve))?);
                command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
                Server::of_process(command.spawn()?)
            }
            How::Threads => Server::of_thread(serve, self.scenarios),
        }
    }
}

/// Resources that a serving process has used.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Processor time, user and system.
    pub cpu: Duration,
    /// Bytes in memory now.
    pub resident: u64,
    /// Quiet of its silo.
    pub calm: Calm,
}

/// Disturbance of a silo's membership since its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Calm {
    /// Times that the fence shut.
    pub fences: u64,
    /// Time for which it was shut.
    pub fence_shut: Duration,
    /// The longest time by which a probe, or anything else of the membership, was late, or by which
    /// an answer came after its probe.
    pub probe: Duration,
}

impl Calm {
    /// Of a silo.
    pub fn of(silo: &Silo) -> Self {
        let told = silo.membership_statistics();
        let probe = told.longest_lateness.max(told.counters.longest_answer);
        Self { fences: told.counters.fences, fence_shut: told.fence_shut, probe }
    }

    /// The worse of both.
    #[must_use]
    pub fn or_worse(self, other: Self) -> Self {
        Self {
            fences: self.fences.max(other.fences),
            fence_shut: self.fence_shut.max(other.fence_shut),
            probe: self.probe.max(other.probe),
        }
    }
}

/// Says how calm the silo of this process is.
static CALM: OnceLock<Box<dyn Fn() -> Calm + Send + Sync>> = OnceLock::new();

/// Lets the parent of this process ask how calm its silo is.
pub fn tell_calm(calm: impl Fn() -> Calm + Send + Sync + 'static) {
    // Threads of one process are silos of one process: the first one tells.
    let _ = CALM.set(Box::new(calm));
}

/// A running server; ends when it is dropped.
#[derive(Debug)]
pub struct Server {
    /// Where it listens.
    pub address: String,
    host: Host,
}

#[derive(Debug)]
enum Host {
    Process { child: Child, orders: Option<ChildStdin>, says: BufReader<ChildStdout> },
    Thread(Option<oneshot::Sender<()>>),
}

impl Server {
    fn of_process(mut child: Child) -> Result<Self> {
        let says = child.stdout.take().ok_or("a server without output")?;
        let orders = child.stdin.take();
        let host = Host::Process { child, orders, says: BufReader::new(says) };
        let mut server = Self { address: String::new(), host };
        server.address = server.line("READY ")?;
        Ok(server)
    }

    fn of_thread(serve: Serve, scenarios: Scenarios) -> Result<Self> {
        let (ready, address) = sync_channel(1);
        let (stop, stopped) = oneshot::channel();
        std::thread::spawn(move || {
            let told = ready.clone();
            let told = Box::new(move |address| drop(told.send(Ok(address))));
            let ended = (scenarios.serve)(&serve, told, stopped);
            if let Err(error) = ended {
                let _ = ready.send(Err(error));
            }
        });
        let address = address.recv()??;
        Ok(Self { address, host: Host::Thread(Some(stop)) })
    }

    /// The rest of the next line that begins with `word`.
    fn line(&mut self, word: &str) -> Result<String> {
        let Host::Process { says, .. } = &mut self.host else { return Err("no process".into()) };
        let mut line = String::new();
        while says.read_line(&mut line)? > 0 {
            if let Some(rest) = line.strip_prefix(word) {
                return Ok(rest.trim().to_owned());
            }
            line.clear();
        }
        Err("the server ended".into())
    }

    /// Resources it has used so far; nothing for a thread of this process, whose own are counted
    /// anyway.
    ///
    /// # Errors
    /// When it has ended.
    pub fn usage(&mut self) -> Result<Usage> {
        let Host::Process { orders: Some(orders), .. } = &mut self.host else {
            return Ok(Usage::default());
        };
        orders.write_all(b"used\n")?;
        orders.flush()?;
        let line = self.line("USED ")?;
        let mut words = line.split(' ');
        let mut next = || -> Result<u64> { Ok(words.next().ok_or("half an answer")?.parse()?) };
        let (cpu, resident) = (Duration::from_nanos(next()?), next()?);
        let calm = Calm {
            fences: next()?,
            fence_shut: Duration::from_nanos(next()?),
            probe: Duration::from_nanos(next()?),
        };
        Ok(Usage { cpu, resident, calm })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        match &mut self.host {
            Host::Process { child, orders, .. } => {
                *orders = None;
                // Fails only for a process that has ended, which is as good.
                let _ = child.kill();
                let _ = child.wait();
            }
            // A thread that has ended needs no word.
            Host::Thread(stop) => drop(stop.take().map(|stop| stop.send(()))),
        }
    }
}
