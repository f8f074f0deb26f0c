//! The commands, one module each.

#[cfg(unix)]
mod bench;
mod child;
mod demo;
mod doctor;
mod members;
mod output;
mod schema;
mod silo;
mod sim;
mod store;

use clap::Subcommand;

use crate::exit::{Failure, Result};

/// What to do.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run a silo that hosts the example grains, until Ctrl-C
    ///
    /// Prints one line when the silo is Active. Ctrl-C or SIGTERM leaves the cluster in good order;
    /// a second one ends the process at once.
    Silo(silo::Args),
    /// Show the membership table: who is in the cluster, who is suspected, who died
    ///
    /// Reads the table only, so it works while no silo runs.
    Members(members::Args),
    /// Replay a year of flights on three silo processes, kill one half way, and check every total
    Demo(demo::Args),
    /// Say whether a system store is fit for a cluster: what it is, what it would lose, how fast it
    /// answers
    ///
    /// Connects, asks the server about itself, and runs a short self-check in a cluster of its own,
    /// `emmer-doctor`, which it leaves empty. Makes the tables where they are missing.
    Doctor(doctor::Args),
    /// Print the script that makes the tables of a relational store
    Schema(schema::Args),
    /// Run the simulator: experiments in virtual time, random scenarios, replays
    ///
    /// Thousands of silos in one process and no socket: the same protocol code that `emmer silo`
    /// runs.
    Sim(sim::Args),
    /// Measure silos on real sockets and a real store
    #[cfg(unix)]
    Bench(bench::Args),
}

impl Command {
    /// Runs the command; `log` is the global flag.
    pub(crate) fn run(self, log: Option<String>) -> Result<()> {
        match self {
            Self::Silo(args) => silo::run(args, log),
            Self::Members(args) => members::run(args, log),
            Self::Demo(args) => demo::run(&args, log),
            Self::Doctor(args) => doctor::run(args, log),
            Self::Schema(args) => schema::run(args, log),
            Self::Sim(args) => sim::run(&args),
            #[cfg(unix)]
            Self::Bench(args) => bench::run(&args, log),
        }
    }
}

/// The threads of every command that needs them.
fn runtime() -> Result<tokio::runtime::Runtime> {
    let built = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    built.map_err(|error| Failure::other(format!("no threads to run on: {error}")))
}
