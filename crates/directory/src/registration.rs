//! The place where a grain is registered.

use std::fmt;

use emmer_core::SiloAddress;
use serde::{Deserialize, Serialize};

/// Place of a grain: a silo, and the number of the activation on it.
///
/// Orders by the silo's epoch, then its address, then the number. Of two registrations of one grain
/// the smaller one wins: it is on the longer-running silo. Only a recovery can meet two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Registration {
    /// The silo that hosts the activation.
    #[serde(rename = "s")]
    pub silo: SiloAddress,
    /// The activation: unique within its silo incarnation, never used for a second activation.
    #[serde(rename = "a")]
    pub activation: u64,
}

impl Ord for Registration {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let key = |r: &Self| (r.silo.epoch(), r.silo, r.activation);
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for Registration {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.silo, self.activation)
    }
}
