//! Every named maximum and its default.
//!
//! Nothing in Emmer grows without a bound: each queue, frame, batch, retry and list has a constant here or a
//! field in [`Limits`] that an operator can change, and a documented answer when it is reached.

use serde::{Deserialize, Serialize};

/// The longest text key of a grain, in bytes. A longer one makes every call `Rejected`.
pub const GRAIN_KEY_BYTES_MAX: usize = 1024;

/// The most mutations in one commit to a system store (the smallest ceiling among real stores: Azure
/// Table's entity-group transactions and DynamoDB's transactions both stop at 100).
pub const COMMIT_MUTATIONS_MAX: usize = 100;

/// The most silo rows in one membership commit: one mutation is the version row's.
pub const MEMBERSHIP_ROWS_PER_COMMIT_MAX: usize = COMMIT_MUTATIONS_MAX - 1;

/// The deepest chain of nested calls (A calls B calls C ...). A deeper one is refused as `Rejected`.
pub const CALL_CHAIN_MAX: usize = 64;

/// The limits an operator can change. Each field says what happens when it is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// The largest frame in bytes, header included. A larger one closes the connection. Default 16 MiB.
    pub frame_bytes_max: u32,
    /// The most calls waiting for an answer on one connection; one more is `Overloaded`. Default 65,536.
    pub calls_in_flight_max: u32,
    /// The most calls of a silo or client waiting for an answer on all its connections together, and the most calls of
    /// others that wait for their turn on a silo; one more is `Overloaded`. Exact to 64 for each connection. Default
    /// 1,000,000.
    pub silo_calls_in_flight_max: usize,
    /// The most bytes waiting to be sent on one connection; a call that finds more is `Overloaded`, an answer waits.
    /// Default 64 MiB.
    pub outgoing_bytes_max: usize,
    /// The most calls waiting for one activation; one more is `Overloaded`. Looked at before a call queues up: calls made at
    /// the same moment on other threads may all get in. Default 10,000.
    pub activation_queue_max: u32,
    /// The most activations on one silo; one more is `Overloaded`. Default 10,000,000.
    pub activations_max: usize,
    /// The most grain locations a silo or client remembers; for one more, some other is forgotten. Default 100,000.
    pub location_cache_max: usize,
    /// How often a call is passed on to another silo before it is `Unreachable`. Default 4.
    pub forwards_max: u8,
    /// The most connections a silo accepts from clients; one more is closed at once. Default 10,000.
    pub gateway_connections_max: usize,
    /// The most rows a membership table may hold before a reader refuses it. Default 20,000.
    pub membership_rows_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes_max: 16 << 20,
            calls_in_flight_max: 65_536,
            silo_calls_in_flight_max: 1_000_000,
            outgoing_bytes_max: 64 << 20,
            activation_queue_max: 10_000,
            activations_max: 10_000_000,
            location_cache_max: 100_000,
            forwards_max: 4,
            gateway_connections_max: 10_000,
            membership_rows_max: 20_000,
        }
    }
}
