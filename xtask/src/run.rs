//! Runs one command with its output in a log file, a sign of life on the terminal, and a time
//! limit.

use std::fs::File;
use std::io::{IsTerminal, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::report::{Row, Verdict};
use crate::workspace;

/// Interval of the checks of a command.
const TICK: Duration = Duration::from_millis(100);
/// Interval at which a sign of life is given: on a terminal, and elsewhere.
const SIGNS: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(30)];
/// Bytes of a log's end that a sign of life or a failure looks at.
const TAIL_BYTES: u64 = 256 * 1024;
/// The most lines that a failure shows.
const SHOWN_LINES: usize = 80;

/// State that every step needs.
pub(crate) struct Context {
    pub(crate) root: PathBuf,
    pub(crate) logs: PathBuf,
    /// Like the build machine: Cargo.lock is binding, and a missing part is a failure.
    pub(crate) ci: bool,
    /// Only these packages; all of the tier when empty.
    pub(crate) packages: Vec<String>,
    pub(crate) advisories: bool,
}

impl Context {
    pub(crate) fn new(packages: Vec<String>) -> Result<Self, String> {
        let root = workspace::root()?;
        let logs = root.join("target").join("xtask");
        std::fs::create_dir_all(&logs).map_err(|e| format!("{}: {e}", logs.display()))?;
        let ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
        Ok(Self { root, logs, ci, packages, advisories: false })
    }

    /// A cargo task, with the lock file binding where a build machine runs.
    pub(crate) fn cargo(&self, task: &str) -> Command {
        let mut command = workspace::cargo(&self.root);
        command.arg(task);
        if self.ci {
            command.arg("--locked");
            // Nothing is compiled a second time there.
            command.env("CARGO_INCREMENTAL", "0");
        }
        command
    }

    /// Where the output of the step called `name` goes.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.logs.join(format!("{}.log", name.replace(' ', "-")))
    }

    /// Runs a step that passes or fails as a whole, and takes about `stated` seconds on two quiet
    /// cores. A step that takes twice as long is reported; one that takes ten times as long is
    /// ended.
    pub(crate) fn step(&self, name: &str, stated: u64, command: Command) -> Result<Row, String> {
        let limit = Duration::from_secs(stated.max(60) * 10);
        let ran = run(name, command, &self.log(name), limit)?;
        if !ran.success {
            self.show(name);
        }
        let verdict =
            if ran.success { Verdict::Passed } else { Verdict::Failed(ran.ending.clone()) };
        Ok(Row::check(name, verdict, ran.took).stated(stated))
    }

    /// Shows the end of a failed step's output, and where the rest is.
    pub(crate) fn show(&self, name: &str) {
        let log = self.log(name);
        println!("    {name} FAILED:");
        for line in excerpt(&tail(&log)) {
            println!("    | {line}");
        }
        println!("    the whole output: {}", log.display());
    }

    /// A row for what cannot be checked here: a failure on a build machine.
    pub(crate) fn missing(&self, name: &str, why: String) -> Row {
        println!("    {name}: NOT CHECKED: {why}");
        let verdict = if self.ci { Verdict::Failed(why) } else { Verdict::Skipped(why) };
        Row::check(name, verdict, Duration::ZERO)
    }
}

/// Result of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) success: bool,
    /// Words for a failure: the exit code, or the time limit.
    pub(crate) ending: String,
    pub(crate) took: Duration,
}

/// Runs `command` with its output in `log`. An error means that it could not be run at all.
pub(crate) fn run(
    name: &str,
    mut command: Command,
    log: &Path,
    limit: Duration,
) -> Result<Ran, String> {
    let say = |e: std::io::Error| format!("{name}: {e}");
    let out = File::create(log).map_err(|e| format!("{}: {e}", log.display()))?;
    command.stdin(Stdio::null()).stdout(out.try_clone().map_err(say)?).stderr(out);
    let live = std::io::stdout().is_terminal();
    // Without a terminal Ctrl-C cannot be pressed, and a group of its own lets the time limit end
    // the whole tree.
    let own_group = !live && set_own_group(&mut command);
    println!("--> {name}");
    let start = Instant::now();
    let mut child = command.spawn().map_err(say)?;
    let (mut shown_at, mut timed_out) = (start, false);
    let status = loop {
        if let Some(status) = child.try_wait().map_err(say)? {
            break status;
        }
        if start.elapsed() > limit && !timed_out {
            timed_out = true;
            kill(&mut child, own_group);
        }
        if shown_at.elapsed() > SIGNS[usize::from(!live)] {
            shown_at = Instant::now();
            sign_of_life(name, live, start.elapsed(), log);
        }
        std::thread::sleep(TICK);
    };
    if live {
        print!("\r\x1b[K");
    }
    let ending = if timed_out {
        format!("killed after {} s, its time limit", limit.as_secs())
    } else {
        status.code().map_or_else(|| "ended by a signal".to_owned(), |c| format!("exit code {c}"))
    };
    let success = status.success() && !timed_out;
    Ok(Ran { success, ending, took: start.elapsed() })
}

/// One line: rewritten on a terminal.
fn sign_of_life(name: &str, live: bool, took: Duration, log: &Path) {
    let text = tail(log);
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let last: String = last.trim().chars().filter(|c| !c.is_control()).take(70).collect();
    if live {
        print!("\r\x1b[K    {} s  {last}", took.as_secs());
        // A terminal that cannot be written to loses its live line, nothing else.
        let _ = std::io::stdout().flush();
    } else {
        println!("    {name}: {} s, now: {last}", took.as_secs());
    }
}

/// The end of a file; nothing when it cannot be read.
fn tail(path: &Path) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

/// Text of a failure: from the first error on, else the end.
fn excerpt(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().collect();
    let is_error = |line: &&str| {
        ["error", "Diff in ", "FAIL", "DOES NOT", "MISSED"]
            .iter()
            .any(|s| line.trim_start().starts_with(s))
    };
    let last = lines.len().saturating_sub(SHOWN_LINES);
    let from = lines.iter().position(is_error).map_or(last, |first| first);
    lines.into_iter().skip(from).take(SHOWN_LINES).collect()
}

#[cfg(unix)]
fn set_own_group(command: &mut Command) -> bool {
    use std::os::unix::process::CommandExt as _;
    command.process_group(0);
    true
}

#[cfg(not(unix))]
fn set_own_group(_: &mut Command) -> bool {
    false
}

/// Ends the command, and all its children when it has a process group of its own.
fn kill(child: &mut Child, own_group: bool) {
    if own_group {
        let script = format!("kill -KILL -{}", child.id());
        // When the shell fails the kill below still ends the command itself.
        let _ = Command::new("sh").args(["-c", &script]).status();
    }
    // An error means that it has ended already.
    let _ = child.kill();
}

#[cfg(test)]
#[cfg(unix)]
mod test {
    use super::*;

    fn sh(script: &str, limit: Duration) -> (Ran, String) {
        let name = format!("emmer-xtask-run-{}-{}", std::process::id(), script.len());
        let log = std::env::temp_dir().join(&name);
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let ran = run(&name, command, &log, limit).unwrap();
        let text = std::fs::read_to_string(&log).unwrap();
        std::fs::remove_file(log).unwrap();
        (ran, text)
    }

    #[test]
    fn both_streams_arrive_in_order_and_the_exit_code_counts() {
        let (ran, text) = sh("echo out; echo err >&2; echo more; exit 3", Duration::from_secs(60));
        assert_eq!(text, "out\nerr\nmore\n");
        assert!(!ran.success);
        assert_eq!(ran.ending, "exit code 3");
    }

    #[test]
    fn the_time_limit_ends_a_silent_command_and_what_it_started() {
        let (ran, _) = sh("sleep 600 & sleep 601", Duration::from_millis(50));
        assert!(!ran.success);
        assert!(ran.ending.contains("time limit"), "{}", ran.ending);
    }

    #[test]
    fn the_first_error_is_shown_however_much_follows() {
        let before = (0..500).map(|n| format!("Compiling {n}\n"));
        let after = (0..500).map(|n| format!("  | {n}\n"));
        let text: String =
            before.chain(["error[E0308]: mismatched\n".to_owned()]).chain(after).collect();
        let shown = excerpt(&text);
        assert_eq!((shown.len(), shown[0]), (SHOWN_LINES, "error[E0308]: mismatched"));
        let plain: String = (0..500).map(|n| format!("{n}\n")).collect();
        assert_eq!(excerpt(&plain).last(), Some(&"499"));
    }
}
