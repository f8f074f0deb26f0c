//! Every named maximum and its default.
//!
//! Nothing in Emmer grows without a bound. Each queue, frame, batch, retry and list has a constant
//! here or a field in [`Limits`] that an operator can change, and a documented answer when it is
//! reached.

use serde::{Deserialize, Serialize};

/// The longest text key of a grain, in bytes. A longer one makes every call `Rejected`.
pub const GRAIN_KEY_BYTES_MAX: usize = 1024;

/// The most mutations in one commit to a system store (the smallest ceiling among real stores:
/// Azure Table's entity-group transactions and DynamoDB's transactions both stop at 100).
pub const COMMIT_MUTATIONS_MAX: usize = 100;

/// The most silo rows in one membership commit: one mutation is the version row's.
pub const MEMBERSHIP_ROWS_PER_COMMIT_MAX: usize = COMMIT_MUTATIONS_MAX - 1;

/// The deepest chain of nested calls (A calls B calls C ...). A deeper one is refused as
/// `Rejected`.
pub const CALL_CHAIN_MAX: usize = 64;

/// The largest memory of a grain that moves to another silo, in bytes. A larger one stays where it
/// is.
pub const GRAIN_MEMORY_BYTES_MAX: usize = 1 << 20;

/// The parts of a silo's or client's memory of locations, each with a lock of its own.
pub const LOCATION_SHARDS: usize = 16;

/// The longest name of a silo, in bytes: it stands in a row that every silo has.
pub const NAME_BYTES_MAX: usize = 256;

/// The limits an operator can change. Each field says what happens when it is reached.
/// [`Limits::LEAST`] has the least value of each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// The largest frame in bytes, header included. A larger one closes the connection. Default 16
    /// MiB.
    pub frame_bytes_max: u32,
    /// The most calls waiting for an answer on one connection; one more is `Overloaded`. Default
    /// 262,144.
    pub calls_in_flight_max: u32,
    /// Maximum calls of a silo or client that wait for an answer on all its connections together,
    /// and maximum calls of others that wait for their turn on a silo. One more is `Overloaded`.
    /// Exact to 64 for each connection. Default 1,000,000.
    pub silo_calls_in_flight_max: usize,
    /// The most bytes waiting to be sent on one connection; a call that finds more is `Overloaded`,
    /// an answer waits. Default 64 MiB.
    pub outgoing_bytes_max: usize,
    /// Maximum bytes that all clients of a silo together make it hold: half of it for unfinished
    /// calls, each with its frame and 3 KiB, the rest for unread answers. A call that does not fit
    /// is `Overloaded`. An answer that does not fit is a `Timeout`, and its call has run. Each
    /// connection may always hold 64 KiB of both, and one answer more. Default 256 MiB.
    pub client_bytes_max: usize,
    /// The most calls waiting for one activation; one more is `Overloaded`. Looked at before a call
    /// queues up: calls made at the same moment on other threads may all get in. Default 10,000.
    pub activation_queue_max: u32,
    /// The most activations on one silo; one more is `Overloaded`. Default 10,000,000.
    pub activations_max: usize,
    /// The most grain locations a silo or client remembers; for one more, some other is forgotten.
    /// Default 100,000.
    pub location_cache_max: usize,
    /// Number of times that a call is passed on to another silo before it is `Unreachable`. Default
    /// 4.
    pub forwards_max: u8,
    /// The most connections a silo accepts from clients; one more is closed at once. Default
    /// 10,000.
    pub gateway_connections_max: usize,
    /// The most rows a membership table may hold before a reader refuses it. Default 20,000.
    pub membership_rows_max: usize,
    /// Maximum bytes of a stored grain state. A larger one is not written, and the call that writes
    /// it gets an error. A store may take less. Default 4 MiB.
    pub state_bytes_max: usize,
    /// Maximum requests of grains that a silo has under way at one store: reads and writes of
    /// states and journals. One more waits, in order. Default 2,048.
    pub store_requests_max: usize,
    /// Maximum streams of one other process that are written on a silo. The call for one more is a
    /// `Codec` error. Default 10,000.
    pub streams_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes_max: 16 << 20,
            calls_in_flight_max: 262_144,
            silo_calls_in_flight_max: 1_000_000,
            outgoing_bytes_max: 64 << 20,
            client_bytes_max: 256 << 20,
            activation_queue_max: 10_000,
            activations_max: 10_000_000,
            location_cache_max: 100_000,
            forwards_max: 4,
            gateway_connections_max: 10_000,
            membership_rows_max: 20_000,
            state_bytes_max: 4 << 20,
            store_requests_max: 2_048,
            streams_max: 10_000,
        }
    }
}

/// A limit is below what anything can work with. Nothing was started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{limit} is {value}: it must be at least {least}")]
pub struct LimitTooSmall {
    /// The limit to change.
    pub limit: &'static str,
    /// Value of the limit.
    pub value: usize,
    /// Least value that works.
    pub least: usize,
}

impl Limits {
    /// The least value of each limit: a silo or client with all of these joins, calls and answers.
    pub const LEAST: Self = Self {
        // Messages between silos travel in frames, too: a view of some hundred silos fits.
        frame_bytes_max: 64 << 10,
        calls_in_flight_max: 1,
        silo_calls_in_flight_max: 1,
        // Messages between silos have twice the room: one of their frames fits as well as the
        // calls.
        outgoing_bytes_max: 64 << 10,
        client_bytes_max: 256 << 10,
        activation_queue_max: 1,
        activations_max: 1,
        // One for each part that has a lock of its own.
        location_cache_max: LOCATION_SHARDS,
        // A gateway passes on what a client calls.
        forwards_max: 1,
        gateway_connections_max: 1,
        // Rows of the dead stay for a while.
        membership_rows_max: MEMBERSHIP_ROWS_PER_COMMIT_MAX,
        state_bytes_max: 1 << 10,
        store_requests_max: 1,
        streams_max: 1,
    };

    /// Checks that no limit is below its least value.
    ///
    /// # Errors
    /// The first one that is.
    pub fn check(&self) -> Result<(), LimitTooSmall> {
        // A new limit does not compile until it stands here.
        let Self {
            frame_bytes_max,
            calls_in_flight_max,
            silo_calls_in_flight_max,
            outgoing_bytes_max,
            client_bytes_max,
            activation_queue_max,
            activations_max,
            location_cache_max,
            forwards_max,
            gateway_connections_max,
            membership_rows_max,
            state_bytes_max,
            store_requests_max,
            streams_max,
        } = *self;
        let least = Self::LEAST;
        let all = [
            ("frame_bytes_max", frame_bytes_max as usize, least.frame_bytes_max as usize),
            (
                "calls_in_flight_max",
                calls_in_flight_max as usize,
                least.calls_in_flight_max as usize,
            ),
            ("silo_calls_in_flight_max", silo_calls_in_flight_max, least.silo_calls_in_flight_max),
            ("outgoing_bytes_max", outgoing_bytes_max, least.outgoing_bytes_max),
            ("client_bytes_max", client_bytes_max, least.client_bytes_max),
            (
                "activation_queue_max",
                activation_queue_max as usize,
                least.activation_queue_max as usize,
            ),
            ("activations_max", activations_max, least.activations_max),
            ("location_cache_max", location_cache_max, least.location_cache_max),
            ("forwards_max", forwards_max as usize, least.forwards_max as usize),
            ("gateway_connections_max", gateway_connections_max, least.gateway_connections_max),
            ("membership_rows_max", membership_rows_max, least.membership_rows_max),
            ("state_bytes_max", state_bytes_max, least.state_bytes_max),
            ("store_requests_max", store_requests_max, least.store_requests_max),
            ("streams_max", streams_max, least.streams_max),
        ];
        match all.into_iter().find(|(_, value, least)| value < least) {
            Some((limit, value, least)) => Err(LimitTooSmall { limit, value, least }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_and_least_values_pass() {
        assert_eq!((Limits::default().check(), Limits::LEAST.check()), (Ok(()), Ok(())));
        let refused = Limits { frame_bytes_max: 10, ..Limits::default() }.check().unwrap_err();
        assert_eq!(refused.to_string(), "frame_bytes_max is 10: it must be at least 65536");
    }
}
