//! The options of load shedding.

use serde::{Deserialize, Serialize};

/// The settings of load shedding: a silo that has too much to do refuses new calls of clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct SheddingOptions {
    /// True to refuse calls of clients at all. Default false.
    pub enabled: bool,
    /// Use of the processors in percent from which on a part of them is refused, as large as
    /// needed. Default 95.
    pub cpu_percent: u8,
    /// From this use of the memory on, in percent, all of them are refused. Default 90.
    pub memory_percent: u8,
    /// It ends when the use has fallen this many points below. Default 5.
    pub hysteresis_percent: u8,
    /// Number of calls of others under way on the silo from which on every new one is refused.
    /// Default 1,000.
    pub queue: usize,
}

impl Default for SheddingOptions {
    fn default() -> Self {
        Self {
            enabled: false,
            cpu_percent: 95,
            memory_percent: 90,
            hysteresis_percent: 5,
            queue: 1_000,
        }
    }
}
