//! A silo's row in the membership table (table description), as the protocol sees it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Duty, SiloAddress, Timestamp};

/// The status of a silo. Only ever moves towards [`Dead`](Self::Dead), which is final (invariant
/// I3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
#[repr(u8)]
pub enum SiloStatus {
    /// Not in the table yet; never written by Emmer, readable from a foreign writer.
    Created = 1,
    /// In the table, proving its connectivity to every Active silo.
    Joining = 2,
    /// A full member: monitors, is monitored, votes, owns ranges, hosts grains.
    Active = 3,
    /// Leaving in good order: finishes its turns, takes no new activations.
    ShuttingDown = 4,
    /// Leaving in haste.
    Stopping = 5,
    /// Gone for good, for this epoch.
    Dead = 6,
}

impl SiloStatus {
    /// The name in the table: `Active`, `ShuttingDown`, ...
    pub const fn name(self) -> &'static str {
        match self {
            Self::Created => "Created",
            Self::Joining => "Joining",
            Self::Active => "Active",
            Self::ShuttingDown => "ShuttingDown",
            Self::Stopping => "Stopping",
            Self::Dead => "Dead",
        }
    }

    /// Returns true if the silo is leaving or gone.
    pub const fn is_terminating(self) -> bool {
        matches!(self, Self::ShuttingDown | Self::Stopping | Self::Dead)
    }
}

impl fmt::Display for SiloStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text or number names no silo status.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a silo status: expected Created, Joining, Active, ShuttingDown, Stopping or Dead"
)]
pub struct ParseSiloStatusError(String);

impl FromStr for SiloStatus {
    type Err = ParseSiloStatusError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Created, Self::Joining, Self::Active, Self::ShuttingDown, Self::Stopping, Self::Dead]
            .into_iter()
            .find(|s| s.name() == text)
            .ok_or_else(|| ParseSiloStatusError(text.chars().take(40).collect()))
    }
}

impl TryFrom<u8> for SiloStatus {
    type Error = ParseSiloStatusError;

    fn try_from(number: u8) -> Result<Self, Self::Error> {
        Ok(match number {
            1 => Self::Created,
            2 => Self::Joining,
            3 => Self::Active,
            4 => Self::ShuttingDown,
            5 => Self::Stopping,
            6 => Self::Dead,
            _ => return Err(ParseSiloStatusError(number.to_string())),
        })
    }
}

impl From<SiloStatus> for u8 {
    fn from(status: SiloStatus) -> Self {
        status as Self
    }
}

/// One timestamped suspicion: "at `at`, `voter` suspected this silo" (membership description, step
/// 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Vote {
    /// Silo that suspects.
    pub voter: SiloAddress,
    /// Time of the suspicion, by the voter's wall clock.
    pub at: Timestamp,
    /// True if the voter knows that the process is gone: its host's kernel ended a connection in
    /// good order, without a goodbye of the process, and refuses new ones. False if it is only
    /// silent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gone: bool,
}

/// One row of the silo instances table: everything the table says about one incarnation of a silo.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SiloEntry {
    /// Address, port and generation: the identity, and the row key.
    pub address: SiloAddress,
    /// Status.
    pub status: SiloStatus,
    /// SuspectingSilos and SuspectingTimes, pairwise, in the order they were cast.
    pub votes: Vec<Vote>,
    /// ProxyPort: the silo's gateway port for clients; 0 when it has none.
    pub proxy_port: u16,
    /// HostName: the kernel's name of the host, or the container. Two rows with one address, one
    /// port and one such name are taken for two processes of one host, of which the earlier one is
    /// gone.
    pub host_name: Arc<str>,
    /// RoleName: what runs there. Grains may ask for silos of a role.
    pub role_name: Arc<str>,
    /// InstanceName, for people only: the silo's own name.
    pub instance_name: Arc<str>,
    /// UpdateZone; 0 when not set.
    pub update_zone: i32,
    /// FaultZone; 0 when not set.
    pub fault_zone: i32,
    /// Duty: the amount of work that an operator wants it to have.
    #[serde(default)]
    pub duty: Duty,
    /// StartTime, by the silo's own wall clock.
    pub start_time: Timestamp,
    /// IAmAliveTime: when the silo last reported, by its own wall clock. The one column written
    /// without touching etag or version.
    pub i_am_alive_time: Timestamp,
}

impl SiloEntry {
    /// A fresh row for `address` that started at `start_time`, with no names and no gateway.
    pub fn new(address: SiloAddress, status: SiloStatus, start_time: Timestamp) -> Self {
        let empty: Arc<str> = Arc::from("");
        Self {
            address,
            status,
            votes: Vec::new(),
            proxy_port: 0,
            host_name: empty.clone(),
            role_name: empty.clone(),
            instance_name: empty,
            update_zone: 0,
            fault_zone: 0,
            duty: Duty::Full,
            start_time,
            i_am_alive_time: start_time,
        }
    }
}

/// The membership version row: the number every view carries and the token that guards every write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TableVersion {
    /// MembershipVersion: grows by exactly one per committed write (invariant I1). 0: nothing
    /// written yet.
    pub number: u64,
    /// The version row's etag: opaque, the token of the next compare-and-set. Empty when the row is
    /// missing.
    pub etag: Arc<str>,
    /// The table whose row it is.
    #[serde(default, skip_serializing_if = "TableId::is_unknown")]
    pub table: TableId,
}

/// The identity of a membership table: a random number, which the silo draws that makes the version
/// row, and which each later commit keeps. Another table, at the same address of the same store,
/// has another.
///
/// Unknown is a table that silos made that knew of no identities. It differs from another table by
/// its versions alone.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct TableId(u64);

impl TableId {
    /// The identity that a random number makes. 0 is unknown.
    pub const fn new(random: u64) -> Self {
        Self(random)
    }

    /// Returns true if it says nothing.
    pub const fn is_unknown(&self) -> bool {
        self.0 == 0
    }

    /// Returns true if the two are certainly not the same table.
    pub const fn is_another(&self, other: Self) -> bool {
        !self.is_unknown() && !other.is_unknown() && self.0 != other.0
    }
}

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for TableId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not the identity of a table: expected 16 hex digits");
        if text.len() != 16 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        u64::from_str_radix(text, 16).map(Self).map_err(|_| wrong())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_round_trip_by_name_and_number() {
        for number in 1..=6u8 {
            let status = SiloStatus::try_from(number).unwrap();
            assert_eq!((status.name().parse(), u8::from(status)), (Ok(status), number));
        }
        assert!(SiloStatus::try_from(7).is_err() && "active".parse::<SiloStatus>().is_err());
    }

    #[test]
    fn a_table_that_is_unknown_is_no_other_one() {
        let (unknown, one, two) = (TableId::default(), TableId::new(1), TableId::new(2));
        assert!(one.is_another(two) && !one.is_another(one));
        assert!(!one.is_another(unknown) && !unknown.is_another(one));
        assert_eq!(one.to_string().parse(), Ok(one));
        for wrong in ["", "1", "+000000000000001", "000000000000000g", "00000000000000001"] {
            assert!(wrong.parse::<TableId>().is_err(), "{wrong}");
        }
    }
}
