//! Running one mutant: the swarm with a budget of CPU time, then the unit tests.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::tree::Program;
use super::weave::VARIABLE;

/// CPU seconds that the tests of one crate may take before a mutant counts as found by hanging
/// them.
const TESTS_CPU_MAX: u64 = 300;

/// Kilobytes of memory a run may take.
const MEMORY_MAX_KB: u64 = 6 * 1024 * 1024;

/// By how much longer than its CPU time a run may take on a busy machine.
const BUSY: u32 = 40;

/// Interval at which the end of a run is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Findings of the swarm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Find {
    pub(crate) class: String,
    pub(crate) seed: u64,
    pub(crate) invariant: String,
    pub(crate) what: String,
    /// The arguments that replay it.
    pub(crate) replay: String,
}

/// Result of a hunt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hunt {
    pub(crate) found: Vec<Find>,
    pub(crate) seeds: u64,
    pub(crate) cpu_ms: u64,
}

/// Lets the swarm look for `mutant` (0: none) until `arguments` say it is enough.
pub(crate) fn swarm(
    program: &Path,
    mutant: u32,
    cpu_max: u64,
    arguments: &[String],
) -> Result<Hunt, String> {
    // The example ends by itself; the limit is for one that does not.
    let ran = limited(program, arguments, mutant, cpu_max + 60, None)?;
    let mut hunt = read(&ran.output);
    if !ran.ended && hunt.found.is_empty() {
        hunt.found.push(Find {
            class: String::new(),
            seed: 0,
            invariant: "crash".to_owned(),
            what: ran.ending,
            replay: String::new(),
        });
    }
    Ok(hunt)
}

fn read(output: &str) -> Hunt {
    let mut hunt = Hunt::default();
    for line in output.lines() {
        let Ok(told) = serde_json::from_str::<Value>(line) else { continue };
        let text = |key: &str| told[key].as_str().unwrap_or_default().to_owned();
        hunt.cpu_ms = told["cpu_ms"].as_u64().unwrap_or(hunt.cpu_ms);
        if told["kind"] == "found" {
            hunt.found.push(Find {
                class: text("class"),
                seed: told["seed"].as_u64().unwrap_or_default(),
                invariant: text("invariant"),
                what: text("what"),
                replay: text("replay"),
            });
        }
        if told["kind"] == "end" {
            hunt.seeds = told["seeds"].as_u64().unwrap_or_default();
        }
    }
    hunt
}

/// The first test of `programs` that `mutant` fails.
pub(crate) fn tests(programs: &[&Program], mutant: u32) -> Result<Option<String>, String> {
    for program in programs {
        let folder = Some(program.folder.as_path());
        let ran = limited(&program.path, &["--quiet".to_owned()], mutant, TESTS_CPU_MAX, folder)?;
        if !ran.success {
            let failed = ran.output.lines().filter_map(|line| {
                let line = line.trim();
                line.strip_prefix("---- ")?.strip_suffix(" stdout ----").map(str::to_owned)
            });
            let names: Vec<String> = failed.collect();
            return Ok(Some(names.first().cloned().unwrap_or(ran.ending)));
        }
    }
    Ok(None)
}

struct Ran {
    output: String,
    success: bool,
    /// By itself, with an exit code.
    ended: bool,
    ending: String,
}

/// Runs `program` with limits of CPU time and memory, which the shell sets.
fn limited(
    program: &Path,
    arguments: &[String],
    mutant: u32,
    cpu_max: u64,
    folder: Option<&Path>,
) -> Result<Ran, String> {
    let script = format!("ulimit -t {cpu_max}; ulimit -v {MEMORY_MAX_KB}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).arg(program).args(arguments);
    command.env(VARIABLE, mutant.to_string()).env("RUST_BACKTRACE", "0");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    if let Some(folder) = folder {
        command.current_dir(folder);
    }
    let say = |e: std::io::Error| format!("{}: {e}", program.display());
    let started = Instant::now();
    let mut child = command.spawn().map_err(say)?;
    let mut pipe = child.stdout.take().ok_or("no output to read")?;
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // The bytes that were read until the pipe broke are all there are.
        let _ = std::io::Read::read_to_end(&mut pipe, &mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let limit = Duration::from_secs(cpu_max) * BUSY;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(say)? {
            break status;
        }
        if started.elapsed() > limit {
            child.kill().map_err(say)?;
        }
        std::thread::sleep(LOOK_EVERY);
    };
    let output = reader.join().map_err(|_| "the reader of the output ended badly".to_owned())?;
    if let Some(signal) = from_outside(status) {
        return Err(format!("{}: stopped from outside, by signal {signal}", program.display()));
    }
    let ending = status
        .code()
        .map_or_else(|| "ended by a signal".to_owned(), |code| format!("exit code {code}"));
    Ok(Ran { output, success: status.success(), ended: status.code().is_some(), ending })
}

/// The signal that ended a run, if it is one that people send and programs do not earn.
#[cfg(unix)]
fn from_outside(status: std::process::ExitStatus) -> Option<i32> {
    use std::os::unix::process::ExitStatusExt;
    // Hang-up, interrupt, termination.
    status.signal().filter(|signal| [1, 2, 15].contains(signal))
}

#[cfg(not(unix))]
fn from_outside(_: std::process::ExitStatus) -> Option<i32> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_hunt_tells_is_understood() {
        let output = "noise\n{\"kind\":\"found\",\"class\":\"small\",\"seed\":7,\"invariant\":\"I8\",\"what\":\"w\",\
                      \"replay\":\"r\",\"cpu_ms\":5}\n{\"kind\":\"end\",\"seeds\":8,\"cpu_ms\":6}\n";
        let hunt = read(output);
        assert_eq!((hunt.seeds, hunt.cpu_ms, hunt.found.len()), (8, 6, 1));
        assert_eq!((hunt.found[0].seed, hunt.found[0].invariant.as_str()), (7, "I8"));
    }
}
