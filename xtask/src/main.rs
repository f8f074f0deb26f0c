//! The project's tasks: three tiers of tests, and the house rules as checks. See `cargo xtask
//! help`.
//!
//! | module | subject |
//! |---|---|
//! | [`first`] | the first tier, `test`: the tests of what users link, in minutes |
//! | [`check`] | the second, `check`: form, documents, licences, laboratory, examples |
//! | [`stores`] | the third, `test --stores`: every other system store on its server |
//! | [`nightly`] | the fourth, `nightly`: what takes long |
//! | [`tests`] | running tests, and reading what came of them |
//! | [`guard`] | instruction counts beside their baseline |
//! | [`tidy`] | the house rules |
//! | [`tools`] | programs that are installed for this: nextest, cargo-deny, typos, lychee |
//! | [`mod@run`], [`report`] | one command in a log, and the table at the end |
//! | [`workspace`] | the packages and files there are |

mod check;
mod first;
mod guard;
mod nightly;
mod report;
mod run;
mod stores;
mod tests;
mod tidy;
mod tools;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::report::Row;
use crate::run::Context;

/// The project's tasks
///
/// Logs are in target/xtask, tools in target/tools (or where EMMER_TOOLS says). Where the
/// environment says CI=true, Cargo.lock is binding, and a tool or a server that is missing and
/// cannot be installed is a failure.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", after_help = CODES)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

const CODES: &str = "\
Exit codes: 0 everything passed; 1 something failed; 2 the command line is wrong;
3 the checks could not be run (no workspace, no cargo, no disk)";

#[derive(Subcommand)]
enum Task {
    /// The first tier: the tests of what users link, with SQLite, and the book's first page
    Test(TestArgs),
    /// The second tier: form, spelling, links, licences, clippy, pages, doctests, the laboratory,
    /// the examples and the packages
    Check(CheckArgs),
    /// The first three tiers, as the build machine runs them: of the stores those changed since the
    /// commit that EMMER_BASE names, and each one's conformance suite
    Ci,
    /// The fourth tier: mutants, instruction counts, traces of two builds, models of threads, long
    /// swarms, every store's server under the whole program
    Nightly(NightlyArgs),
    /// Check the house rules that neither the compiler nor clippy checks
    Tidy,
    /// Count the instructions of the hot paths and compare them with lab/benches/guard.json
    Guard {
        /// Write that file from the counts
        #[arg(long)]
        renew: bool,
    },
    /// Put small bugs into the sources and see who finds them (`--help` says more)
    #[command(disable_help_flag = true)]
    Mutants {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        arguments: Vec<String>,
    },
    /// Real servers to try things with: up, down, status, install (`--help` says more)
    #[command(disable_help_flag = true)]
    Services {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        arguments: Vec<String>,
    },
}

#[derive(clap::Args)]
struct TestArgs {
    /// The third tier instead: the suites of all other stores, each on its server
    #[arg(long, conflicts_with = "package")]
    stores: bool,
    /// One store's suite, and the program on its server: the demo, and a cluster that outlives a
    /// restart
    #[arg(long, value_name = "NAME", value_parser = stores::names(), conflicts_with_all = ["package", "stores"])]
    store: Option<String>,
    /// Compile and test this package only (may be given more than once)
    #[arg(long, short, value_name = "NAME")]
    package: Vec<String>,
}

#[derive(clap::Args)]
struct CheckArgs {
    /// These steps only, separated by commas
    #[arg(long, value_name = "STEPS", value_delimiter = ',', value_parser = check::names())]
    only: Vec<String>,
    /// Check the advisory database too, which is fetched from the network
    #[arg(long)]
    advisories: bool,
}

#[derive(clap::Args)]
struct NightlyArgs {
    /// These steps only, separated by commas
    #[arg(long, value_name = "STEPS", value_delimiter = ',', value_parser = nightly::names())]
    only: Vec<String>,
}

/// Something was checked and failed.
const FAILED: u8 = 1;
/// The checks could not be run.
const BROKEN: u8 = 3;

fn main() -> ExitCode {
    match perform(Cli::parse().task) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(FAILED),
        Err(reason) => {
            eprintln!("error: {reason}");
            ExitCode::from(BROKEN)
        }
    }
}

fn perform(task: Task) -> Result<bool, String> {
    match task {
        Task::Test(args) => {
            let context = Context::new(args.package)?;
            if let Some(name) = args.store {
                stores::one(&context, &name).map(|rows| told(&rows))
            } else if args.stores {
                stores::rows(&context).map(|rows| told(&rows))
            } else {
                first::rows(&context).map(|rows| told(&rows))
            }
        }
        Task::Check(args) => {
            let mut context = Context::new(Vec::new())?;
            context.advisories = args.advisories;
            check::rows(&context, &args.only).map(|rows| told(&rows))
        }
        Task::Ci => {
            let mut context = Context::new(Vec::new())?;
            context.ci = true;
            let mut rows = first::rows(&context)?;
            rows.extend(check::rows(&context, &[])?);
            rows.extend(stores::changed(&context)?);
            Ok(told(&rows))
        }
        Task::Nightly(args) => {
            nightly::rows(&Context::new(Vec::new())?, &args.only).map(|rows| told(&rows))
        }
        Task::Tidy => tidy::run().map(|outcomes| {
            print!("{}", tidy::render(&outcomes));
            outcomes.iter().all(|outcome| outcome.failures() == 0)
        }),
        Task::Guard { renew } => guard::run(&Context::new(Vec::new())?, renew),
        Task::Mutants { arguments } => program(&["emmer-mutants"], &arguments),
        Task::Services { arguments } => program(stores::SERVICES, &arguments),
    }
}

/// Prints the table; whether everything passed. The last line stands alone: build machines read it.
fn told(rows: &[Row]) -> bool {
    println!("\n{}", report::table(rows));
    println!("{}", report::closing_line(rows));
    !report::failed(rows)
}

/// Compiles and runs a program of the workspace, which has the terminal.
fn program(package: &[&str], arguments: &[String]) -> Result<bool, String> {
    let mut command = workspace::cargo(&workspace::root()?);
    command.args(["run", "--quiet", "--package"]).args(package).arg("--").args(arguments);
    let status = command.status().map_err(|e| format!("cargo did not start: {e}"))?;
    match status.code() {
        Some(0) => Ok(true),
        // Its own number, such as that of a wrong command line.
        Some(code) => std::process::exit(code),
        None => Ok(false),
    }
}

#[cfg(test)]
mod test {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound_and_names_mistakes() {
        Cli::command().debug_assert();
        let parse = |line: &str| {
            let words = line.split_whitespace();
            Cli::try_parse_from(["xtask"].into_iter().chain(words)).err().map(|e| e.to_string())
        };
        for good in ["test", "check --only fmt,doc", "test -p emmer-core", "test --stores", "ci"] {
            assert_eq!(parse(good), None, "{good}");
        }
        for good in ["mutants --smoke --only x", "services up redis", "nightly --only guard"] {
            assert_eq!(parse(good), None, "{good}");
        }
        assert!(parse("check --only lint").unwrap().contains("clippy"));
        assert!(parse("test --store redit").unwrap().contains("redis"));
        assert!(parse("tets").unwrap().contains("test"));
    }
}
