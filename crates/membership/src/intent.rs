//! The wishes of a silo for writes to the table (improvement 5), as plain data.
//!
//! An intent is a wish, not a write: the writer evaluates it against the view of its commit.
//! Repeating it, or evaluating it after its row shows it, changes nothing.

use std::sync::Arc;

use emmer_core::{SiloAddress, SiloEntry, SiloStatus, Timestamp};
use serde::{Deserialize, Serialize};

use crate::compact;

/// The most intents a writer keeps; further ones are dropped, and sent again by their owners.
pub const INTENTS_MAX: usize = 20_000;

/// The most intents in one message.
pub const INTENTS_PER_MESSAGE_MAX: usize = 256;

/// One wish.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Intent {
    /// Insert this row as Joining; earlier incarnations of its `ip:port` become Dead in the same
    /// commit.
    #[serde(rename = "j")]
    Join(#[serde(with = "compact::row")] Arc<SiloEntry>),
    /// Make a Joining silo Active.
    #[serde(rename = "a")]
    Activate {
        /// The silo.
        #[serde(rename = "s")]
        silo: SiloAddress,
        /// The view with whose every member (except stale ones and those in `missing`) it has made
        /// a round trip.
        #[serde(rename = "v")]
        checked: u64,
        /// Joining members of that view which did not answer.
        #[serde(rename = "m", default, skip_serializing_if = "Vec::is_empty")]
        missing: Vec<SiloAddress>,
    },
    /// A suspicion.
    #[serde(rename = "v")]
    Vote {
        /// Silo that is suspected.
        #[serde(rename = "t")]
        target: SiloAddress,
        /// Silo that suspects.
        #[serde(rename = "w")]
        voter: SiloAddress,
        /// Time, by the voter's wall clock, at which the last evidence was gathered.
        #[serde(rename = "d")]
        at: Timestamp,
        /// Evidence of the suspicion.
        #[serde(rename = "g", default, skip_serializing_if = "Evidence::is_silence")]
        evidence: Evidence,
    },
    /// A suspicion taken back before it was written. Of a silo about itself: its wish to be Active.
    #[serde(rename = "u")]
    Withdraw {
        /// Silo that was suspected, or wished to be Active.
        #[serde(rename = "t")]
        target: SiloAddress,
        /// Silo that suspected, or the same silo.
        #[serde(rename = "w")]
        voter: SiloAddress,
    },
    /// A suspicion taken back after it was written.
    #[serde(rename = "y")]
    Retract {
        /// Silo that was suspected.
        #[serde(rename = "t")]
        target: SiloAddress,
        /// Silo that suspected.
        #[serde(rename = "w")]
        voter: SiloAddress,
    },
    /// A silo's own last statuses: ShuttingDown, Stopping, Dead.
    #[serde(rename = "s")]
    Status {
        /// Whose.
        #[serde(rename = "s")]
        silo: SiloAddress,
        /// The silo.
        #[serde(rename = "x")]
        status: SiloStatus,
    },
}

/// Evidence of a vote.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(try_from = "u8", into = "u8")]
pub enum Evidence {
    /// A connection broke and the host refuses new ones. A firewall can do both while the silo
    /// lives: such a vote counts only together with one of a silo that knows the process to be
    /// gone.
    Refusal,
    /// The suspect has not answered for the whole patience.
    #[default]
    Silence,
    /// The process is gone: its host's kernel ended a connection in good order, without a goodbye
    /// of the process, and refuses new ones.
    Gone,
}

impl Evidence {
    fn is_silence(&self) -> bool {
        *self == Self::Silence
    }
}

impl From<Evidence> for u8 {
    fn from(evidence: Evidence) -> Self {
        evidence as Self
    }
}

impl TryFrom<u8> for Evidence {
    type Error = String;

    fn try_from(number: u8) -> Result<Self, Self::Error> {
        match number {
            0 => Ok(Self::Refusal),
            1 => Ok(Self::Silence),
            2 => Ok(Self::Gone),
            _ => Err(format!("{number} is not a kind of evidence: expected 0, 1 or 2")),
        }
    }
}

/// Orders intents in a queue: what kills and what leaves first, then what completes a join, then
/// new joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    Vote(SiloAddress, SiloAddress),
    Status(SiloAddress),
    Activate(SiloAddress),
    Join(SiloAddress),
}

impl Intent {
    /// The key; what takes a wish back has the key of the wish.
    pub(crate) fn key(&self) -> Key {
        match self {
            Self::Join(row) => Key::Join(row.address),
            Self::Activate { silo, .. } => Key::Activate(*silo),
            Self::Withdraw { target, voter } if target == voter => Key::Activate(*target),
            Self::Vote { target, voter, .. }
            | Self::Withdraw { target, voter }
            | Self::Retract { target, voter } => Key::Vote(*target, *voter),
            Self::Status { silo, .. } => Key::Status(*silo),
        }
    }

    /// Whose wish it is.
    pub(crate) fn owner(&self) -> SiloAddress {
        match self {
            Self::Join(row) => row.address,
            Self::Activate { silo, .. } | Self::Status { silo, .. } => *silo,
            Self::Vote { voter, .. }
            | Self::Withdraw { voter, .. }
            | Self::Retract { voter, .. } => *voter,
        }
    }
}
