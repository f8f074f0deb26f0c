//! What commands print on stdout.

use std::io::{ErrorKind, Write};

use clap::ValueEnum;
use emmer_sim::report::Report;

use crate::exit::{Failure, Result};

/// How the table of an experiment or a measurement is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum TableFormat {
    /// Aligned columns, then the numbers beside their goals
    Table,
    /// One JSON object for each row
    Json,
}

/// Prints a table.
pub(super) fn show(report: &Report, format: TableFormat) -> Result<()> {
    match format {
        TableFormat::Table => write_out(&report.to_text()),
        TableFormat::Json => write_out(&report.to_json_lines()),
    }
}

/// To stdout; a reader that has gone away (`| head`) is no failure.
pub(super) fn write_out(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::other(error)),
        Err(_) => std::process::exit(0),
        Ok(()) => Ok(()),
    }
}
