//! One seed, two builds, one trace: the swarm of the runtime as `test` has compiled it, with every
//! assertion and without optimisation, beside the release build, which shares what `guard` has
//! compiled. What depends on overflow checks, on the optimiser or on an assertion with an effect
//! shows up here.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::run::Ran;
use crate::workspace;

/// So many seeds are run by each build: a debug build takes three seconds for one.
const SEEDS: u32 = 4;

/// The longest the step may take, compiling included.
pub(crate) const LIMIT: Duration = Duration::from_secs(10 * 60);

/// The builds. The first one is that of the tests, with the features that the whole workspace asks
/// for.
pub(crate) const BUILDS: [(&str, &[&str]); 2] =
    [("debug", &["--workspace"]), ("release", &["--package", "emmer-swarm", "--release"])];

/// The command that compiles the swarm.
pub(crate) fn build(root: &Path, words: &[&str], locked: bool) -> Command {
    let mut command = workspace::cargo(root);
    command.arg("build");
    if locked {
        command.arg("--locked");
    }
    command.args(words).args(["--example", "runtime"]);
    command
}

/// Where cargo puts what it compiles.
fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// The command that runs the seeds with what was compiled for `build`.
pub(crate) fn run(root: &Path, build: &str) -> Command {
    let name = format!("runtime{}", std::env::consts::EXE_SUFFIX);
    let mut command = Command::new(target(root).join(build).join("examples").join(name));
    command.args(["0", &SEEDS.to_string()]);
    command
}

/// The number over everything that happened, if the line tells it.
pub(crate) fn told(line: &str) -> Option<String> {
    let (_, trace) = line.rsplit_once(", trace ")?;
    let trace = trace.trim();
    (trace.len() == 16 && trace.bytes().all(|b| b.is_ascii_hexdigit())).then(|| trace.to_owned())
}

/// What the step has found, or why it has failed: `runs` are the commands in their order, and what
/// each told.
pub(crate) fn verdict(runs: &[(Ran, Option<String>)]) -> Result<String, String> {
    if let Some((ran, _)) = runs.iter().find(|(ran, _)| !ran.success) {
        return Err(ran.ending.clone());
    }
    let traces: Vec<&String> = runs.iter().filter_map(|(_, told)| told.as_ref()).collect();
    match traces[..] {
        [first, second] if first == second => {
            Ok(format!("{SEEDS} seeds, two builds, trace {first}"))
        }
        [first, second] => {
            Err(format!("the same seeds, and other traces: {first} in debug, {second} in release"))
        }
        _ => Err("a build did not tell its trace".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(success: bool) -> Ran {
        Ran { success, ending: "exit code 1".to_owned(), took: Duration::ZERO, excerpt: Vec::new() }
    }

    #[test]
    fn the_last_line_of_the_swarm_tells_the_trace() {
        let line =
            "4 seeds, 0 failed, 51471 calls ran, 19 seeds per minute, trace 9c4ddd85b0605c31";
        assert_eq!(told(line).as_deref(), Some("9c4ddd85b0605c31"));
        assert_eq!(told("seed 3: R5: a grain, trace of nothing"), None);
    }

    #[test]
    fn only_two_equal_traces_pass() {
        let all = |success, first: &str, second: Option<&str>| {
            let runs =
                [(ran(success), Some(first.to_owned())), (ran(true), second.map(str::to_owned))];
            verdict(&runs)
        };
        assert!(all(true, "a", Some("a")).is_ok());
        assert!(
            all(true, "a", Some("b")).is_err_and(|why| why.contains("a in debug, b in release"))
        );
        assert!(all(true, "a", None).is_err() && all(false, "a", Some("a")).is_err());
    }
}
