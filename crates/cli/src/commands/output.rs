//! The output of commands on stdout.

use std::io::{ErrorKind, Write};

use clap::ValueEnum;
use serde::Serialize;

use crate::exit::{Failure, Result};

/// The form of what a command prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// One JSON document.
    Json,
}

/// Prints in this form.
pub(crate) fn show(
    format: Format,
    table: impl FnOnce() -> String,
    document: &impl Serialize,
) -> Result<()> {
    match format {
        Format::Table => write_out(&table()),
        Format::Json => {
            let text = serde_json::to_string_pretty(document).map_err(Failure::other)?;
            write_out(&format!("{text}\n"))
        }
    }
}

/// To stdout; a reader that has gone away (`| head`) is no failure.
///
/// # Errors
/// It cannot be written.
pub fn write_out(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::other(error)),
        Err(_) => std::process::exit(0),
        Ok(()) => Ok(()),
    }
}
