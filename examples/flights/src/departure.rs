//! One line of the file: a scheduled departure.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A scheduled departure, as it travels to the grains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Departure {
    /// Month, 1 to 12.
    pub month: u8,
    /// Day of the month, 1 to 31.
    pub day: u8,
    /// When it left, local, as `HMM` (`517` is 5:17). None: it was cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dep_time: Option<u16>,
    /// Minutes it left late; negative when early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dep_delay: Option<i32>,
    /// Minutes it arrived late; negative when early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arr_delay: Option<i32>,
    /// The airline's code.
    pub carrier: Arc<str>,
    /// The flight number.
    pub flight: u16,
    /// The aircraft's tail number, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<Arc<str>>,
    /// IATA code of the airport it left.
    pub origin: Arc<str>,
    /// IATA code of the airport it flew to.
    pub dest: Arc<str>,
    /// Miles between them.
    pub distance: u32,
}

impl Departure {
    /// Returns true if it left at all.
    pub const fn flew(&self) -> bool {
        self.dep_time.is_some()
    }
}
