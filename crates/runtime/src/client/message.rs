//! What gateways and clients say to each other beside calls.

use emmer_core::SiloAddress;
use serde::{Deserialize, Serialize};

use crate::metrics::SiloStatistics;

/// A message between a gateway and a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum GatewayMessage {
    /// Gateway to client: send new calls elsewhere; what is under way will still be answered.
    #[serde(rename = "s")]
    Stopping,
    /// Gateway to client: this silo was declared dead; do not wait for it.
    #[serde(rename = "d")]
    Dead(SiloAddress),
    /// Client to gateway: how are you?
    #[serde(rename = "q")]
    StatisticsQuery,
    /// Gateway to client: the answer.
    #[serde(rename = "a")]
    Statistics(SiloStatistics),
}
