//! The first tier, `cargo xtask test`: every check of what users link, with SQLite and PostgreSQL.
//!
//! A failed step does not stop the next: one run shows everything that is wrong.

use std::process::Command;
use std::time::{Duration, Instant};

use clap::builder::PossibleValuesParser;

use crate::report::{Counts, Row, Verdict};
use crate::run::Context;
use crate::tools::{self, Tool};
use crate::workspace::{Member, Workspace};
use crate::{stores, tests, tidy};

/// The steps, in the order they run.
const STEPS: &[&str] = &[
    "fmt", "tidy", "spelling", "links", "book", "deny", "clippy", "doc", "test", "doctests",
    "start", "examples", "package",
];

/// Why known vulnerabilities are not looked for by default.
const NO_ADVISORIES: &str =
    "known vulnerabilities: their database is fetched from the network; run with --advisories";

/// The names of the steps, for the command line.
pub(crate) fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(STEPS)
}

/// Whether a package belongs to this tier: all but the stores on servers other than PostgreSQL, and
/// what is only measured with.
fn is_here(member: &Member) -> bool {
    let store = member.folder.strip_prefix("stores/");
    let is_store =
        store.is_some_and(|s| !["open", "postgres", "relational", "testing"].contains(&s));
    !is_store && !["lab/cost", "lab/guard", "lab/models"].contains(&member.folder.as_str())
}

/// Runs the steps named, all when none is.
pub(crate) fn rows(context: &Context, only: &[String]) -> Result<Vec<Row>, String> {
    let members = Workspace::load()?.members;
    let packages: Vec<&str> =
        members.iter().filter(|m| is_here(m)).map(|m| m.name.as_str()).collect();
    let packages = if context.packages.is_empty() {
        packages
    } else {
        context.packages.iter().map(String::as_str).collect()
    };
    let mut rows = vec![toolchain(context), lock(context)];
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
        "clippy" => vec![context.step(step, 70, clippy(context, packages))?],
        "doc" => vec![context.step(step, 40, doc(context, packages))?],
        "test" => {
            let run = tests::Run {
                name: step,
                packages,
                features: &["emmer-cli/otlp", "emmer-cli/tls"],
                stated: 420,
                env: &[],
                threads: None,
                profile: "default",
            };
            // A machine may have the server and lack its pooler.
            let mut rows = Vec::new();
            if context.ci {
                rows.push(stores::install(context, "postgres", &["postgres"])?);
            }
            rows.extend(tests::run(context, &run)?);
            rows
        }
        "doctests" => vec![doctests(context, packages)?],
        "start" => vec![context.step(step, 60, script(context, "getting-started.sh"))?],
        "examples" => vec![context.step(step, 60, script(context, "examples.sh"))?],
        "package" => vec![package(context)?],
        other => return Err(format!("no step {other}")),
    })
}

/// The packages as a registry gets them. That each compiles by itself is not looked at: it would
/// compile everything anew.
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

/// A script of this folder.
fn script(context: &Context, name: &str) -> Command {
    let mut command = Command::new("bash");
    command.current_dir(&context.root).arg(format!("xtask/{name}"));
    command
}

/// Clippy over some packages, as tests compile them.
pub(crate) fn clippy(context: &Context, packages: &[&str]) -> Command {
    let mut command = context.cargo("clippy");
    with(&mut command, packages);
    command.args(["--all-targets", "--keep-going", "--", "-D", "warnings"]);
    command
}

/// The pages of some packages.
pub(crate) fn doc(context: &Context, packages: &[&str]) -> Command {
    let mut command = context.cargo("doc");
    with(&mut command, packages);
    command.args(["--no-deps", "--keep-going"]).env("RUSTDOCFLAGS", "-D warnings");
    command
}

fn doctests(context: &Context, packages: &[&str]) -> Result<Row, String> {
    let mut command = context.cargo("test");
    with(&mut command, packages);
    command.args(["--doc", "--no-fail-fast"]);
    let row = context.step("doctests", 60, command)?;
    let log = std::fs::read_to_string(context.log("doctests")).unwrap_or_default();
    let counts = tests::libtest_counts(&log);
    Ok(if counts.passed + counts.failed > 0 { Row { counts, ..row } } else { row })
}

fn with(command: &mut Command, packages: &[&str]) {
    for package in packages {
        command.args(["--package", package]);
    }
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

/// What is compiled with; a missing component is named here instead of failing three times below.
fn toolchain(context: &Context) -> Row {
    let start = Instant::now();
    let version = |args: &[&str]| -> Option<String> {
        let out = crate::workspace::cargo(&context.root).args(args).output().ok()?;
        out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_owned())
    };
    let missing: Vec<&str> =
        [("rustfmt", ["fmt", "--version"]), ("clippy", ["clippy", "--version"])]
            .into_iter()
            .filter_map(|(component, args)| version(&args).is_none().then_some(component))
            .collect();
    let verdict = if missing.is_empty() {
        Verdict::Passed
    } else {
        Verdict::Failed(format!("missing: run `rustup component add {}`", missing.join(" ")))
    };
    let is = version(&["--version"]).unwrap_or_default();
    let manifest = std::fs::read_to_string(context.root.join("Cargo.toml")).unwrap_or_default();
    let note = format!("{is}: {}", oldest(&is, &manifest));
    Row::check("toolchain", verdict, start.elapsed()).noted(note)
}

/// Says whether this run proves the `rust-version` of the manifests.
fn oldest(cargo: &str, manifest: &str) -> String {
    let stated = manifest.lines().find_map(|line| line.strip_prefix("rust-version = \""));
    let stated = stated.map_or("", |rest| rest.trim_end_matches('"'));
    let is = cargo.split_whitespace().nth(1).unwrap_or_default();
    let is_oldest = is.strip_prefix(stated).is_some_and(|rest| rest.starts_with('.'));
    if is_oldest && !stated.is_empty() {
        format!("the oldest that the manifests state, {stated}")
    } else {
        format!("says nothing of the oldest that the manifests state, {stated:?}")
    }
}

/// Whether the committed `Cargo.lock` fits the committed manifests. `--locked` alone cannot tell:
/// cargo has already brought the lock file up to date when it compiled this task, and leaves a
/// changed lock file beside unchanged manifests.
fn lock(context: &Context) -> Row {
    let start = Instant::now();
    let args = ["status", "--porcelain", "--", "Cargo.lock", "Cargo.toml", "*/Cargo.toml"];
    let out = Command::new("git").current_dir(&context.root).args(args).output();
    let verdict = match out {
        Ok(out) if out.status.success() => stale(&String::from_utf8_lossy(&out.stdout)),
        _ => Verdict::Skipped("no git work tree to compare Cargo.lock with".to_owned()),
    };
    Row::check("lock", verdict, start.elapsed())
}

/// Judges `git status --porcelain` lines, such as ` M Cargo.lock`.
fn stale(status: &str) -> Verdict {
    let mut paths = status.lines().filter_map(|line| line.get(3..));
    let changed = paths.clone().any(|path| path == "Cargo.lock");
    if changed && !paths.any(|path| path.ends_with("Cargo.toml")) {
        let why = "cargo had to change Cargo.lock: commit it with the manifest it belongs to";
        return Verdict::Failed(why.to_owned());
    }
    Verdict::Passed
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

    #[test]
    fn a_lock_file_that_changed_alone_is_stale() {
        assert!(matches!(stale(" M Cargo.lock\n"), Verdict::Failed(_)));
        for fine in ["", " M Cargo.toml\n", " M Cargo.lock\nM  crates/wire/Cargo.toml\n"] {
            assert_eq!(stale(fine), Verdict::Passed, "{fine}");
        }
    }

    #[test]
    fn every_package_belongs_to_a_tier() {
        let members = Workspace::load().unwrap().members;
        let (here, elsewhere): (Vec<&Member>, Vec<&Member>) =
            members.iter().partition(|m| is_here(m));
        for name in ["emmer", "emmer-store-sqlite", "emmer-store-postgres", "emmer-sim", "xtask"] {
            assert!(here.iter().any(|m| m.name == name), "{name}");
        }
        for member in elsewhere {
            let known = stores::packages().contains(&member.name.as_str())
                || ["emmer-cost", "emmer-guard", "emmer-models"].contains(&member.name.as_str());
            assert!(known, "{} is in no tier", member.name);
        }
    }

    #[test]
    fn only_the_stated_version_proves_itself() {
        let manifest = "[workspace.package]\nrust-version = \"1.95\"\n";
        assert!(oldest("cargo 1.95.0 (abc 2026-03-21)", manifest).starts_with("the oldest"));
        for other in ["cargo 1.96.1 (abc)", "cargo 1.9.0", ""] {
            assert!(oldest(other, manifest).starts_with("says nothing"), "{other}");
        }
    }
}
