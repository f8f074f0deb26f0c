//! The fourth tier, `cargo xtask nightly`: what takes long.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Instant, SystemTime};

use clap::builder::PossibleValuesParser;

use crate::guard;
use crate::report::{Row, Verdict};
use crate::run::Context;
use crate::stores::{self, STORES};
use crate::tools;

/// The steps, in the order they run.
const STEPS: &[&str] = &[
    "models",
    "mutants",
    "mechanical",
    "guard",
    "traces",
    "swarm",
    "simulator",
    "reminders",
    "clusters",
    "bulk",
    "outages",
    "live",
];

/// Number of seeds that each build traces: a debug build takes three seconds for one.
const TRACED_SEEDS: &str = "4";
/// The crates with mechanical mutants, and the nights over which these are spread.
const MECHANICAL: [&str; 3] = ["emmer-membership", "emmer-directory", "emmer-reminders"];
const NIGHTS: u64 = 60;

/// The seeds of the runtime's swarm, and of the simulator's.
const SWARM_SEEDS: [&str; 3] = ["--", "0", "300"];
const SIMULATOR_SEEDS: &str = "0..4000";

/// The stores that are run on clusters of servers, and the modules of their tests.
const CLUSTERS: [(&str, &str); 6] = [
    ("etcd", "members::"),
    ("zookeeper", "members::"),
    ("consul", "members::"),
    ("cassandra", "cluster::"),
    ("redis", "failover::"),
    ("postgres", "failover::"),
];

/// The stores whose server goes away under silos.
const OUTAGES: [&str; 6] = ["postgres", "mysql", "redis", "etcd", "zookeeper", "sqlite"];

/// The builds whose traces have to be equal. What depends on overflow checks, on the optimiser or
/// on an assertion with an effect shows up here.
const BUILDS: [(&str, &[&str]); 2] = [("debug", &[]), ("release", &["--release"])];

/// The names of the steps, for the command line.
pub(crate) fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(STEPS)
}

/// Runs the steps named, all when none is.
pub(crate) fn rows(context: &Context, only: &[String]) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for step in STEPS {
        if only.is_empty() || only.iter().any(|name| name == step) {
            rows.extend(run_step(context, step)?);
        }
    }
    Ok(rows)
}

fn run_step(context: &Context, step: &str) -> Result<Vec<Row>, String> {
    Ok(match step {
        "models" => {
            let mut command = context.cargo("test");
            command.args(["--package", "emmer-models", "--lib"]);
            vec![context.step(step, 120, command)?]
        }
        "mutants" => {
            let smoke = |name: &str, more: &[&str]| {
                let mut command = context.cargo("run");
                command.args(["--quiet", "--package", "emmer-mutants", "--", "--smoke"]);
                context.step(name, 180, with(command, more))
            };
            vec![
                smoke(step, &[])?,
                smoke("mutants of reminders", &["--reminders"])?,
                smoke("mutants of streams", &["--streams"])?,
                smoke("mutants of connections", &["--link"])?,
            ]
        }
        "mechanical" => vec![mechanical(context)?],
        "guard" => vec![guard::step(context)?],
        "traces" => vec![traces(context)?],
        "swarm" => {
            let mut command = context.cargo("run");
            command.args(["--release", "--package", "emmer-swarm", "--example", "runtime"]);
            vec![context.step(step, 900, with(command, &SWARM_SEEDS))?]
        }
        "simulator" => {
            let mut command = context.cargo("run");
            command.args(["--release", "--package", "emmer-lab", "--", "sim", "swarm"]);
            vec![context.step(step, 900, with(command, &["--seeds", SIMULATOR_SEEDS]))?]
        }
        "reminders" => {
            let mut command = context.cargo("test");
            command.args(["--package", "emmer-reminders", "--lib", "--", "--ignored"]);
            vec![context.step(step, 120, command)?]
        }
        // A cluster of servers whose leader is killed and stands still: one test at a time, with
        // its output printed.
        "clusters" => {
            let run = |(store, module): &(&str, &str)| {
                let mut command = context.cargo("test");
                command.args(["--package", &format!("emmer-store-{store}"), "--test", "it"]);
                command.args(["--", module, "--ignored", "--nocapture", "--test-threads=1"]);
                context.step(&format!("cluster of {store}"), 300, command)
            };
            CLUSTERS.iter().map(run).collect::<Result<_, _>>()?
        }
        "bulk" => stores::bulk(context)?,
        "outages" => {
            let run = |store: &&str| {
                let mut command = context.cargo("run");
                command.args(["--release", "--package", "emmer-benches", "--features", "outages"]);
                command.args(["--example", "outages", "--", store, "5", "12", "20"]);
                context.step(&format!("outages of {store}"), 240, command)
            };
            OUTAGES.iter().map(run).collect::<Result<_, _>>()?
        }
        "live" => {
            let mut rows = Vec::new();
            for store in STORES {
                rows.extend(stores::live(context, store)?);
            }
            rows
        }
        other => return Err(format!("no step {other}")),
    })
}

fn with(mut command: Command, arguments: &[&str]) -> Command {
    command.args(arguments);
    command
}

/// The mechanical mutants of this night, and the unit tests of their crates. A survivor is not a
/// failure: the note counts it, the log names it.
fn mechanical(context: &Context) -> Result<Row, String> {
    let step = "mechanical";
    let program = match tools::MUTANTS.find(context) {
        Ok(program) => program,
        Err(why) => return Ok(context.missing(step, why)),
    };
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let shard = format!("{}/{NIGHTS}", since.as_secs() / 86_400 % NIGHTS);
    let mut command = Command::new(program);
    command.current_dir(&context.root).args(["mutants", "--shard", &shard, "--colors", "never"]);
    command.args(["--output", "target/xtask", "--no-times"]);
    for package in MECHANICAL {
        command.args(["--package", package]);
    }
    let row = context.step(step, 1_800, command)?;
    let log = std::fs::read_to_string(context.log(step)).unwrap_or_default();
    let told = log.lines().rev().find(|line| line.contains("mutants tested"));
    // It tells survivors by its exit code, too.
    Ok(match told {
        Some(told) => Row::check(step, Verdict::Passed, row.took).noted(told.trim().to_owned()),
        None => row,
    })
}

/// The trace of a few seeds in two builds. Both compile first, so that a failure names what failed.
fn traces(context: &Context) -> Result<Row, String> {
    let (start, mut traces) = (Instant::now(), Vec::new());
    let failed = |why: String| Ok(Row::check("traces", Verdict::Failed(why), start.elapsed()));
    for (build, words) in BUILDS {
        let mut compile = context.cargo("build");
        compile.args(["--package", "emmer-swarm", "--example", "runtime"]).args(words);
        let name = format!("traces {build}");
        let compiled = context.step(&name, 300, compile)?;
        if compiled.verdict != Verdict::Passed {
            return failed(format!("the {build} build does not compile"));
        }
        let mut run = Command::new(target(context).join(build).join("examples/runtime"));
        run.args(["0", TRACED_SEEDS]);
        let ran = context.step(&name, 60, run)?;
        if ran.verdict != Verdict::Passed {
            return failed(format!("the {build} build fails"));
        }
        let log = std::fs::read_to_string(context.log(&name)).unwrap_or_default();
        let Some(trace) = log.lines().rev().find_map(trace_in) else {
            return failed(format!("the {build} build did not tell its trace"));
        };
        traces.push(trace);
    }
    if traces[0] != traces[1] {
        let why = format!(
            "the same seeds, and other traces: {} in debug, {} in release",
            traces[0], traces[1]
        );
        return failed(why);
    }
    let note = format!("{TRACED_SEEDS} seeds, two builds, trace {}", traces[0]);
    Ok(Row::check("traces", Verdict::Passed, start.elapsed()).noted(note).stated(300))
}

/// Folder of cargo's compiled files.
fn target(context: &Context) -> PathBuf {
    let other = std::env::var_os("CARGO_TARGET_DIR");
    other.map_or_else(|| context.root.join("target"), PathBuf::from)
}

/// The number over everything that happened, if the line tells it.
fn trace_in(line: &str) -> Option<String> {
    let (_, trace) = line.rsplit_once(", trace ")?;
    let trace = trace.trim();
    (trace.len() == 16 && trace.bytes().all(|b| b.is_ascii_hexdigit())).then(|| trace.to_owned())
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_last_line_of_the_swarm_tells_the_trace() {
        let line =
            "4 seeds, 0 failed, 51471 calls ran, 19 seeds per minute, trace 9c4ddd85b0605c31";
        assert_eq!(trace_in(line).as_deref(), Some("9c4ddd85b0605c31"));
        assert_eq!(trace_in("seed 3: R5: a grain, trace of nothing"), None);
    }
}
