//! The log of the process, for operators: its last lines, and its levels.
//!
//! Whatever writes the log keeps the lines. The runtime knows it by [`LogBook`] alone, so that a
//! program may have any subscriber of `tracing`.

use std::sync::OnceLock;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The log of a process, as operators see it. All silos of the process share it.
pub trait LogBook: Send + Sync + 'static {
    /// Lines of `level` (`error`, `warn`, `info`, `debug`, `trace`) and above with a number after
    /// `after`, oldest first, at most `max`. Lines are kept from the first question on, until a
    /// minute after the last.
    ///
    /// # Errors
    /// `level` is not a level.
    fn lines(&self, level: &str, after: u64, max: usize) -> Result<LogPage, String>;

    /// Has the log written by this filter for a time, and then as before; without a filter as
    /// before at once. Returns the filter in force until now.
    ///
    /// # Errors
    /// The text is not a filter.
    fn set_filter(&self, filter: Option<&str>, within: Duration) -> Result<String, String>;

    /// Stops keeping lines after the last look, and ends filters whose time is over. Called often.
    fn rest(&self);
}

/// A page of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LogPage {
    /// The lines, oldest first.
    pub lines: Vec<LogLine>,
    /// Number of the last line, to continue after.
    pub last: u64,
    /// Number of lines after `after` that were no longer kept.
    pub lost: u64,
    /// The filter by which the log is written.
    pub filter: String,
}

/// A line of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LogLine {
    /// Its number, from 1.
    pub number: u64,
    /// Time, in milliseconds since 1970.
    pub at_ms: i64,
    /// Level, as in `warn`.
    pub level: String,
    /// Target: nearly always the module.
    pub target: String,
    /// The message and the fields.
    pub words: String,
}

static BOOK: OnceLock<Box<dyn LogBook>> = OnceLock::new();

/// Gives operators the log of this process. Returns false if they have one already.
pub fn show_log(book: impl LogBook) -> bool {
    BOOK.set(Box::new(book)).is_ok()
}

/// The log of this process.
pub(crate) fn log() -> Option<&'static dyn LogBook> {
    BOOK.get().map(|book| &**book)
}
