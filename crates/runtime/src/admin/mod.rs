//! The admin interface: questions about a running cluster, and orders to it.
//!
//! A client asks a gateway, which answers for itself or passes the question on to the silo that it
//! is for. Only the gateway decides whether the client may: silos believe each other. A question
//! makes no activation, and a silo does nothing for questions that are not asked. There are no
//! subscriptions: an observer asks again.
//!
//! Questions and answers are MessagePack in an envelope that every version reads. A silo that does
//! not know a question says so, and an answer may gain fields.

mod asked;
mod error;
mod handle;
mod lists;
mod log;
mod looks;
mod message;
mod question;

pub(crate) use self::asked::Asked;
pub use self::error::AdminError;
pub use self::handle::Admin;
pub(crate) use self::handle::Way;
pub use self::lists::{
    ChangeLook, ConnectionLook, DueLook, FailedLook, MetricLook, TracePage, TracedLook,
};
pub(crate) use self::log::log;
pub use self::log::{LogBook, LogLine, LogPage, show_log};
pub use self::looks::{
    ActivationLook, ArgumentLook, Deactivated, FailureLook, GrainLook, GrainPage, GrainRow,
    HeldThread, HotGrain, HotLook, MethodLook, Moved, ReminderLook, SiloLook, StateLook, TurnLook,
    TypeLook, WaitLook,
};
pub(crate) use self::message::{AdminMessage, Reply};
pub use self::question::{GrainName, Question};
pub use crate::options::SettingLook;

/// Number of questions of one client that a silo answers at once.
pub(crate) const OF_CLIENT_MAX: u32 = 8;

/// The longest wait for turns before an activation ends, in milliseconds.
pub(crate) const WITHIN_MS_MAX: u64 = 60_000;
