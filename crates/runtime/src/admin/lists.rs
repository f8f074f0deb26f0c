//! Lists that a silo has of itself, as it answers them.

use emmer_core::{GrainKey, SiloAddress};
use serde::{Deserialize, Serialize};

use crate::metrics::Latency;

/// A metric as it is now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MetricLook {
    /// Its name, as Prometheus has it.
    pub name: String,
    /// The names and values of its labels.
    pub labels: Vec<(String, String)>,
    /// Its value; of a histogram the number of durations.
    pub value: f64,
    /// The durations of a histogram.
    pub latency: Option<Latency>,
}

/// A connection of a silo.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ConnectionLook {
    /// The silo at the other end; none for a client.
    pub silo: Option<SiloAddress>,
    /// The identity of a client that has one.
    pub client: Option<String>,
    /// The address that the other end has connected from; none if this silo has dialled.
    pub from: Option<String>,
    /// Bytes that wait to be sent.
    pub bytes_waiting: u64,
    /// Messages that wait to be sent.
    pub messages_waiting: u64,
    /// Calls of this silo that wait for an answer.
    pub calls_waiting: u32,
    /// Calls of the other end that are under way and were not answered at once.
    pub calls_serving: u32,
    /// Bytes that were sent.
    pub bytes_sent: u64,
    /// Bytes that were received.
    pub bytes_received: u64,
}

/// A reminder that a silo fires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DueLook {
    /// The grain's type.
    pub grain_type: String,
    /// The grain's key.
    pub key: GrainKey,
    /// The reminder's name.
    pub name: String,
    /// The next tick, as RFC 3339.
    pub next: Option<String>,
    /// Time until the next tick in milliseconds; negative if it is late.
    pub in_ms: Option<i64>,
    /// Number of tries of the next tick that failed.
    pub failed: u32,
    /// Number of ticks that were settled.
    pub fired: u64,
    /// Number of ticks that were missed.
    pub missed: u64,
}

/// A turn that failed, of any grain of a silo.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FailedLook {
    /// The grain's type.
    pub grain_type: String,
    /// The grain's key.
    pub key: GrainKey,
    /// Time since then, in milliseconds.
    pub ago_ms: u64,
    /// `Interface.method`.
    pub method: String,
    /// The failure, in words; a circle of waiting calls among them.
    pub words: String,
}

/// A change in the history of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ChangeLook {
    /// Time of the change, in milliseconds since 1970, by the writer's clock.
    pub at_ms: i64,
    /// Version of the membership that brought it.
    pub version: u64,
    /// The silo that it is about, as `ip:port:epoch`.
    pub silo: String,
    /// Its name.
    pub name: String,
    /// Its host.
    pub host: String,
    /// One word: `joined`, `suspected`, `died`, ...
    pub change: String,
    /// The silo that wrote it, as `ip:port:epoch`.
    pub writer: String,
    /// The evidence, one line for each piece.
    pub evidence: Vec<String>,
}

/// The turns of a grain while it is traced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TracePage {
    /// The last turns that have ended, in the order of their ends. The first calls after the order
    /// may be missing.
    pub turns: Vec<TracedLook>,
    /// Time that is left of the trace, in milliseconds; none if the silo has no trace of it.
    pub left_ms: Option<u64>,
}

/// A turn of a traced grain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TracedLook {
    /// Its number in the trace, from 1.
    pub number: u64,
    /// Arrival of the call, in milliseconds since 1970.
    pub at_ms: i64,
    /// `Interface.method`.
    pub method: String,
    /// The grain that made the call; none for a client, or a call outside of a turn.
    pub caller: Option<String>,
    /// Time from the arrival to the end, in nanoseconds.
    pub took_ns: u64,
    /// One word: `done`, `error` (the method's own), `failed`, `elsewhere`.
    pub end: String,
}
