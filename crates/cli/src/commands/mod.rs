//! The commands, one module each.

mod call;
pub mod certs;
pub mod child;
pub mod clusters;
pub mod config;
#[cfg(feature = "console")]
mod console;
mod deactivate;
pub mod dead;
pub mod demo;
pub mod doctor;
pub mod duty;
mod grain;
mod grains;
pub mod members;
mod named;
pub mod output;
mod ports;
mod reach;
mod rebalance;
pub mod records;
pub mod reminders;
pub mod schema;
mod shell;
pub mod silo;
pub mod state;
pub mod store;
mod telemetry;
#[cfg(feature = "top")]
mod top;
pub mod version;

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::exit::{self, Failure, Result};

/// Virtual actors in clusters that manage themselves.
#[derive(Parser)]
#[command(name = "emmer", version = version::short(), long_version = version::long())]
#[command(after_help = exit::HELP)]
pub struct CommandLine {
    /// The log on stderr: off, error, warn, info, debug, trace, or a list such as
    /// `warn,emmer_runtime=debug` [environment: EMMER_LOG] [default: warn]
    #[arg(long, global = true, value_name = "FILTER")]
    log: Option<String>,
    #[command(subcommand)]
    command: Command,
}

impl CommandLine {
    /// Runs the command.
    ///
    /// # Errors
    /// It could not be done; the failure has its exit code.
    pub fn run(self) -> Result<()> {
        self.command.run(self.log)
    }
}

/// Command.
#[derive(Subcommand)]
pub enum Command {
    /// Run a silo that hosts the example grains, until Ctrl-C
    ///
    /// Prints one line when the silo is Active. Ctrl-C or SIGTERM leaves the cluster in good order;
    /// a second one ends the process at once.
    Silo(silo::Args),
    /// Show the membership table: who is in the cluster, who is suspected, who died
    ///
    /// Reads the table only, so it works while no silo runs.
    Members(members::Args),
    /// Show the clusters in a store: how many silos each has, and when one was last alive
    ///
    /// A cluster is listed once a silo of it has kept a history (`records.history_retention`).
    Clusters(clusters::Args),
    /// Declare a silo dead whose host is lost, where too few silos are left to do it
    ///
    /// Looks at its row and its port first, for some seconds. Its grains run elsewhere some ten
    /// seconds later. If it still runs, cut off from the others, they run twice.
    Dead(dead::Args),
    /// Have a silo take no new grains while other silos are there; it keeps those that it has
    ///
    /// Writes that into the table, and tells a gateway if one answers. A new incarnation of the
    /// silo begins uncordoned.
    Cordon(duty::Args),
    /// Have a silo take new grains again: ends what `cordon` or `drain` began
    Uncordon(duty::Args),
    /// Empty a silo: cordon it, and have its grains go to other silos. It stays a member
    ///
    /// Calls are served meanwhile. Ends when the last grain is gone. Interrupted, it stops waiting,
    /// and the silo continues: `uncordon` takes it back.
    Drain(duty::WaitArgs),
    /// Have a silo leave the cluster in good order, as after SIGTERM, and wait until it has
    ///
    /// Its process ends with code 0 if it is nothing but a silo.
    Stop(duty::WaitArgs),
    /// Even out the numbers of recently used grains now, or show what that would move
    ///
    /// Silos of one role that host the same types share grains. A grain that has moved within ten
    /// minutes stays.
    Rebalance(rebalance::Args),
    /// Show one grain: where it is, what runs, who waits, its states, reminders and failures
    ///
    /// Asks a running cluster, and wakes no grain. Gateways answer programs on their own host, and
    /// others as the application says.
    Grain(grain::Args),
    /// Show the numbers of grains by type and silo, or a page of grains
    Grains(grains::Args),
    /// Call a method of a grain, with arguments in JSON; without a method show the methods
    ///
    /// As in `emmer call cart ann put '{"item": "tea"}'`. The call is a client's: the rules for
    /// calls of clients hold.
    Call(call::Args),
    /// End the activation of a grain, also one whose turn hangs
    Deactivate(deactivate::Args),
    /// Watch a cluster in the terminal: silos, types, methods, hot keys, turns, queues, changes
    ///
    /// Keys sort, filter, open a grain, and give orders after a question; `?` lists them.
    #[cfg(feature = "top")]
    Top(top::Args),
    /// Show a cluster in a browser: silos, timeline, methods, grains, turns, stores, settings, log
    ///
    /// Prints its address, and serves until Ctrl-C. Without a token programs on this host see it,
    /// and no others.
    #[cfg(feature = "console")]
    Console(console::Args),
    /// Show the reminders of a service: what is due next, what was fired and missed
    ///
    /// Reads the table only, so it works while no silo runs.
    Reminders(reminders::Args),
    /// Print the states of a grain as JSON
    ///
    /// Reads the table only, so it works while no silo runs, and does no harm to one that runs. A
    /// state that names a store is in that store: give it by --store.
    State(state::Args),
    /// Show the last key figures of each silo, or of each client
    ///
    /// Silos write them into the store once in `records.metrics_period`.
    Metrics(records::metrics::Args),
    /// Show what silos have counted, report by report, newest first
    ///
    /// Silos add a report to the store once in `records.statistics_period`.
    Statistics(records::statistics::Args),
    /// Show the changes of the membership: who joined, left and died, and who suspected whom
    ///
    /// Silos record each change that they commit; docs/records.md lists the words.
    History(records::history::Args),
    /// Replay a year of flights on three silo processes, kill one half way, and check every total
    Demo(demo::Args),
    /// Say whether a system store is fit for a cluster: what it is, what it would lose, how fast it
    /// answers
    ///
    /// Connects, asks the server about itself, and runs a short self-check in a cluster of its own,
    /// `emmer-doctor`, which it leaves empty. Makes the tables where they are missing.
    Doctor(doctor::Args),
    /// Make an authority and certificates, or a secret, for a development cluster
    ///
    /// The first run makes the authority; later ones use it for the certificates of more silos and
    /// clients. With its key, or with the secret, any process can be a silo. A production cluster
    /// gets its certificates from the authority of its organisation.
    Certs(certs::Args),
    /// Show every setting of a silo: its value, and where that comes from
    ///
    /// Reads the file, the environment and the flags as `emmer silo` does, and starts nothing.
    /// Secrets are left out.
    Config(config::Args),
    /// Print the script that makes the tables of a relational store
    Schema(schema::Args),
    /// Print the completions of a shell, to be put where that shell looks for them
    ///
    /// As in `emmer completions bash > /etc/bash_completion.d/emmer`.
    Completions(shell::CompletionsArgs),
    /// Print the manual page, of `emmer` or of one command
    ///
    /// As in `emmer man silo > /usr/local/share/man/man1/emmer-silo.1`.
    Man(shell::ManArgs),
    /// Moved to `emmer-lab`
    #[command(hide = true)]
    Bench(Moved),
    /// Moved to `emmer-lab`
    #[command(hide = true)]
    Sim(Moved),
}

/// The arguments of a command that another program has.
#[derive(clap::Args)]
pub struct Moved {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _arguments: Vec<String>,
}

/// The failure of a command that `emmer-lab` has.
fn moved(command: &str) -> Failure {
    Failure::usage(format!(
        "{command} has moved to emmer-lab: in a checkout, `cargo run --release -p emmer-lab -- \
         {command}`"
    ))
}

impl Command {
    /// Runs the command; `log` is the global flag.
    fn run(self, log: Option<String>) -> Result<()> {
        match self {
            Self::Silo(args) => silo::run(args, |builder| builder),
            Self::Members(args) => members::run(args, log),
            Self::Clusters(args) => clusters::run(args, log),
            Self::Dead(args) => dead::run(args, log),
            Self::Rebalance(args) => rebalance::run(args, log),
            Self::Cordon(args) => duty::cordon(args, log),
            Self::Uncordon(args) => duty::uncordon(args, log),
            Self::Drain(args) => duty::drain(args, log),
            Self::Stop(args) => duty::stop(args, log),
            Self::Grain(args) => grain::run(args, log),
            Self::Grains(args) => grains::run(args, log),
            Self::Call(args) => call::run(args, log),
            Self::Deactivate(args) => deactivate::run(args, log),
            #[cfg(feature = "top")]
            Self::Top(args) => top::run(args, log),
            #[cfg(feature = "console")]
            Self::Console(args) => console::run(args, log),
            Self::Reminders(args) => reminders::run(args, log),
            Self::State(args) => state::run(args, log),
            Self::Metrics(args) => records::metrics::run(args, log),
            Self::Statistics(args) => records::statistics::run(args, log),
            Self::History(args) => records::history::run(args, log),
            Self::Demo(args) => demo::run(&args, log),
            Self::Doctor(args) => doctor::run(args, log),
            Self::Certs(args) => certs::run(&args),
            Self::Config(args) => config::run(args),
            Self::Schema(args) => schema::run(args, log),
            Self::Completions(args) => shell::completions(&args, CommandLine::command()),
            Self::Bench(_) => Err(moved("bench")),
            Self::Sim(_) => Err(moved("sim")),
            Self::Man(args) => shell::man(&args, CommandLine::command()),
        }
    }
}

#[test]
fn the_command_line_is_sound() {
    CommandLine::command().debug_assert();
}
