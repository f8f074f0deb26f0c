//! The wish of a grain to be on another silo.

use emmer_core::GrainId;
use serde::{Deserialize, Serialize};

/// A grain that would make fewer calls to another silo if it were on the other one of two.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    /// The grain.
    #[serde(rename = "g")]
    pub grain: GrainId,
    /// Calls of a period that would be local there, less those that are local now.
    #[serde(rename = "w")]
    pub gain: i64,
    /// The grains with which it talks most, as stable hash and number of calls.
    #[serde(rename = "n", default)]
    pub with: Vec<(u64, u64)>,
}
