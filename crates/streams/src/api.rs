//! Settings, ends and credit, as plain data.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The number of a stream among those that one process reads. The reader's process chooses it at
/// random, so that no other process can guess it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StreamId(pub u64);

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The most that a stream holds beyond what its application has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// The number of values. At least 1. Default 512.
    #[serde(rename = "i")]
    pub items: u32,
    /// The bytes of the encoded values. At least 1. The value that passes this limit still goes.
    /// Default 64 KB.
    #[serde(rename = "b")]
    pub bytes: u32,
}

impl Default for Window {
    fn default() -> Self {
        Self { items: 512, bytes: 64 << 10 }
    }
}

/// The totals up to which a writer may send, counted from the start of the stream. They never go
/// back, so a message that is late or comes twice does no harm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credit {
    /// The number of values.
    #[serde(rename = "i")]
    pub items: u64,
    /// The bytes of the encoded values: a writer that has sent less may send one more value.
    #[serde(rename = "b")]
    pub bytes: u64,
}

impl Credit {
    /// The credit of an application that has taken this much.
    pub(crate) fn after(window: Window, items: u64, bytes: u64) -> Self {
        Self {
            items: items.saturating_add(window.items.into()),
            bytes: bytes.saturating_add(window.bytes.into()),
        }
    }

    /// The larger of each total.
    pub(crate) fn or(self, other: Self) -> Self {
        Self { items: self.items.max(other.items), bytes: self.bytes.max(other.bytes) }
    }
}

/// Settings of both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The credit of a stream.
    pub window: Window,
    /// A batch is sent when it has this many bytes, or sooner. Default 16 KB.
    pub batch_bytes: usize,
    /// The time between two batches that are not full. The first value after such a time goes at
    /// once. Default 1 ms.
    pub batch_time: Duration,
    /// A writer that has sent nothing for this long after its start says that it is there. Default
    /// 100 ms.
    pub hello_after: Duration,
    /// A reader that has sent nothing for this long asks its writer how far it is. Default 5 s.
    pub check_every: Duration,
    /// A reader that has a reason to doubt its writer asks again after this time. Messages that
    /// travel longer than this are taken as lost. Default 1 s.
    pub doubt: Duration,
    /// An end that has heard nothing for this long gives the stream up. Default 15 s.
    pub silence: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            window: Window::default(),
            batch_bytes: 16 << 10,
            batch_time: Duration::from_millis(1),
            hello_after: Duration::from_millis(100),
            check_every: Duration::from_secs(5),
            doubt: Duration::from_secs(1),
            silence: Duration::from_secs(15),
        }
    }
}

/// The end of a stream, as its reader sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The writer has finished, and all its values were given out.
    Complete,
    /// Values may be missing after those that were given out.
    Lost(Lost),
}

/// The reason why a stream ended before its writer had finished, or may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lost {
    /// The process of the writer, or the gateway between, has ended or cannot be reached.
    Process,
    /// The writer was dropped before it had finished.
    Left,
    /// The writer's process does not know the stream: the writer was never there, or is gone.
    Writer,
    /// Nothing was heard from the writer for [`Config::silence`].
    Silence,
    /// A message with values was lost.
    Message,
    /// The writer broke the rules: more values than it had credit for, or values that overlap.
    Rules,
}

/// The reason why a writer can write no further value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unwritable {
    /// The reader was dropped, or has ended.
    Stopped,
    /// The process of the reader, or its gateway, has ended or cannot be reached.
    Process,
    /// Nothing was heard from the reader for [`Config::silence`].
    Silence,
    /// The writer has left: [`Writer::leave`](crate::Writer::leave).
    Left,
}
