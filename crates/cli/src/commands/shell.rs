//! `emmer completions` and `emmer man`: what a shell and `man` want to know of this command.

use clap::Command;
use clap_complete::Shell;

use super::output::write_out;
use crate::exit::{Failure, Result};

/// The flags of `emmer completions`.
#[derive(clap::Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// The flags of `emmer man`.
#[derive(clap::Args)]
pub struct ManArgs {
    /// A command, as in `silo`; without it the page is that of `emmer`
    command: Option<String>,
}

pub(super) fn completions(args: &CompletionsArgs, mut command: Command) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "emmer", &mut script);
    write_out(&String::from_utf8_lossy(&script))
}

pub(super) fn man(args: &ManArgs, mut command: Command) -> Result<()> {
    // Subcommands are given the global flags and their full names.
    command.build();
    let command = match &args.command {
        None => command,
        Some(name) => {
            let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
            let names: Vec<_> = shown.map(Command::get_name).collect();
            let Some(found) = command.find_subcommand(name) else {
                let why =
                    format!("{name:?} is not a command: expected one of {}", names.join(", "));
                return Err(Failure::usage(why));
            };
            found.clone()
        }
    };
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page).map_err(Failure::other)?;
    write_out(&String::from_utf8_lossy(&page))
}
