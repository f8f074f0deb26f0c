//! Words of the two ends to each other.

use serde::{Deserialize, Serialize};

/// Message between the two ends of a connection about calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum CallsMessage {
    /// The sender has answered every call that it has begun, and begins no other.
    #[serde(rename = "d")]
    Drained,
    /// "Say something": nothing has come from the receiver while calls wait for it.
    #[serde(rename = "p")]
    Ping,
    /// The answer to it.
    #[serde(rename = "a")]
    Pong,
    /// "Use this connection for what you have to say to me, and none with a lower number": those
    /// have fallen silent.
    #[serde(rename = "i")]
    Instead(u64),
}

/// Counts of the words that the peer was asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Words {
    /// Words that the peer was asked for.
    pub(crate) asked: u64,
    /// Words that it has said.
    pub(crate) said: u64,
}
