//! The project's tasks: `cargo xtask test`, `ci`, `tidy`, `layers`, `guard`, `mutants`. See
//! `cargo xtask help`.

mod args;
mod deny;
mod excerpt;
mod guard;
mod libtest;
mod limited;
mod live;
mod lock;
mod mutants;
mod report;
mod run;
mod services;
mod steps;
mod stores;
mod tidy;
mod traces;
mod tsql;
mod workspace;

use std::process::ExitCode;

use crate::args::Task;

/// Something was checked and failed.
const FAILED: u8 = 1;
/// The command line is wrong.
const USAGE: u8 = 2;
/// The checks could not be run.
const BROKEN: u8 = 3;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let task = match args::parse(&args) {
        Ok(task) => task,
        Err(mistake) => {
            eprintln!("error: {mistake}");
            return ExitCode::from(USAGE);
        }
    };
    let passed = match task {
        Task::Help => {
            print!("{}", args::HELP);
            Ok(true)
        }
        Task::Layers => {
            print!("{}\n{}", tidy::layers::markdown(), tidy::rooms::markdown());
            Ok(true)
        }
        Task::Guard { renew } => guard::run(renew),
        Task::Mutants(options) => mutants::run(&options),
        Task::Services(action, names) => services::run(&action, &names),
        Task::Tidy => tidy::run().map(|outcomes| {
            print!("{}", tidy::render(&outcomes));
            outcomes.iter().all(|outcome| outcome.failures() == 0)
        }),
        Task::Limited(limit, program, arguments) => {
            return limited::run(limit, &program, &arguments).unwrap_or_else(|reason| {
                eprintln!("error: {reason}");
                ExitCode::from(BROKEN)
            });
        }
        Task::Test(options) => steps::run(options).map(|rows| {
            println!("\n{}", report::table(&rows));
            // The last line stands alone: build machines read it.
            println!("{}", report::closing_line(&rows));
            !report::failed(&rows)
        }),
    };
    match passed {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(FAILED),
        Err(reason) => {
            eprintln!("error: {reason}");
            ExitCode::from(BROKEN)
        }
    }
}
