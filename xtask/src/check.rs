//! The second tier, `cargo xtask check`: everything that is no test of what users link. The form of
//! the sources, their documents and licences; the laboratory and the examples.
//!
//! A failed step does not stop the next: one run shows everything that is wrong.

use std::process::Command;
use std::time::{Duration, Instant};

use clap::builder::PossibleValuesParser;

use crate::report::{Counts, Row, Verdict};
use crate::run::Context;
use crate::tools::{self, Tool};
use crate::workspace::{Member, Workspace};
use crate::{first, tests, tidy};

/// The steps, in the order they run.
const STEPS: &[&str] = &[
    "fmt", "tidy", "spelling", "links", "book", "deny", "clippy", "doc", "lab", "doctests",
    "examples", "package",
];

/// Why known vulnerabilities are not looked for by default.
const NO_ADVISORIES: &str =
    "known vulnerabilities: their database is fetched from the network; run with --advisories";

/// The names of the steps, for the command line.
pub(crate) fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(STEPS)
}

/// The package of the laboratory that another tier compiles: models of threads.
const ELSEWHERE: &str = "emmer-models";

/// Returns true if this tier runs the tests of a package: the laboratory, the examples, these
/// tasks.
fn is_here(member: &Member) -> bool {
    let folders = ["lab/", "examples/", "xtask"];
    folders.iter().any(|folder| member.folder.starts_with(folder)) && member.name != ELSEWHERE
}

/// Runs the steps named, all when none is.
pub(crate) fn rows(context: &Context, only: &[String]) -> Result<Vec<Row>, String> {
    let members = Workspace::load()?.members;
    let here = members.iter().filter(|member| is_here(member));
    let packages: Vec<&str> = here.map(|member| member.name.as_str()).collect();
    let mut rows = vec![first::toolchain(context)];
    for step in STEPS {
        if only.is_empty() || only.iter().any(|name| name == step) {
            rows.extend(run_step(context, step, &packages)?);
        } else {
            let why = "not asked for (--only)".to_owned();
            rows.push(Row::check(step, Verdict::Skipped(why), Duration::ZERO));
        }
    }
    Ok(rows)
}

fn run_step(context: &Context, step: &str, packages: &[&str]) -> Result<Vec<Row>, String> {
    Ok(match step {
        "fmt" => {
            // It takes no `--locked`.
            let mut command = crate::workspace::cargo(&context.root);
            command.args(["fmt", "--all", "--check", "--", "--color", "never"]);
            vec![context.step(step, 10, command)?]
        }
        "tidy" => vec![tidy_step()],
        "spelling" => vec![with_tool(context, step, &tools::TYPOS, 2, |command| {
            command.args(["--color", "never", "--format", "brief"]);
        })?],
        "links" => vec![with_tool(context, step, &tools::LYCHEE, 2, |command| {
            command.args(["--offline", "--no-progress", "--include-fragments"]);
            command.args(["./*.md", "docs/**/*.md", "examples/**/*.md"]);
        })?],
        "book" => book(context)?,
        "deny" => deny(context)?,
        // With every feature and store, so that the pages share its compiled code.
        "clippy" => vec![context.step(step, 200, clippy(context))?],
        "doc" => vec![context.step(step, 60, doc(context))?],
        "doctests" => doctests(context, packages)?,
        "lab" => {
            let run = tests::Run {
                name: step,
                packages,
                features: first::FEATURES,
                stated: 240,
                ..tests::Run::default()
            };
            tests::run(context, &run)?
        }
        "examples" => examples(context, packages)?,
        "package" => vec![package(context)?],
        other => return Err(format!("no step {other}")),
    })
}

/// The packages as a registry gets them. It does not check that each compiles by itself, which
/// would compile everything a second time.
fn package(context: &Context) -> Result<Row, String> {
    let members = Workspace::load()?.members;
    let private = members.iter().filter(|member| !tidy::packages::is_published(member));
    let mut command = context.cargo("package");
    command.args(["--workspace", "--no-verify", "--allow-dirty", "--quiet"]);
    for member in private {
        command.args(["--exclude", &member.name]);
    }
    context.step("package", 30, command)
}

/// Clippy over the whole workspace, with every feature.
fn clippy(context: &Context) -> Command {
    let mut command = context.cargo("clippy");
    command.args(["--workspace", "--all-features", "--all-targets", "--keep-going"]);
    command.args(["--", "-D", "warnings"]);
    command
}

/// The pages of the whole workspace.
fn doc(context: &Context) -> Command {
    let mut command = context.cargo("doc");
    command.args(["--workspace", "--all-features", "--no-deps", "--keep-going"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    command
}

/// The samples in the documents of `crates/`, then those on the pages of the book (`lab/book`).
/// Each run names the packages of a run of tests, to share what that has compiled.
fn doctests(context: &Context, packages: &[&str]) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    let crates = first::packages()?;
    let crates: Vec<&str> = crates.iter().map(String::as_str).collect();
    for (name, packages) in [("doctests", crates.as_slice()), ("doctests of the book", packages)] {
        let mut command = context.cargo("test");
        tests::select(&mut command, packages, first::FEATURES);
        command.args(["--doc", "--no-fail-fast"]);
        let row = context.step(name, 60, command)?;
        let log = std::fs::read_to_string(context.log(name)).unwrap_or_default();
        let counts = tests::libtest_counts(&log);
        let ran = counts.passed + counts.failed > 0;
        rows.push(if ran { Row { counts, ..row } } else { row });
    }
    Ok(rows)
}

/// The commands in the READMEs of the examples, with the programs compiled for the tests: each
/// command alone would compile its package with other features.
fn examples(context: &Context, packages: &[&str]) -> Result<Vec<Row>, String> {
    let crates = first::packages()?;
    let crates: Vec<&str> = crates.iter().map(String::as_str).collect();
    for packages in [crates.as_slice(), packages] {
        let mut command = context.cargo("build");
        tests::select(&mut command, packages, first::FEATURES);
        command.args(["--lib", "--bins", "--tests"]);
        let row = context.step("compile examples", 60, command)?;
        if row.verdict != Verdict::Passed {
            return Ok(vec![row]);
        }
    }
    Ok(vec![context.step("examples", 60, first::script(context, "examples.sh"))?])
}

/// A step that is one call of a tool.
fn with_tool(
    context: &Context,
    step: &str,
    tool: &Tool,
    stated: u64,
    arguments: impl FnOnce(&mut Command),
) -> Result<Row, String> {
    let program = match tool.find(context) {
        Ok(program) => program,
        Err(why) => return Ok(context.missing(step, why)),
    };
    let mut command = Command::new(program);
    command.current_dir(&context.root);
    arguments(&mut command);
    context.step(step, stated, command)
}

/// The book as a site, and every link in it.
fn book(context: &Context) -> Result<Vec<Row>, String> {
    let built = with_tool(context, "book", &tools::MDBOOK, 5, |command| {
        command.args(["build", "docs"]);
    })?;
    if !matches!(built.verdict, Verdict::Passed) {
        return Ok(vec![built]);
    }
    let linked = with_tool(context, "book links", &tools::LYCHEE, 2, |command| {
        command.args(["--offline", "--no-progress", "--include-fragments"]);
        command.arg("--root-dir").arg(context.root.join("target/book"));
        command.arg("target/book/**/*.html");
    })?;
    Ok(vec![built, linked])
}

/// Licences, sources and kept-out crates of everything that is compiled in.
fn deny(context: &Context) -> Result<Vec<Row>, String> {
    let checks = ["bans", "licenses", "sources"];
    let row = with_tool(context, "deny", &tools::DENY, 5, |command| {
        // It asks cargo for the graph; the same environment as every other step.
        command.args(["--color", "never", "--workspace", "check"]).args(checks);
        if context.advisories {
            command.arg("advisories");
        }
    })?;
    let mut rows = vec![row];
    if !context.advisories {
        let why = Verdict::Skipped(NO_ADVISORIES.to_owned());
        rows.push(Row::check("deny advisories", why, Duration::ZERO));
    }
    Ok(rows)
}

fn tidy_step() -> Row {
    let start = Instant::now();
    println!("--> tidy");
    let outcomes = match tidy::run() {
        Ok(outcomes) => outcomes,
        Err(reason) => {
            println!("    {reason}");
            let why = "could not be checked".to_owned();
            return Row::check("tidy", Verdict::Failed(why), start.elapsed());
        }
    };
    let failed = outcomes.iter().filter(|outcome| outcome.failures() > 0).count();
    let failures: usize = outcomes.iter().map(tidy::Outcome::failures).sum();
    let warnings = outcomes.iter().map(|outcome| outcome.findings.len()).sum::<usize>() - failures;
    if failures + warnings > 0 {
        print!("{}", tidy::render(&outcomes));
    }
    let verdict = match failures {
        0 => Verdict::Passed,
        _ => Verdict::Failed(format!("{failures} findings, listed above")),
    };
    let counts = Counts { passed: outcomes.len() - failed, failed, skipped: 0 };
    Row { counts, ..Row::check("tidy", verdict, start.elapsed()) }.stated(5)
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::stores;

    #[test]
    fn every_package_belongs_to_a_tier() {
        let members = Workspace::load().unwrap().members;
        let first = first::packages().unwrap();
        for member in members {
            let name = member.name.as_str();
            let tiers = [
                first.iter().any(|package| package == name),
                is_here(&member),
                stores::packages().contains(&name),
                name == ELSEWHERE,
            ];
            let count = tiers.into_iter().filter(|is_in| *is_in).count();
            assert_eq!(count, 1, "{name}: {tiers:?}");
        }
    }
}
