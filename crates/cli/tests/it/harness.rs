//! Silo processes that end with the test, and conditions with a deadline.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Time limit of every wait. Far beyond the usual time, for slow machines.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The command, configured by nothing but its flags.
pub(crate) fn emmer(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_emmer"));
    command.args(args).stdin(Stdio::null());
    without_settings(command)
}

/// The command without what the environment says of silos.
fn without_settings(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("EMMER_")) {
            command.env_remove(name);
        }
    }
    command
}

/// Runs the command to its end.
pub(crate) fn run(args: &[&str]) -> Output {
    emmer(args).output().unwrap()
}

/// Exit code and stderr of a command that fails: one paragraph, and nothing on stdout.
pub(crate) fn failure(output: &Output) -> (i32, String) {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(said.starts_with("emmer: ") && said.trim_end().lines().count() == 1, "{said}");
    (output.status.code().unwrap(), said)
}

/// Looks until `look` finds something.
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The URL of a SQLite store in `dir`.
pub(crate) fn store_in(dir: &Path) -> String {
    format!("sqlite://{}", dir.join("cluster.db").display())
}

/// A process that is killed when the test is over.
pub(crate) struct Process {
    child: Child,
    lines: mpsc::Receiver<String>,
    errors: mpsc::Receiver<String>,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines of a stream, as they come; at most a few thousand wait to be read.
fn lines(stream: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::sync_channel(4_096);
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

impl Process {
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::of(emmer(args))
    }

    fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = lines(child.stdout.take().unwrap());
        let errors = lines(child.stderr.take().unwrap());
        Self { child, lines: out, errors }
    }

    /// The lines of stdout from here on up to the first that holds `part`; none when the process
    /// ends before.
    pub(crate) fn lines_to(&self, part: &str) -> Option<Vec<String>> {
        let deadline = Instant::now() + PATIENCE;
        let mut lines = Vec::new();
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => lines.push(line),
                Err(mpsc::RecvTimeoutError::Disconnected) => return None,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    panic!("no line with {part:?} within {PATIENCE:?}")
                }
            }
            if lines.last().is_some_and(|line| line.contains(part)) {
                return Some(lines);
            }
        }
    }

    /// The lines of stdout that were not taken yet, up to the end of the process.
    pub(crate) fn rest(&self) -> Vec<String> {
        self.lines.iter().collect()
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Sends a signal by name, as in `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        let sent =
            Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for the end of the process. Returns its status and its stderr.
    pub(crate) fn end(&mut self) -> (ExitStatus, String) {
        let status = wait_for("the end of a process", || self.child.try_wait().unwrap());
        (status, self.errors.iter().collect::<Vec<_>>().join("\n"))
    }
}

/// A silo process that was Active once.
pub(crate) struct Silo {
    pub(crate) process: Process,
    /// `ip:port:epoch`.
    pub(crate) address: String,
    /// `ip:port` of the gateway.
    pub(crate) gateway: SocketAddr,
}

impl Silo {
    /// Starts one on `listen` with a gateway on a free port and waits until it is Active.
    pub(crate) fn start(store: &str, listen: &str, more: &[&str]) -> Self {
        let silo = Self::try_start(store, listen, more);
        silo.unwrap_or_else(|(status, said)| panic!("the silo ended with {status}: {said}"))
    }

    /// Starts a silo that may fail: exit status and stderr then.
    pub(crate) fn try_start(
        store: &str,
        listen: &str,
        more: &[&str],
    ) -> Result<Self, (ExitStatus, String)> {
        Self::launch(store, listen, more).active()
    }

    /// Starts it in a process with at most `count` descriptors.
    #[cfg(unix)]
    pub(crate) fn with_descriptors(store: &str, count: usize) -> Self {
        let silo = emmer(&["silo", "--store", store, "--cluster-id", "test"]);
        let mut shell = Command::new("sh");
        let script = format!("ulimit -n {count}; exec \"$0\" \"$@\"");
        shell.args(["-c", &script]).arg(silo.get_program()).args(silo.get_args());
        shell.args(["--listen", "127.0.0.1:0", "--gateway", "127.0.0.1:0"]).stdin(Stdio::null());
        let started = Launched(Process::of(without_settings(shell))).active();
        started.unwrap_or_else(|(status, said)| panic!("the silo ended with {status}: {said}"))
    }

    /// Starts the process without waiting.
    pub(crate) fn launch(store: &str, listen: &str, more: &[&str]) -> Launched {
        let mut args = vec!["silo", "--store", store, "--cluster-id", "test", "--listen", listen];
        args.extend(["--gateway", "127.0.0.1:0"]);
        args.extend(more);
        Launched(Process::start(&args))
    }

    /// `ip:port`.
    pub(crate) fn endpoint(&self) -> &str {
        self.address.rsplit_once(':').unwrap().0
    }
}

/// A silo process of which nothing is known yet.
pub(crate) struct Launched(Process);

impl Launched {
    /// Waits for its line, or for its end.
    pub(crate) fn active(mut self) -> Result<Silo, (ExitStatus, String)> {
        let Some(line) =
            self.0.lines_to("is active in cluster test").and_then(|mut lines| lines.pop())
        else {
            return Err(self.0.end());
        };
        let address = line.split_whitespace().nth(1).unwrap().to_owned();
        let gateway = line.rsplit_once(' ').unwrap().1.parse().unwrap();
        Ok(Silo { process: self.0, address, gateway })
    }
}

/// Output of `emmer members` about the cluster.
pub(crate) fn members(store: &str, cluster: &str) -> Value {
    let output = run(&["members", "--store", store, "--cluster-id", cluster, "--format", "json"]);
    // 10: no silo has ever joined it.
    let is_read = matches!(output.status.code(), Some(0 | 10));
    assert!(is_read, "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The row of one silo, if the table has it.
pub(crate) fn row(store: &str, address: &str) -> Option<Value> {
    let document = members(store, "test");
    document["silos"].as_array().unwrap().iter().find(|s| s["address"] == address).cloned()
}

/// Waits until the silo's row has this status, and returns it.
pub(crate) fn wait_status(store: &str, address: &str, status: &str) -> Value {
    wait_for(&format!("{address} to be {status}"), || {
        row(store, address).filter(|r| r["status"] == status)
    })
}
