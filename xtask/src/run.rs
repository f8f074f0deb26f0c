//! Runs one command with its output in a log file, a sign of life on the terminal, and a time
//! limit.

use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use crate::excerpt::Excerpt;

/// The longest piece of output handled as one line.
const MAX_LINE_BYTES: u64 = 64 * 1024;

/// Lines read but not yet logged; the command waits when it is this far ahead.
const QUEUED_LINES: usize = 1024;

/// How often the terminal's live line is renewed.
const TICK: Duration = Duration::from_millis(500);

/// How often a sign of life is printed where the output is no terminal.
const HEARTBEAT: Duration = Duration::from_secs(30);

/// How long output may still come after the command itself has ended: a process it left behind may
/// hold the pipe open for ever.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// A command to run.
pub(crate) struct Job {
    /// What the terminal calls it, and the log's file name.
    pub(crate) name: String,
    pub(crate) command: Command,
    /// Where its whole output goes.
    pub(crate) log: PathBuf,
    /// After this long it is killed and counts as failed.
    pub(crate) limit: Duration,
    /// How long to read on after its end; [`GRACE`] but in tests.
    pub(crate) grace: Duration,
}

/// How it went.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) success: bool,
    /// What to say beside a failure: the exit code, or the time limit.
    pub(crate) ending: String,
    pub(crate) took: Duration,
    /// What a failure shows of the output; the log has all of it.
    pub(crate) excerpt: Vec<String>,
}

/// Runs `job`, giving every line of its output to `on_line`. An error means that it could not be
/// run at all.
pub(crate) fn run(job: Job, on_line: &mut dyn FnMut(&str)) -> Result<Ran, String> {
    let Job { name, mut command, log, limit, grace } = job;
    let say = |e: std::io::Error| format!("{name}: {e}");
    let mut log = File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?;
    let live = std::io::stdout().is_terminal();
    let (reader, writer) = std::io::pipe().map_err(say)?;
    command.stdin(Stdio::null()).stdout(writer.try_clone().map_err(say)?).stderr(writer);
    // Without a terminal nobody can press Ctrl-C, and a group of its own lets the time limit end
    // the whole tree.
    let own_group = !live && set_own_group(&mut command);
    let start = Instant::now();
    let mut child = command.spawn().map_err(say)?;
    // The command holds the pipe's writing ends; the reader sees the end only when they are gone.
    drop(command);
    let lines = read_lines(reader);

    let mut screen = Screen::new(&name, live, start);
    let mut excerpt = Excerpt::default();
    let mut ended_at: Option<Instant> = None;
    let mut timed_out = false;
    loop {
        match lines.recv_timeout(TICK) {
            Ok(line) => {
                writeln!(log, "{line}").map_err(say)?;
                on_line(&line);
                screen.line(&line);
                excerpt.push(line);
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                if ended_at.is_none() && child.try_wait().map_err(say)?.is_some() {
                    ended_at = Some(Instant::now());
                }
            }
        }
        screen.tick();
        if ended_at.is_some_and(|at| at.elapsed() > grace) {
            break;
        }
        if start.elapsed() > limit {
            timed_out = true;
            kill(&mut child, own_group);
            break;
        }
    }
    let status = child.wait().map_err(say)?;
    screen.clear();
    let ending = if timed_out {
        format!("killed after {} s, its time limit", limit.as_secs())
    } else {
        status
            .code()
            .map_or_else(|| "ended by a signal".to_owned(), |code| format!("exit code {code}"))
    };
    Ok(Ran {
        success: status.success() && !timed_out,
        ending,
        took: start.elapsed(),
        excerpt: excerpt.lines(),
    })
}

/// Reads lines on a thread of its own, so that the time limit holds while the command is silent.
fn read_lines(reader: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = sync_channel(QUEUED_LINES);
    std::thread::spawn(move || {
        let mut reader = BufReader::new(reader);
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            match reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut bytes) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            let line = String::from_utf8_lossy(&bytes).trim_end_matches(['\n', '\r']).to_owned();
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

#[cfg(unix)]
fn set_own_group(command: &mut Command) -> bool {
    use std::os::unix::process::CommandExt;
    command.process_group(0);
    true
}

#[cfg(not(unix))]
fn set_own_group(_: &mut Command) -> bool {
    false
}

/// Ends the command, and everything it started when it has a process group of its own.
fn kill(child: &mut Child, own_group: bool) {
    if own_group {
        let script = format!("kill -KILL -{}", child.id());
        // When the shell fails the kill below still ends the command itself.
        let _ = Command::new("sh").args(["-c", &script]).status();
    }
    // An error means that it has ended already.
    let _ = child.kill();
}

/// The sign of life: one line that is rewritten on a terminal, a line now and then elsewhere.
struct Screen<'a> {
    name: &'a str,
    live: bool,
    start: Instant,
    last: String,
    shown_at: Instant,
}

impl<'a> Screen<'a> {
    fn new(name: &'a str, live: bool, start: Instant) -> Self {
        println!("--> {name}");
        Self { name, live, start, last: String::new(), shown_at: start }
    }

    fn line(&mut self, line: &str) {
        if !line.trim().is_empty() {
            self.last = line.trim().chars().filter(|c| !c.is_control()).take(70).collect();
        }
    }

    fn tick(&mut self) {
        let every = if self.live { TICK } else { HEARTBEAT };
        if self.shown_at.elapsed() < every {
            return;
        }
        self.shown_at = Instant::now();
        let seconds = self.start.elapsed().as_secs();
        if self.live {
            print!("\r\x1b[K    {seconds} s  {}", self.last);
            // A terminal that cannot be written to loses its live line, nothing else.
            let _ = std::io::stdout().flush();
        } else {
            println!("    {}: {seconds} s, now: {}", self.name, self.last);
        }
    }

    fn clear(&self) {
        if self.live {
            print!("\r\x1b[K");
            let _ = std::io::stdout().flush();
        }
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    fn sh(script: &str, limit: Duration) -> (Ran, Vec<String>) {
        let folder = std::env::temp_dir();
        let name = format!("emmer-xtask-run-{}-{}", std::process::id(), script.len());
        let log = folder.join(&name);
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let mut lines = Vec::new();
        let job = Job { name, command, log: log.clone(), limit, grace: Duration::from_millis(100) };
        let ran = run(job, &mut |line| lines.push(line.to_owned())).unwrap();
        std::fs::remove_file(log).unwrap();
        (ran, lines)
    }

    #[test]
    fn both_streams_arrive_in_order_and_the_exit_code_counts() {
        let (ran, lines) = sh("echo out; echo err >&2; echo more; exit 3", Duration::from_secs(60));
        assert_eq!(lines, ["out", "err", "more"]);
        assert!(!ran.success);
        assert_eq!(ran.ending, "exit code 3");
    }

    #[test]
    fn the_tail_is_bounded_and_the_lines_are_not_lost() {
        let (ran, lines) =
            sh("i=0; while [ $i -lt 2000 ]; do echo $i; i=$((i+1)); done", Duration::from_secs(60));
        assert!(ran.success);
        assert_eq!(lines.len(), 2000);
        assert!(ran.excerpt.len() < 200);
        assert_eq!(ran.excerpt.last().map(String::as_str), Some("1999"));
    }

    #[test]
    fn the_time_limit_ends_a_silent_command() {
        let (ran, _) = sh("sleep 600", Duration::from_millis(50));
        assert!(!ran.success);
        assert!(ran.ending.contains("time limit"), "{}", ran.ending);
    }

    #[test]
    fn a_process_left_behind_does_not_hold_the_step() {
        // The child of the shell keeps the pipe open; the answer must not wait for it.
        let (ran, _) = sh("sleep 120 & echo $!; exit 0", Duration::from_secs(100));
        assert!(ran.success);
        let pid = ran.excerpt.last().unwrap();
        Command::new("kill").arg(pid).status().unwrap();
    }
}
