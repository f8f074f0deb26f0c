//! The machine's inputs and effects, as plain data.

use std::sync::Arc;
use std::time::Duration;

use emmer_core::{GrainId, Reminder, SiloAddress, Timestamp};
use serde::{Deserialize, Serialize};

/// The token of a row's content, as the store gave it.
pub type Etag = Arc<str>;

/// The machine's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Reminders that are due within this time are in memory. Default 10 min.
    pub window: Duration,
    /// An occurrence that is later than this, or than its period, was missed. Default 1 min.
    pub late_after: Duration,
    /// Maximum rows of a read of due rows in one bucket. A read of all rows, in several buckets,
    /// asks for an eighth. Default 500.
    pub read_limit: usize,
    /// The most reads under way at once. Default 2.
    pub reads_max: usize,
    /// The most ticks and writes under way at once. Default 1,000.
    pub in_flight_max: usize,
    /// Maximum changed reminders that their owners have not heard of. The owner of a further one
    /// finds it with the next read. Default 10,000.
    pub tells_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(600),
            late_after: Duration::from_secs(60),
            read_limit: 500,
            reads_max: 2,
            in_flight_max: 1_000,
            tells_max: 10_000,
        }
    }
}

/// A reminder in the machine's memory. Never used for a second one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId(pub(crate) u64);

/// Ties an [`Effect::Read`] to the call of `handle_read` that answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadId(pub(crate) u64);

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The row's content.
    pub reminder: Reminder,
    /// The token for a conditional write.
    pub etag: Etag,
}

/// One occurrence of a reminder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tick {
    /// The number of the occurrence, from 1.
    pub number: u64,
    /// Time at which it was due.
    pub due: Timestamp,
    /// The number of occurrences before it that were missed, or given up, since the last one that
    /// was delivered.
    pub missed: u64,
}

/// An order of the machine to its shell, polled in order with `poll_effect`.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Read the rows of the buckets `from..=to`, at most `limit`. If only rows due `by` some time
    /// are wanted, `from` and `to` are one bucket. Answer with `handle_read`.
    Read {
        /// To be given back.
        read: ReadId,
        /// The first bucket.
        from: u16,
        /// The last bucket.
        to: u16,
        /// Only rows that are due by then; None: all rows.
        by: Option<Timestamp>,
        /// The most rows.
        limit: usize,
    },
    /// Call the grain. Answer with `handle_ticked`.
    Fire {
        /// To be given back.
        entry: EntryId,
        /// The reminder.
        reminder: Reminder,
        /// The occurrence.
        tick: Tick,
    },
    /// Replace the row if it has this etag. Answer with `handle_settled`.
    Settle {
        /// To be given back.
        entry: EntryId,
        /// The row's new content.
        reminder: Reminder,
        /// The etag that the row must have.
        etag: Etag,
    },
    /// Delete the row if it has this etag: no occurrence is left. Answer with `handle_settled`.
    Remove {
        /// To be given back.
        entry: EntryId,
        /// The reminder.
        reminder: Reminder,
        /// The etag that the row must have.
        etag: Etag,
    },
    /// Read one row. Answer with `handle_looked`.
    Look {
        /// The reminder's grain.
        grain: GrainId,
        /// The name of the grain's type.
        grain_type: Arc<str>,
        /// Its name.
        name: Arc<str>,
    },
    /// Send to another silo. Best effort: a loss is made good by a retry.
    Send {
        /// The receiver.
        to: SiloAddress,
        /// The message.
        message: Message,
    },
}

/// The result of a read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The rows of this service.
    pub rows: Vec<Row>,
    /// The read came to its limit: there may be more.
    pub is_full: bool,
}

/// The end of a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ticked {
    /// The grain's handler ran and did not fail.
    Delivered,
    /// It failed, or the grain was not reached.
    Failed,
}

/// The end of a write or a removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It is written, under this etag.
    Written(Etag),
    /// The row is gone, as wanted.
    Removed,
    /// Nothing was written: the row has changed.
    Changed,
    /// It may or may not be written.
    Unknown,
}

/// The result of a look at one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Looked {
    /// The row.
    Row(Row),
    /// No such row.
    Gone,
    /// The store did not say.
    Unknown,
}

/// A message between silos.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// A reminder was written or removed; you own it.
    #[serde(rename = "c")]
    Changed {
        /// The reminder's grain.
        #[serde(rename = "g")]
        grain: GrainId,
        /// The name of the grain's type.
        #[serde(rename = "t")]
        grain_type: Arc<str>,
        /// Its name.
        #[serde(rename = "n")]
        name: Arc<str>,
        /// To be given back.
        #[serde(rename = "i")]
        id: u64,
    },
    /// The change of this number was heard.
    #[serde(rename = "h")]
    Heard {
        /// As it was told.
        #[serde(rename = "i")]
        id: u64,
    },
}

/// The machine's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Reminders in memory.
    pub in_memory: u64,
    /// Ticks delivered.
    pub delivered: u64,
    /// Ticks that failed, each try.
    pub failed: u64,
    /// Occurrences that were missed or given up.
    pub missed: u64,
    /// Occurrences that another silo had settled, or whose reminder had changed.
    pub conflicts: u64,
    /// Reads of parts of the table.
    pub reads: u64,
    /// Rows that these reads returned.
    pub rows_read: u64,
}
