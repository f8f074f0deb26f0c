//! Messages between gateways and clients, apart from calls.

use emmer_core::SiloAddress;
use serde::{Deserialize, Serialize};

use crate::metrics::SiloStatistics;

/// A message between a gateway and a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum GatewayMessage {
    /// Gateway to client: send new calls elsewhere; calls under way will still be answered.
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
    /// Gateway to client: tell your figures, unless you told a gateway within this many
    /// milliseconds.
    #[serde(rename = "m")]
    MetricsQuery(u64),
    /// Client to gateway: the figures.
    #[serde(rename = "f")]
    Metrics(ClientFigures),
    /// Client to gateway: which gateways are there?
    #[serde(rename = "w")]
    GatewaysQuery,
    /// Client to gateway: the membership table has changed, read it.
    #[serde(rename = "n")]
    TableChanged,
    /// Gateway to client: these, each with the port for clients.
    #[serde(rename = "g")]
    Gateways(Vec<(SiloAddress, u16)>),
}

/// The figures of a client that a gateway records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClientFigures {
    pub(crate) address: String,
    pub(crate) host: String,
    pub(crate) cpu_percent: Option<u8>,
    pub(crate) memory_bytes: Option<u64>,
    /// Messages that wait to be sent.
    pub(crate) send_queue: u64,
    /// Messages over all connections, since the client began.
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// Gateways that it is connected to.
    pub(crate) gateways: u64,
}
