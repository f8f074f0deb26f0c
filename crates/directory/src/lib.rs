//! The grain directory as a sans-IO state machine.

mod api;
mod message;

pub use api::{Config, Effect, FailReason, Outcome, Registration, ReportId, Token};
pub use message::{Answer, Message, Operation};
