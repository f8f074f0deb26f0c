//! The messages between the two ends of a stream, in their form on the wire (serde, compact names).

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::api::{Credit, StreamId};

/// Values of a stream, one encoded value behind the other. Their encoding says where each ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// The number of values.
    #[serde(rename = "n")]
    pub count: u32,
    /// The encoded values, each of at least one byte.
    #[serde(rename = "b")]
    pub bytes: Bytes,
}

/// A message from a writer to its reader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToReader {
    /// The next values. Without any, and not the last, it says that the writer is there.
    #[serde(rename = "v")]
    Values {
        /// The stream.
        #[serde(rename = "s")]
        stream: StreamId,
        /// The number of values before these.
        #[serde(rename = "f")]
        first: u64,
        /// The values.
        #[serde(rename = "v")]
        block: Block,
        /// True if no value follows.
        #[serde(rename = "l", default)]
        is_last: bool,
        /// True if the writer was dropped before it had finished; `is_last` is true as well.
        #[serde(rename = "x", default)]
        is_broken: bool,
    },
    /// The answer to [`ToWriter::Check`].
    #[serde(rename = "s")]
    Sent {
        /// The stream.
        #[serde(rename = "s")]
        stream: StreamId,
        /// The number of values that were sent.
        #[serde(rename = "n")]
        items: u64,
    },
    /// The writer's process knows no such stream: it has finished, or never was there.
    #[serde(rename = "g")]
    Gone {
        /// The stream.
        #[serde(rename = "s")]
        stream: StreamId,
    },
}

/// A message from a reader to its writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToWriter {
    /// The writer may send up to these totals.
    #[serde(rename = "c")]
    Credit {
        /// The stream.
        #[serde(rename = "s")]
        stream: StreamId,
        /// The totals.
        #[serde(rename = "c")]
        credit: Credit,
    },
    /// The writer shall say how far it is. The credit comes with it, in case it was lost.
    #[serde(rename = "q")]
    Check {
        /// The stream.
        #[serde(rename = "s")]
        stream: StreamId,
        /// The totals.
        #[serde(rename = "c")]
        credit: Credit,
    },
    /// The reader takes no further value.
    #[serde(rename = "x")]
    Stop {
        /// The stream.
        #[serde(rename = "s")]
        stream: StreamId,
    },
}

impl ToReader {
    /// The stream that the message is about.
    pub const fn stream(&self) -> StreamId {
        match self {
            Self::Values { stream, .. } | Self::Sent { stream, .. } | Self::Gone { stream } => {
                *stream
            }
        }
    }
}

impl ToWriter {
    /// The stream that the message is about.
    pub const fn stream(&self) -> StreamId {
        match self {
            Self::Credit { stream, .. } | Self::Check { stream, .. } | Self::Stop { stream } => {
                *stream
            }
        }
    }
}
