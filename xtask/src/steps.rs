//! `cargo xtask test` and `ci`: every check and every test, one after the other, then the table.
//!
//! A failed step does not stop the next: one run shows everything that is wrong.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::args::{Options, STEPS};
use crate::report::{Counts, Row, Verdict};
use crate::run::{self, Job, Ran};
use crate::{
    deny, guard, libtest, limited, live, lock, services, stores, tidy, traces, tsql, workspace,
};

/// The longest a step may take, compiling included, before it counts as hanging. The limits of all
/// steps together stay below the 90 minutes that the build machine grants.
const STEP_LIMIT: Duration = Duration::from_secs(10 * 60);

/// The longest the tests may take.
const TEST_LIMIT: Duration = Duration::from_secs(40 * 60);

/// The longest one test program may take. The slowest take about 100 s beside other work.
const PROGRAM_LIMIT: Duration = Duration::from_secs(8 * 60);

/// How much longer than on the build machine a step may take elsewhere: the machine may be slow,
/// and somebody watches.
const PATIENCE: u32 = 4;

/// What every step needs to know.
pub(crate) struct Context {
    pub(crate) root: PathBuf,
    /// This program's own file. Asked for at the start: a step may build it anew.
    pub(crate) program: PathBuf,
    logs: PathBuf,
    options: Options,
}

/// Runs the steps that `options` ask for. An error means that they could not be run at all.
pub(crate) fn run(mut options: Options) -> Result<Vec<Row>, String> {
    options.ci |= std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    let root = workspace::root()?;
    let logs = root.join("target").join("xtask");
    std::fs::create_dir_all(&logs).map_err(|e| format!("{}: {e}", logs.display()))?;
    let store = options.store.as_deref().and_then(stores::named);
    if let Some(store) = store {
        options.packages = vec![store.package.to_owned()];
        options.only = vec!["test".to_owned()];
    }
    let program = std::env::current_exe().map_err(|e| format!("this program's own path: {e}"))?;
    let context = Context { root, program, logs, options };
    if let Some(store) = store {
        let mut rows = tests(&context)?;
        rows.extend(live::rows(&context, store)?);
        return Ok(rows);
    }
    let mut rows = vec![toolchain(&context), lock::check(&context.root)];
    for step in STEPS {
        match left_out(&context.options, step) {
            Some(why) => rows.push(Row::check(step, Verdict::Skipped(why), Duration::ZERO)),
            None => rows.extend(run_step(&context, step)?),
        }
    }
    Ok(rows)
}

/// Why the options leave `step` out, if they do.
fn left_out(options: &Options, step: &str) -> Option<String> {
    if !options.only.is_empty() && !options.only.iter().any(|name| name == step) {
        return Some("not asked for (--only)".to_owned());
    }
    (options.quick && ["clippy", "mutants", "doc", "deny", "guard", "traces"].contains(&step))
        .then(|| "left out by --quick".to_owned())
}

fn run_step(context: &Context, step: &str) -> Result<Vec<Row>, String> {
    match step {
        "fmt" => {
            let mut command = workspace::cargo(&context.root);
            command.args(["fmt", "--all", "--check", "--", "--color", "never"]);
            check(context, "fmt", command)
        }
        "tidy" => Ok(vec![tidy_step()]),
        "clippy" => clippy(context),
        "test" => tests(context),
        "mutants" => mutants(context),
        "doc" => {
            let mut command = cargo(context, "doc", &["--no-deps", "--keep-going"]);
            command.env("RUSTDOCFLAGS", "-D warnings");
            check(context, "doc", command)
        }
        "deny" => deny_step(context),
        "guard" => guard_step(context),
        "traces" => traces_step(context),
        other => Err(format!("no step {other}")),
    }
}

/// The workspace with every feature, and what an application and the program are made of as they
/// are built by default.
fn clippy(context: &Context) -> Result<Vec<Row>, String> {
    let arguments = ["--keep-going", "--", "-D", "warnings"];
    let everything = [&["--all-targets", "--all-features"], &arguments[..]].concat();
    let mut rows = check(context, "clippy", cargo(context, "clippy", &everything))?;
    if context.options.packages.is_empty() {
        let packages = ["emmer", "emmer-runtime", "emmer-cli"].map(str::to_owned);
        let command = cargo_of(context, "clippy", &packages, &arguments);
        rows.extend(check(context, "clippy default", command)?);
    }
    Ok(rows)
}

/// The small set of mutants, each of which the swarm has to find. They are compiled in a copy of
/// the workspace.
fn mutants(context: &Context) -> Result<Vec<Row>, String> {
    if !context.options.packages.is_empty() {
        let why = "only with the whole workspace".to_owned();
        return Ok(vec![Row::check("mutants", Verdict::Skipped(why), Duration::ZERO)]);
    }
    let mut command = Command::new(&context.program);
    command.args(["mutants", "--smoke"]).current_dir(&context.root);
    check(context, "mutants", command)
}

/// What is compiled with; a missing component is named here instead of failing three times below.
fn toolchain(context: &Context) -> Row {
    let start = Instant::now();
    let version = |args: &[&str]| -> Option<String> {
        let out = workspace::cargo(&context.root)
            .args(args)
            .output()
            .ok()
            .filter(|out| out.status.success())?;
        Some(String::from_utf8_lossy(&out.stdout).trim().to_owned())
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
    let note = version(&["--version"]).unwrap_or_default();
    Row::check("toolchain", verdict, start.elapsed()).noted(note)
}

/// A command that passes or fails as a whole.
pub(crate) fn check(context: &Context, name: &str, command: Command) -> Result<Vec<Row>, String> {
    let ran = run_job(context, name, command, STEP_LIMIT, &mut |_| {})?;
    show_failure(context, name, &ran);
    Ok(vec![Row::check(name, verdict(&ran), ran.took)])
}

/// The same for a command that prints a table of goals: each one missed is a failure, and is what
/// the row says.
pub(crate) fn check_goals(
    context: &Context,
    name: &str,
    command: Command,
) -> Result<Vec<Row>, String> {
    let mut missed = Vec::new();
    let ran = run_job(context, name, command, STEP_LIMIT, &mut |line| {
        if line.contains("MISSED") {
            missed.push(line.trim().to_owned());
        }
    })?;
    show_failure(context, name, &ran);
    let verdict = match verdict(&ran) {
        Verdict::Passed if !missed.is_empty() => Verdict::Failed(missed.join("; ")),
        verdict => verdict,
    };
    Ok(vec![Row::check(name, verdict, ran.took)])
}

/// A cargo task that compiles the packages asked for, with the lock file binding where a build
/// machine runs.
fn cargo(context: &Context, task: &str, args: &[&str]) -> Command {
    cargo_of(context, task, &context.options.packages, args)
}

/// The same for some packages; the whole workspace when none are named.
fn cargo_of(context: &Context, task: &str, packages: &[String], args: &[&str]) -> Command {
    let mut command = workspace::cargo(&context.root);
    command.arg(task);
    if context.options.ci {
        command.arg("--locked");
    }
    if packages.is_empty() {
        command.arg("--workspace");
    }
    for package in packages {
        command.args(["--package", package]);
    }
    command.args(args);
    command
}

fn run_job(
    context: &Context,
    name: &str,
    mut command: Command,
    limit: Duration,
    on_line: &mut dyn FnMut(&str),
) -> Result<Ran, String> {
    let log = log_path(&context.logs, name);
    let limit = if context.options.ci { limit } else { limit * PATIENCE };
    if context.options.ci {
        // Nothing is compiled a second time there.
        command.env("CARGO_INCREMENTAL", "0");
    }
    run::run(Job { name: name.to_owned(), command, log, limit, grace: run::GRACE }, on_line)
}

fn log_path(logs: &Path, name: &str) -> PathBuf {
    logs.join(format!("{}.log", name.replace(' ', "-")))
}

fn verdict(ran: &Ran) -> Verdict {
    if ran.success { Verdict::Passed } else { Verdict::Failed(ran.ending.clone()) }
}

/// Prints the end of a failed step's output and where the rest is.
fn show_failure(context: &Context, name: &str, ran: &Ran) {
    if !ran.success {
        show(name, &ran.excerpt, &context.logs);
    }
}

fn show(name: &str, lines: &[String], logs: &Path) {
    println!("    {name} FAILED:");
    for line in lines {
        println!("    | {line}");
    }
    println!("    the whole output: {}", log_path(logs, name).display());
}

fn tidy_step() -> Row {
    let start = Instant::now();
    println!("--> tidy");
    let outcomes = match tidy::run() {
        Ok(outcomes) => outcomes,
        Err(reason) => {
            println!("    {reason}");
            return Row::check(
                "tidy",
                Verdict::Failed("could not be checked".to_owned()),
                start.elapsed(),
            );
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
    let row = Row::check("tidy", verdict, start.elapsed());
    let counts = Counts { passed: outcomes.len() - failed, failed, skipped: 0 };
    Row { counts, ..row }.noted(if warnings > 0 {
        format!("{warnings} warned")
    } else {
        String::new()
    })
}

/// All tests, as one row for the whole run and one for each crate and kind.
fn tests(context: &Context) -> Result<Vec<Row>, String> {
    if context.options.ci {
        // What cannot be installed fails the tests that need it, by name.
        services::run(&services::Action::Install, &[])?;
    }
    let mut command = cargo(context, "test", &["--no-fail-fast"]);
    // Tests of stores tell here which server they ran against, and one which statements it sends.
    let (told, statements) = (context.logs.join("stores.txt"), context.logs.join("tsql.jsonl"));
    for file in [&told, &statements] {
        remove_old(file)?;
    }
    let limit = if context.options.ci { PROGRAM_LIMIT } else { PROGRAM_LIMIT * PATIENCE };
    command.args(["--config", &limited::cargo_config(&context.program, limit)]);
    command.env("RUST_BACKTRACE", "1");
    command.env(emmer_test_servers::report::VARIABLE, &told).env(tsql::VARIABLE, &statements);
    let whole = context.options.packages.is_empty();
    let has_tsql = whole || context.options.packages.iter().any(|package| package == tsql::PACKAGE);
    // Before the tests, one of which needs it.
    let parser = has_tsql.then(|| tsql::install(&context.root, &context.logs, context.options.ci));
    let mut reader = libtest::Reader::default();
    let ran = run_job(context, "test", command, TEST_LIMIT, &mut |line| reader.line(line))?;
    if !ran.success {
        let lines =
            if reader.failure_output.is_empty() { &ran.excerpt } else { &reader.failure_output };
        show("test", lines, &context.logs);
    }
    for test in &reader.ignored {
        println!("    ignored: {test}");
    }
    let told = stores::Told::read(&told);
    for (test, why) in &told.skipped {
        println!("    skipped: {test}: {why}");
    }
    let groups: Vec<libtest::Group> = reader.groups().cloned().collect();
    let group_rows: Vec<_> = groups.iter().map(group_row).collect();
    let mut rows = vec![test_row(&ran, &reader.failed, &group_rows)];
    rows.extend(group_rows);
    rows.extend(stores::rows(&told, &groups, context.options.ci, whole));
    rows.extend(parser.map(|parser| {
        tsql::row(&statements, &context.logs.join("tsql.log"), parser, context.options.ci)
    }));
    Ok(rows)
}

/// A file of last time tells of last time.
fn remove_old(file: &Path) -> Result<(), String> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("{}: {error}", file.display()))
        }
        _ => Ok(()),
    }
}

/// The row of the run as a whole. The groups below it hold the counts; it counts only a failure
/// that none of them shows (a test that does not compile, a test binary that was killed) and a run
/// without a single test.
fn test_row(ran: &Ran, failed: &[String], groups: &[Row]) -> Row {
    let verdict = match (ran.success, failed.len()) {
        (true, _) if groups.is_empty() => Verdict::Failed("no test ran".to_owned()),
        (true, _) => Verdict::Passed,
        (false, 0) => Verdict::Failed(ran.ending.clone()),
        (false, _) => Verdict::Failed(failed.join(", ")),
    };
    let counted = groups.iter().any(|row| row.counts.failed > 0);
    let own = usize::from(matches!(verdict, Verdict::Failed(_)) && !counted);
    let counts = Counts { failed: own, ..Counts::default() };
    Row { counts, ..Row::check("test", verdict, ran.took) }
}

fn group_row(group: &libtest::Group) -> Row {
    let counts = Counts { passed: group.passed, failed: group.failed, skipped: group.ignored };
    let verdict = if group.failed == 0 { Verdict::Passed } else { Verdict::Failed(String::new()) };
    let name = format!("  {} {}", group.krate.replace('_', "-"), group.kind.word());
    Row { counts, ..Row::check(&name, verdict, group.took) }
}

/// cargo-deny, installed first where a build machine runs.
fn deny_step(context: &Context) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    let mut program = deny::find(&context.root);
    if program.is_none() {
        if !context.options.ci {
            let why = "cargo-deny is not installed; `cargo xtask ci` installs it".to_owned();
            return Ok(vec![Row::check("deny", Verdict::Skipped(why), Duration::ZERO)]);
        }
        let name = "deny install";
        let ran = run_job(context, name, deny::install(&context.root), STEP_LIMIT, &mut |_| {})?;
        show_failure(context, name, &ran);
        program = deny::find(&context.root);
        rows.push(Row { counts: Counts::default(), ..Row::check(name, verdict(&ran), ran.took) });
    }
    let Some(program) = program else {
        rows.push(Row::check(
            "deny",
            Verdict::Failed("cargo-deny could not be installed".to_owned()),
            Duration::ZERO,
        ));
        return Ok(rows);
    };
    let advisories = context.options.advisories;
    let command = deny::check(&context.root, &program, advisories);
    let ran = run_job(context, "deny", command, STEP_LIMIT, &mut |_| {})?;
    show_failure(context, "deny", &ran);
    let mut checks = deny::CHECKS.join(", ");
    if advisories {
        checks += ", advisories";
    }
    rows.push(Row::check("deny", verdict(&ran), ran.took).noted(checks));
    if !advisories {
        rows.push(Row::check(
            "deny advisories",
            Verdict::Skipped(deny::NO_ADVISORIES.to_owned()),
            Duration::ZERO,
        ));
    }
    Ok(rows)
}

/// Instruction counts beside their baseline. Without valgrind the step is left out, but not on a
/// build machine.
fn guard_step(context: &Context) -> Result<Vec<Row>, String> {
    let skipped = |why: &str| {
        println!("    guard: NOT CHECKED: {why}");
        Ok(vec![Row::check("guard", Verdict::Skipped(why.to_owned()), Duration::ZERO)])
    };
    let failed = |why: String| Ok(vec![Row::check("guard", Verdict::Failed(why), Duration::ZERO)]);
    let ci = context.options.ci;
    if !guard::has_valgrind() {
        if !ci {
            return skipped("valgrind is not installed");
        }
        if let Err(why) = services::install::apt(&["valgrind", "libc6-dbg"]) {
            return failed(format!("valgrind cannot be installed: {why}"));
        }
    }
    let mut rows = Vec::new();
    if guard::find(&context.root).is_none() {
        if !ci {
            return skipped("gungraun-runner is not installed; `cargo xtask guard` installs it");
        }
        let name = "guard install";
        let ran = run_job(context, name, guard::install(&context.root), STEP_LIMIT, &mut |_| {})?;
        show_failure(context, name, &ran);
        rows.push(Row::check(name, verdict(&ran), ran.took));
    }
    let mut counts = guard::Counts::new();
    let command = guard::count(&context.root, ci);
    let ran =
        run_job(context, "guard", command, STEP_LIMIT, &mut |l| counts.extend(guard::counted(l)))?;
    show_failure(context, "guard", &ran);
    let comparison = guard::compare(&guard::baseline(&context.root)?, &counts);
    let verdict = match verdict(&ran) {
        Verdict::Passed if !comparison.fine => {
            Verdict::Failed("instruction counts, listed above".to_owned())
        }
        verdict => verdict,
    };
    if !matches!(verdict, Verdict::Passed) {
        println!("    {}", comparison.lines.join("\n    "));
    }
    let row = Row::check("guard", verdict, ran.took);
    rows.push(row.noted(format!("instructions of {} benches", counts.len())));
    Ok(rows)
}

/// The trace of a few seeds in two builds. Both compile first, so that a failure names what failed.
fn traces_step(context: &Context) -> Result<Vec<Row>, String> {
    if !context.options.packages.is_empty() {
        let why = "only with the whole workspace".to_owned();
        return Ok(vec![Row::check("traces", Verdict::Skipped(why), Duration::ZERO)]);
    }
    let (start, mut runs) = (Instant::now(), Vec::new());
    for (build, words) in traces::BUILDS {
        for command in [
            traces::build(&context.root, words, context.options.ci),
            traces::run(&context.root, build),
        ] {
            let mut told = None;
            let mut hear = |line: &str| told = traces::told(line).or_else(|| told.take());
            let ran =
                run_job(context, &format!("traces {build}"), command, traces::LIMIT, &mut hear)?;
            show_failure(context, &format!("traces {build}"), &ran);
            runs.push((ran, told));
        }
    }
    let row = |verdict| Row::check("traces", verdict, start.elapsed());
    Ok(vec![match traces::verdict(&runs) {
        Ok(note) => row(Verdict::Passed).noted(note),
        Err(why) => row(Verdict::Failed(why)),
    }])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(success: bool) -> Ran {
        Ran {
            success,
            ending: "exit code 101".to_owned(),
            took: Duration::ZERO,
            excerpt: Vec::new(),
        }
    }

    fn group(failed: usize) -> Row {
        group_row(&libtest::Group {
            krate: "emmer_core".to_owned(),
            kind: libtest::Kind::Unit,
            passed: 3,
            failed,
            ignored: 0,
            took: Duration::ZERO,
        })
    }

    #[test]
    fn a_run_that_cannot_compile_counts_as_one_failure() {
        let row = test_row(&ran(false), &[], &[]);
        assert_eq!(
            (row.counts.failed, row.verdict),
            (1, Verdict::Failed("exit code 101".to_owned()))
        );
    }

    #[test]
    fn failed_tests_are_counted_once_and_named() {
        let groups = [group(1)];
        let row = test_row(&ran(false), &["emmer_core ring::wraps".to_owned()], &groups);
        assert_eq!(
            (row.counts.failed, row.verdict),
            (0, Verdict::Failed("emmer_core ring::wraps".to_owned()))
        );
        assert_eq!(groups[0].name, "  emmer-core unit");
    }

    #[test]
    fn a_run_without_a_test_is_a_failure() {
        assert!(matches!(test_row(&ran(true), &[], &[]).verdict, Verdict::Failed(_)));
        assert_eq!(test_row(&ran(true), &[], &[group(0)]).verdict, Verdict::Passed);
    }

    #[test]
    fn options_leave_steps_out_with_a_reason() {
        let quick = Options { quick: true, ..Options::default() };
        assert!(left_out(&quick, "clippy").is_some_and(|why| why.contains("--quick")));
        assert_eq!(left_out(&quick, "test"), None);
        let only = Options { only: vec!["doc".to_owned()], ..Options::default() };
        assert_eq!(left_out(&only, "doc"), None);
        assert!(left_out(&only, "test").is_some_and(|why| why.contains("--only")));
    }
}
