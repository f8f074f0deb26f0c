//! Tables on stdout.

use clap::ValueEnum;
use emmer_cli::commands::output::write_out;
use emmer_cli::exit::Result;
use emmer_report::Report;

/// Format of the table of an experiment or a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TableFormat {
    /// Aligned columns, then the numbers next to their goals
    Table,
    /// One JSON object for each row
    Json,
}

/// Prints a table.
pub(crate) fn show(report: &Report, format: TableFormat) -> Result<()> {
    match format {
        TableFormat::Table => write_out(&report.to_text()),
        TableFormat::Json => write_out(&report.to_json_lines()),
    }
}
