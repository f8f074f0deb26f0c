//! Messages of silos about waits.

use emmer_core::SiloAddress;
use serde::{Deserialize, Serialize};

use super::graph::Path;

/// Message between silos about waiting calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum WaitsMessage {
    /// The last turn of `path` waits for a call that was sent to you: which turns does it wait for
    /// there? Tell `origin`.
    #[serde(rename = "p")]
    Probe { origin: SiloAddress, gate: u64, round: u64, path: Path },
    /// The turns that a search of yours has reached, each at the end of a path.
    #[serde(rename = "r")]
    Reached { gate: u64, round: u64, paths: Vec<Path> },
}
