//! Running tests with cargo-nextest, and reading its report.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use roxmltree::{Document, Node};

use crate::report::{Counts, Row, Verdict};
use crate::run::Context;
use crate::tools;

/// The file that tests of stores tell about their servers in.
pub(crate) const TOLD: &str = "stores.txt";

/// The variable that names it; the same as in `emmer-test-servers`.
const TOLD_VARIABLE: &str = "EMMER_TEST_REPORT";

/// The variable that names the folder for servers' data; the same as in `emmer-test-servers`.
const DATA_VARIABLE: &str = "EMMER_TEST_DATA";

/// A run of tests.
#[derive(Clone)]
pub(crate) struct Run<'a> {
    pub(crate) name: &'a str,
    pub(crate) packages: &'a [&'a str],
    /// Features added to the packages' own.
    pub(crate) features: &'a [&'a str],
    /// Filter expression of nextest; all tests of the profile when none.
    pub(crate) filter: Option<String>,
    /// Time that it takes on two quiet cores, compiling included, in seconds.
    pub(crate) stated: u64,
    /// Environment of the tests.
    pub(crate) env: &'a [(String, String)],
    /// Number of tests that run at a time; as many as cores when none.
    pub(crate) threads: Option<u32>,
    /// The profile of `.config/nextest.toml`, which leaves some tests to other tiers.
    pub(crate) profile: &'a str,
}

impl Default for Run<'_> {
    fn default() -> Self {
        Self {
            name: "",
            packages: &[],
            features: &[],
            filter: None,
            stated: 60,
            env: &[],
            threads: None,
            profile: "default",
        }
    }
}

/// The tests of one package.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Group {
    pub(crate) counts: Counts,
    pub(crate) took: Duration,
    /// The names of those that failed.
    pub(crate) failed: Vec<String>,
}

/// Adds packages and features to a command of cargo's. Commands with the same ones share compiled
/// code.
pub(crate) fn select(command: &mut Command, packages: &[&str], features: &[&str]) {
    command.args(packages.iter().flat_map(|package| ["--package", *package]));
    command.args(features.iter().flat_map(|feature| ["--features", *feature]));
}

/// Compiles and runs the tests: a row for the run as a whole, and one for each package.
pub(crate) fn run(context: &Context, run: &Run<'_>) -> Result<Vec<Row>, String> {
    let (mut rows, groups) = grouped(context, run)?;
    for (package, group) in &groups {
        rows.push(group.row(&format!("  {package}")));
    }
    Ok(rows)
}

/// Runs the tests with the packages apart.
pub(crate) fn grouped(
    context: &Context,
    run: &Run<'_>,
) -> Result<(Vec<Row>, BTreeMap<String, Group>), String> {
    let nextest = match tools::NEXTEST.find(context) {
        Ok(program) => program,
        Err(why) => return Ok((vec![context.missing(run.name, why)], BTreeMap::new())),
    };
    // Found as a subcommand of cargo, on the path.
    let mut command = crate::workspace::cargo(&context.root);
    command.args(["nextest", "run", "--no-fail-fast"]).env("PATH", on_path(&nextest));
    command.args(["--profile", run.profile]);
    if context.ci {
        command.arg("--locked").env("CARGO_INCREMENTAL", "0");
    }
    select(&mut command, run.packages, run.features);
    if let Some(filter) = &run.filter {
        command.args(["--filterset", filter]);
    }
    command.args(["--lib", "--bins", "--tests", "--color", "never"]);
    command.args(["--status-level", "slow", "--final-status-level", "slow"]);
    command.args(["--failure-output", "final"]).env("RUST_BACKTRACE", "1");
    if let Some(threads) = run.threads {
        command.args(["--test-threads", &threads.to_string()]);
    }
    // A folder in memory, where there is one, spares the disk of servers that write all the time.
    let memory = Path::new("/dev/shm");
    if memory.is_dir() && std::env::var_os(DATA_VARIABLE).is_none() {
        command.env(DATA_VARIABLE, memory);
    }
    command.env(TOLD_VARIABLE, context.logs.join(TOLD)).envs(run.env.iter().cloned());
    let report = context.root.join("target/nextest").join(run.profile).join("junit.xml");
    // A report of an earlier run would be misleading.
    let _ = std::fs::remove_file(&report);
    let row = context.step(run.name, run.stated, command)?;
    let groups = groups(&std::fs::read_to_string(&report).unwrap_or_default())?;
    let log = std::fs::read_to_string(context.log(run.name)).unwrap_or_default();
    Ok((vec![whole(row, &groups, skipped(&log))], groups))
}

/// The path with the folder of `program` before the rest.
pub(crate) fn on_path(program: &Path) -> std::ffi::OsString {
    let own = program.parent().map(PathBuf::from).into_iter().filter(|p| !p.as_os_str().is_empty());
    let rest = std::env::var_os("PATH").unwrap_or_default();
    let all = own.chain(std::env::split_paths(&rest));
    std::env::join_paths(all).unwrap_or(rest)
}

/// The row of the whole run. The packages below it hold the counts. It counts only a failure that
/// none of them shows (a test that does not compile) and a run without a single test.
fn whole(row: Row, groups: &BTreeMap<String, Group>, skipped: usize) -> Row {
    let failed: Vec<String> = groups.values().flat_map(|group| group.failed.clone()).collect();
    let verdict = match (&row.verdict, failed.is_empty()) {
        (Verdict::Passed, _) if groups.is_empty() => Verdict::Failed("no test ran".to_owned()),
        (Verdict::Failed(_), false) => Verdict::Failed(failed.join(", ")),
        (verdict, _) => verdict.clone(),
    };
    let own = usize::from(matches!(verdict, Verdict::Failed(_)) && failed.is_empty());
    Row { verdict, counts: Counts { failed: own, skipped, passed: 0 }, ..row }
}

impl Group {
    /// Its line of the table.
    pub(crate) fn row(&self, name: &str) -> Row {
        let verdict = if self.failed.is_empty() {
            Verdict::Passed
        } else {
            Verdict::Failed(self.failed.join(", "))
        };
        Row { counts: self.counts, ..Row::check(name, verdict, self.took) }
    }
}

/// The packages in a JUnit report, whose suites are called `package` or `package::program`.
fn groups(report: &str) -> Result<BTreeMap<String, Group>, String> {
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    if report.is_empty() {
        return Ok(groups);
    }
    let document = Document::parse(report).map_err(|e| format!("nextest's report: {e}"))?;
    for suite in document.descendants().filter(|node| node.has_tag_name("testsuite")) {
        let name = suite.attribute("name").unwrap_or_default();
        let group = groups.entry(name.split("::").next().unwrap_or(name).to_owned()).or_default();
        for case in suite.children().filter(|node| node.has_tag_name("testcase")) {
            let seconds = case.attribute("time").and_then(|t| t.parse().ok()).unwrap_or(0.0);
            group.took += Duration::try_from_secs_f64(seconds).unwrap_or_default();
            let has = |tag| case.children().any(|node: Node<'_, '_>| node.has_tag_name(tag));
            if has("failure") || has("error") {
                group.counts.failed += 1;
                let test = case.attribute("name").unwrap_or_default();
                group.failed.push(format!("{name} {test}"));
            } else {
                group.counts.passed += 1;
            }
        }
    }
    Ok(groups)
}

/// Number of tests that nextest left out: `#[ignore]`d ones, and those of other tiers.
fn skipped(log: &str) -> usize {
    let summary = log.lines().rev().find(|line| line.trim_start().starts_with("Summary ["));
    let piece =
        summary.and_then(|line| line.split(',').find_map(|p| p.trim().strip_suffix(" skipped")));
    piece.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Counts of cargo's own test runner: `test result: ok. 3 passed; 0 failed; 1 ignored`.
pub(crate) fn libtest_counts(log: &str) -> Counts {
    let mut counts = Counts::default();
    for line in log.lines().filter_map(|line| line.strip_prefix("test result: ")) {
        let count = |word: &str| {
            let piece = line.split([';', '.']).find_map(|p| p.trim().strip_suffix(word));
            piece.and_then(|n| n.trim().parse::<usize>().ok()).unwrap_or(0)
        };
        counts.passed += count(" passed");
        counts.failed += count(" failed");
        counts.skipped += count(" ignored");
    }
    counts
}

#[cfg(test)]
mod test {
    use super::*;

    const REPORT: &str = r#"<?xml version="1.0"?><testsuites name="nextest-run" tests="3">
        <testsuite name="emmer-core" tests="2"><testcase name="ring::wraps" time="0.250"/>
        <testcase name="ring::breaks" time="0.5"><failure type="test failure">no</failure></testcase></testsuite>
        <testsuite name="emmer-core::it" tests="1"><testcase name="a::b" time="1"/></testsuite></testsuites>"#;

    #[test]
    fn a_report_is_counted_by_package_and_names_what_failed() {
        let groups = groups(REPORT).unwrap();
        let core = &groups["emmer-core"];
        assert_eq!((groups.len(), core.counts.passed, core.counts.failed), (1, 2, 1));
        assert_eq!(core.failed, ["emmer-core ring::breaks"]);
        assert_eq!(core.took, Duration::from_millis(1_750));
        assert!(super::groups("<strange").is_err());
    }

    #[test]
    fn failures_are_counted_once_and_a_run_without_a_test_is_one() {
        let row = |verdict| Row::check("test", verdict, Duration::ZERO);
        let failed = || row(Verdict::Failed("exit code 100".to_owned()));
        let groups = groups(REPORT).unwrap();
        let named = whole(failed(), &groups, 0);
        assert_eq!(named.verdict, Verdict::Failed("emmer-core ring::breaks".to_owned()));
        assert_eq!(named.counts.failed, 0);
        assert_eq!(whole(failed(), &BTreeMap::new(), 0).counts.failed, 1);
        assert_eq!(whole(row(Verdict::Passed), &BTreeMap::new(), 0).counts.failed, 1);
    }

    #[test]
    fn what_runners_print_is_understood() {
        let line = "     Summary [   0.035s] 90 tests run: 90 passed, 4 skipped";
        assert_eq!(skipped(line), 4);
        assert_eq!(skipped("     Summary [   0.035s] 90 tests run: 90 passed"), 0);
        let log = "test result: ok. 3 passed; 1 failed; 2 ignored; 0 measured; finished in 0.2s\n";
        assert_eq!(libtest_counts(log), Counts { passed: 3, failed: 1, skipped: 2 });
    }
}
