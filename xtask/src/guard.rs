//! The guard of instruction counts: the benches of `lab/benches/benches/guard.rs` run once each
//! under callgrind, and their counts are compared with `lab/benches/guard.json`. No clock takes
//! part: two runs of one program count alike.
//!
//! Another compiler or another standard library counts differently; then the baseline is written
//! again, in a commit that says why: `cargo xtask guard --renew`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::report::{Row, Verdict};
use crate::run::Context;
use crate::{tests, tools};

/// Where the baseline is.
const BASELINE: &str = "lab/benches/guard.json";

/// Percentage above its baseline that a count may reach. As far below it the baseline is out of
/// date.
const TOLERANCE_PERCENT: u64 = 5;

/// Instructions by bench.
type Counts = BTreeMap<String, u64>;

/// Returns true if valgrind is installed.
fn has_valgrind() -> bool {
    Command::new("valgrind").arg("--version").output().is_ok_and(|out| out.status.success())
}

/// The name and the count in a line of the runner's output, if it is about a bench.
fn counted(line: &str) -> Option<(String, u64)> {
    let json: Value = serde_json::from_str(line).ok()?;
    let name = json["function_name"].as_str()?;
    let count = json["profiles"][0]["data"]["total"]["metrics"]["Ir"]["values"]["new"].as_u64()?;
    Some((name.to_owned(), count))
}

/// Result of a comparison: a line for each bench, and whether all is well.
struct Comparison {
    lines: Vec<String>,
    fine: bool,
}

/// Compares counts with the baseline.
fn compare(baseline: &Counts, counts: &Counts) -> Comparison {
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
fn baseline(root: &Path) -> Result<Counts, String> {
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

/// `cargo xtask guard`: counts, and compares or writes the baseline. Returns true if all is well.
pub(crate) fn run(context: &Context, renewing: bool) -> Result<bool, String> {
    let (row, counts) = count(context)?;
    if row.verdict != Verdict::Passed {
        return Err("the benches could not be counted".to_owned());
    }
    if renewing {
        renew(&context.root, &counts)?;
    }
    let comparison = compare(&baseline(&context.root)?, &counts);
    println!("{}", comparison.lines.join("\n"));
    Ok(comparison.fine)
}

/// The guard as a step.
pub(crate) fn step(context: &Context) -> Result<Row, String> {
    let (row, counts) = count(context)?;
    if row.verdict != Verdict::Passed {
        return Ok(row);
    }
    let comparison = compare(&baseline(&context.root)?, &counts);
    if !comparison.fine {
        println!("    {}", comparison.lines.join("\n    "));
        let why = Verdict::Failed("instruction counts, listed above".to_owned());
        return Ok(Row::check("guard", why, row.took));
    }
    Ok(row.noted(format!("instructions of {} benches", counts.len())))
}

/// Runs the benches, each of which prints a JSON object.
fn count(context: &Context) -> Result<(Row, Counts), String> {
    let missing = |why| Ok((context.missing("guard", why), Counts::new()));
    if !has_valgrind()
        && let Err(why) = tools::apt(&["valgrind", "libc6-dbg"])
    {
        return missing(format!("valgrind is not installed: {why}"));
    }
    let runner = match tools::GUNGRAUN.find(context) {
        Ok(runner) => runner,
        Err(why) => return missing(why),
    };
    let mut command = context.cargo("bench");
    command.args(["--package", "emmer-benches", "--features", "guard", "--bench", "guard"]);
    command.args(["--", "--output-format=json"]);
    // The benches look for the runner on the path.
    command.env("PATH", tests::on_path(&runner));
    let row = context.step("guard", 240, command)?;
    let log = std::fs::read_to_string(context.log("guard")).unwrap_or_default();
    Ok((row, log.lines().filter_map(counted).collect()))
}

#[cfg(test)]
mod test {
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
    fn the_baseline_is_there() {
        assert!(!baseline(&crate::workspace::root().unwrap()).unwrap().is_empty());
    }
}
