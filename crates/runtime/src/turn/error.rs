//! Errors of calls, activations and writes, and the knowledge about their effect.

use std::fmt;

use emmer_core::SiloAddress;
use emmer_net::log::Plain;
use serde::{Deserialize, Serialize};

use super::call_target::{CallTarget, Rejection};

/// Error of a call. Each kind describes the knowledge about the effect;
/// [`maybe_executed`](Self::maybe_executed) answers it for a program. All except the method's own
/// error name the call: the type and the key of the grain, and the method.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError<E> {
    /// The method ran and answered with its own error.
    #[error("{0}")]
    App(E),
    /// No answer before the deadline.
    #[error("{call}: no answer in time ({}); the call {}", Plain(detail), executed(*maybe_executed))]
    Timeout {
        /// The call.
        call: CallTarget,
        /// False when the call certainly did not start.
        maybe_executed: bool,
        /// Place where it was waiting.
        detail: String,
    },
    /// The call was turned down: no such grain type, no such method, a failed activation, a filter.
    /// Not executed.
    #[error("{call}: the call was rejected: {why}")]
    Rejected {
        /// The call.
        call: CallTarget,
        /// Why.
        why: Rejection,
    },
    /// A limit was reached on the way; try again later. Not executed.
    #[error("{call}: overloaded: {}", Plain(detail))]
    Overloaded {
        /// The call.
        call: CallTarget,
        /// The limit.
        detail: String,
    },
    /// The silo that hosts the grain died or cannot be reached.
    #[error("{call}: unreachable{}: {}; the call {}", silo.map(|s| format!(" {s}")).unwrap_or_default(), Plain(detail), executed(*maybe_executed))]
    Unreachable {
        /// The call.
        call: CallTarget,
        /// The silo, if known.
        silo: Option<SiloAddress>,
        /// False when the call certainly did not start.
        maybe_executed: bool,
        /// The reason, in words.
        detail: String,
    },
    /// The call would wait for a turn that waits for this call. Not executed.
    #[error("{call}: deadlock: {}", Plain(circle))]
    Deadlock {
        /// The call.
        call: CallTarget,
        /// The chain, caller first.
        circle: String,
    },
    /// Arguments or answer cannot be encoded or decoded.
    #[error("{call}: codec: {}; the call {}", Plain(detail), executed(*maybe_executed))]
    Codec {
        /// The call.
        call: CallTarget,
        /// True when the answer, not the arguments, was the trouble.
        maybe_executed: bool,
        /// Error of the codec.
        detail: String,
    },
    /// The caller's cancellation token fired, or an operator had the turn dropped.
    #[error("{call}: cancelled: {}; the call {}", Plain(detail), executed(*maybe_executed))]
    Cancelled {
        /// The call.
        call: CallTarget,
        /// False when the call certainly did not start.
        maybe_executed: bool,
        /// Whose word ended it.
        detail: String,
    },
    /// The method panicked. Its grain is deactivated; the state in the store is what the last write
    /// left.
    #[error("{call}: the grain panicked: {}", Plain(message))]
    Panicked {
        /// The call.
        call: CallTarget,
        /// The panic's message.
        message: String,
    },
    /// This silo or client is stopping. Not executed.
    #[error("{call}: shutting down")]
    ShuttingDown {
        /// The call.
        call: CallTarget,
    },
    /// A fault of Emmer itself. It may have been executed.
    #[error("{call}: a fault of Emmer, please report it: {}", Plain(detail))]
    Internal {
        /// The call.
        call: CallTarget,
        /// The reason, in words.
        detail: String,
    },
}

fn executed(maybe: bool) -> &'static str {
    if maybe { "may have been executed" } else { "was not executed" }
}

/// The call of a failure, by whatever kind of reference.
macro_rules! call_in {
    ($failure:expr) => {
        match $failure {
            Self::App(_) => None,
            Self::Timeout { call, .. }
            | Self::Rejected { call, .. }
            | Self::Overloaded { call, .. }
            | Self::Unreachable { call, .. }
            | Self::Deadlock { call, .. }
            | Self::Codec { call, .. }
            | Self::Cancelled { call, .. }
            | Self::Panicked { call, .. }
            | Self::ShuttingDown { call }
            | Self::Internal { call, .. } => Some(call),
        }
    };
}

impl<E> CallError<E> {
    /// The call that failed. None for the method's own error.
    pub const fn call(&self) -> Option<&CallTarget> {
        call_in!(self)
    }

    /// As [`call`](Self::call), to be filled in.
    pub(super) const fn call_mut(&mut self) -> Option<&mut CallTarget> {
        call_in!(self)
    }

    /// Returns true if the method may have run, wholly or in part. A retry is safe only when not.
    pub const fn maybe_executed(&self) -> bool {
        match self {
            Self::App(_) | Self::Panicked { .. } | Self::Internal { .. } => true,
            Self::Timeout { maybe_executed, .. }
            | Self::Unreachable { maybe_executed, .. }
            | Self::Codec { maybe_executed, .. }
            | Self::Cancelled { maybe_executed, .. } => *maybe_executed,
            Self::Rejected { .. }
            | Self::Overloaded { .. }
            | Self::Deadlock { .. }
            | Self::ShuttingDown { .. } => false,
        }
    }

    /// Returns true if the same call may succeed later without any change.
    pub const fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Timeout { .. }
                | Self::Overloaded { .. }
                | Self::Unreachable { .. }
                | Self::ShuttingDown { .. }
        )
    }

    /// A stable name of the kind, for logs and metrics.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::App(_) => "app",
            Self::Timeout { .. } => "timeout",
            Self::Rejected { .. } => "rejected",
            Self::Overloaded { .. } => "overloaded",
            Self::Unreachable { .. } => "unreachable",
            Self::Deadlock { .. } => "deadlock",
            Self::Codec { .. } => "codec",
            Self::Cancelled { .. } => "cancelled",
            Self::Panicked { .. } => "panicked",
            Self::ShuttingDown { .. } => "shutting_down",
            Self::Internal { .. } => "internal",
        }
    }

    /// Converts the failure to one of a method with another error type.
    pub fn map_app<F>(self, map: impl FnOnce(E) -> F) -> CallError<F> {
        match self {
            Self::App(e) => CallError::App(map(e)),
            Self::Timeout { call, maybe_executed, detail } => {
                CallError::Timeout { call, maybe_executed, detail }
            }
            Self::Rejected { call, why } => CallError::Rejected { call, why },
            Self::Overloaded { call, detail } => CallError::Overloaded { call, detail },
            Self::Unreachable { call, silo, maybe_executed, detail } => {
                CallError::Unreachable { call, silo, maybe_executed, detail }
            }
            Self::Deadlock { call, circle } => CallError::Deadlock { call, circle },
            Self::Codec { call, maybe_executed, detail } => {
                CallError::Codec { call, maybe_executed, detail }
            }
            Self::Cancelled { call, maybe_executed, detail } => {
                CallError::Cancelled { call, maybe_executed, detail }
            }
            Self::Panicked { call, message } => CallError::Panicked { call, message },
            Self::ShuttingDown { call } => CallError::ShuttingDown { call },
            Self::Internal { call, detail } => CallError::Internal { call, detail },
        }
    }
}

/// Why a grain's state could not be read or written. Serializable, so that a method can return it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum StateError {
    /// Another writer wrote the state since it was read: nothing was written. The activation is
    /// stale and is deactivated after this turn; the next call finds the newer state.
    #[error("the state {name:?} was changed by another process since it was read")]
    EtagMismatch {
        /// The state's name.
        name: String,
    },
    /// The store does not answer or refuses. `maybe_written` tells whether the write may have
    /// happened.
    #[error("the state {name:?} could not be stored: {}{}", Plain(detail), if *maybe_written { " (it may \
        have been written)" } else { "" })]
    Store {
        /// The state's name.
        name: String,
        /// Error of the store.
        detail: String,
        /// False when nothing was written.
        maybe_written: bool,
    },
    /// The bytes in the store do not decode as the state's type, or the value does not encode.
    #[error("the state {name:?} cannot be encoded or decoded: {}", Plain(detail))]
    Codec {
        /// The state's name.
        name: String,
        /// Error of the codec.
        detail: String,
    },
    /// A newer version of the class has stored the state. Calls go to a silo that knows it, if
    /// there is one.
    #[error(
        "the state {name:?} was stored by version {stored}, and this program knows version \
         {known}: no silo of the cluster knows it"
    )]
    NewerVersion {
        /// The state's name.
        name: String,
        /// Version that has stored it.
        stored: u32,
        /// Version that this program knows.
        known: u32,
    },
    /// The state is larger than the silo or its store takes: nothing was written.
    #[error(
        "the state {name:?} of {grain} has {bytes} bytes, {max} are allowed (state_bytes_max, or \
         what the store takes)"
    )]
    TooLarge {
        /// The state's name.
        name: String,
        /// The grain, as `type/key`.
        grain: String,
        /// Its size, encoded.
        bytes: usize,
        /// The largest size.
        max: usize,
    },
    /// The field has no store: `Default` made it outside a silo, or its grain is gone.
    #[error("the state is not bound to a store: it was made outside a silo, or its grain is gone")]
    Unbound,
}

/// Why a grain could not be activated; every call that waited for it is `Rejected` with this text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActivationError {
    detail: String,
}

impl ActivationError {
    /// A refusal in words.
    pub fn new(detail: impl fmt::Display) -> Self {
        Self { detail: detail.to_string() }
    }
}

impl fmt::Display for ActivationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl<E: std::error::Error> From<E> for ActivationError {
    fn from(error: E) -> Self {
        Self::new(error)
    }
}

/// Why a grain is deactivated, as its `deactivate` hook learns it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeactivationReason {
    /// No call for its idle time.
    Idle,
    /// The grain asked for it.
    Requested,
    /// Too many activations are in memory, and this one was idle for longer than others.
    TooMany,
    /// An operator has the silo drained.
    Drained,
    /// An operator has the grain deactivated.
    Operator,
    /// The silo stops in good order.
    ShuttingDown,
    /// Another activation of the grain holds the registration.
    Duplicate,
    /// A call needs a version of the class that this silo does not have. The silo that is named has
    /// it, and gets the calls that wait.
    OtherVersion(SiloAddress),
    /// A method panicked, or a write found that another writer had changed the state.
    Broken(String),
}

impl fmt::Display for DeactivationReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idle => f.write_str("no call for its idle time"),
            Self::Requested => f.write_str("the grain asked for it"),
            Self::TooMany => f.write_str("too many activations are in memory"),
            Self::Drained => f.write_str("the silo is drained"),
            Self::Operator => f.write_str("an operator asked for it"),
            Self::ShuttingDown => f.write_str("the silo stops"),
            Self::Duplicate => f.write_str("another activation is registered"),
            Self::OtherVersion(silo) => write!(f, "a call needs the version that {silo} has"),
            Self::Broken(why) => f.write_str(why),
        }
    }
}
