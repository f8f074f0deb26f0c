//! The guard of instruction counts: the benches of `benches/benches/guard.rs` run once each under
//! callgrind, and their counts are compared with `benches/guard.json`. No clock takes part: two
//! runs of one program count alike.
//!
//! Another compiler or another standard library counts differently; then the baseline is written
//! anew, in a commit that says why: `cargo xtask guard --renew`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::run::{self, Job};
use crate::{deny, workspace};

/// The version of the runner; it must be that of the library in `Cargo.toml`.
const VERSION: &str = "0.20.0";

/// Where the baseline is.
const BASELINE: &str = "benches/guard.json";

/// How much above its baseline a count may be, in percent. As far below it the baseline is out of
/// date.
const TOLERANCE_PERCENT: u64 = 5;

/// How long `cargo xtask guard` may take, compiling included.
const LIMIT: Duration = Duration::from_secs(40 * 60);

/// Instructions by bench.
pub(crate) type Counts = BTreeMap<String, u64>;

/// Whether valgrind is installed.
pub(crate) fn has_valgrind() -> bool {
    Command::new("valgrind").arg("--version").output().is_ok_and(|out| out.status.success())
}

/// The runner of the right version: our own, else the one on the path.
pub(crate) fn find(root: &Path) -> Option<PathBuf> {
    let name = format!("gungraun-runner{}", std::env::consts::EXE_SUFFIX);
    let own = tools_bin(root).join(&name);
    [own, PathBuf::from(name)]
        .into_iter()
        .find(|program| deny::version_of(program).is_some_and(|version| version == VERSION))
}

fn tools_bin(root: &Path) -> PathBuf {
    deny::tools_dir(root).join("bin")
}

/// The command that compiles and installs the runner.
pub(crate) fn install(root: &Path) -> Command {
    deny::install_tool(root, "gungraun-runner", VERSION)
}

/// The command that counts; it prints a JSON object for each bench.
pub(crate) fn count(root: &Path, locked: bool) -> Command {
    let mut command = workspace::cargo(root);
    command.arg("bench");
    if locked {
        command.arg("--locked");
    }
    command.args(["--package", "emmer-benches", "--bench", "guard", "--", "--output-format=json"]);
    // The benches look for the runner on the path.
    let mut path = OsString::from(tools_bin(root));
    if let Some(rest) = std::env::var_os("PATH") {
        path.push(if cfg!(windows) { ";" } else { ":" });
        path.push(rest);
    }
    command.env("PATH", path);
    command
}

/// The name and the count in a line of the runner's output, if it is about a bench.
pub(crate) fn counted(line: &str) -> Option<(String, u64)> {
    let json: Value = serde_json::from_str(line).ok()?;
    let name = json["function_name"].as_str()?;
    let count = json["profiles"][0]["data"]["total"]["metrics"]["Ir"]["values"]["new"].as_u64()?;
    Some((name.to_owned(), count))
}

/// What comparing says: a line for each bench, and whether all is well.
pub(crate) struct Comparison {
    pub(crate) lines: Vec<String>,
    pub(crate) fine: bool,
}

/// Compares counts with the baseline.
pub(crate) fn compare(baseline: &Counts, counts: &Counts) -> Comparison {
    let mut lines = Vec::new();
    let mut fine = true;
    for (name, wanted) in baseline {
        let Some(count) = counts.get(name) else {
            fine = false;
            lines.push(format!("{name}: FAILED, not counted"));
            continue;
        };
        let slack = wanted * TOLERANCE_PERCENT / 100;
        let verdict = if *count > wanted + slack {
            fine = false;
            "FAILED, more than the baseline allows"
        } else if *count + slack < *wanted {
            "ok, and better: renew the baseline"
        } else {
            "ok"
        };
        lines.push(format!("{name}: {count} instructions, baseline {wanted}: {verdict}"));
    }
    for name in counts.keys().filter(|name| !baseline.contains_key(*name)) {
        fine = false;
        lines.push(format!("{name}: FAILED, no baseline; run `cargo xtask guard --renew`"));
    }
    Comparison { lines, fine }
}

/// The baseline that is checked in.
pub(crate) fn baseline(root: &Path) -> Result<Counts, String> {
    let path = root.join(BASELINE);
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let json: Value =
        serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    let counts = json["instructions"]
        .as_object()
        .ok_or_else(|| format!("{BASELINE} has no instructions"))?;
    Ok(counts.iter().filter_map(|(name, count)| Some((name.clone(), count.as_u64()?))).collect())
}

fn renew(root: &Path, counts: &Counts) -> Result<(), String> {
    let out = Command::new("rustc").arg("--version").output().map_err(|e| format!("rustc: {e}"))?;
    let compiler = String::from_utf8_lossy(&out.stdout).trim().to_owned();
    let machine = std::env::consts::ARCH;
    let json = json!({ "compiler": compiler, "machine": machine, "instructions": counts });
    let text = serde_json::to_string_pretty(&json).map_err(|e| e.to_string())?;
    std::fs::write(root.join(BASELINE), text + "\n").map_err(|e| format!("{BASELINE}: {e}"))
}

/// `cargo xtask guard`: counts, and compares or writes the baseline. Whether all is well.
pub(crate) fn run(renewing: bool) -> Result<bool, String> {
    let root = workspace::root()?;
    if !has_valgrind() {
        return Err("valgrind is not installed: `apt-get install valgrind`".to_owned());
    }
    let logs = root.join("target").join("xtask");
    std::fs::create_dir_all(&logs).map_err(|e| format!("{}: {e}", logs.display()))?;
    let job = |name: &str, command: Command| Job {
        name: name.to_owned(),
        command,
        log: logs.join(format!("{}.log", name.replace(' ', "-"))),
        limit: LIMIT,
        grace: run::GRACE,
    };
    if find(&root).is_none()
        && !run::run(job("guard install", install(&root)), &mut |_| {})?.success
    {
        return Err(
            "gungraun-runner cannot be installed: see target/xtask/guard-install.log".to_owned()
        );
    }
    let mut counts = Counts::new();
    let ran =
        run::run(job("guard", count(&root, false)), &mut |line| counts.extend(counted(line)))?;
    if !ran.success {
        return Err(format!("the benches failed ({}): see target/xtask/guard.log", ran.ending));
    }
    if renewing {
        renew(&root, &counts)?;
    }
    let comparison = compare(&baseline(&root)?, &counts);
    println!("{}", comparison.lines.join("\n"));
    Ok(comparison.fine)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(of: &[(&str, u64)]) -> Counts {
        of.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    #[test]
    fn a_line_of_the_runner_is_a_count() {
        let line = r#"{"function_name":"local_call","profiles":[{"data":{"total":{"metrics":
            {"Ir":{"values":{"new":1575046}}}}}}]}"#
            .replace('\n', "");
        assert_eq!(counted(&line), Some(("local_call".to_owned(), 1_575_046)));
        assert_eq!(counted("Compiling emmer"), None);
        assert_eq!(counted("{}"), None);
    }

    #[test]
    fn five_percent_more_pass_and_six_do_not() {
        let baseline = counts(&[("call", 1_000)]);
        for (count, fine) in [(500, true), (1_050, true), (1_060, false)] {
            let comparison = compare(&baseline, &counts(&[("call", count)]));
            assert_eq!(comparison.fine, fine, "{:?}", comparison.lines);
        }
        assert!(compare(&baseline, &counts(&[("call", 500)])).lines[0].contains("renew"));
    }

    #[test]
    fn a_bench_without_its_other_half_fails() {
        assert!(!compare(&counts(&[("call", 1)]), &counts(&[])).fine);
        assert!(!compare(&counts(&[]), &counts(&[("call", 1)])).fine);
    }

    #[test]
    fn the_baseline_is_there_and_the_runner_is_the_librarys() {
        let root = workspace::root().unwrap();
        assert!(!baseline(&root).unwrap().is_empty());
        let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
        assert!(manifest.contains(&format!("gungraun = \"={VERSION}\"")));
    }
}
