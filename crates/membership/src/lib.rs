//! Cluster membership as a sans-IO state machine.

pub mod api;
pub mod config;
pub mod counters;
pub mod humane;
mod membership;
pub mod message;
pub mod view;

pub use api::{
    ConnectionEvent, DialId, DialOutcome, Effect, Event, HealthSample, OpId, TableOutcome, TableRequest,
    TableSnapshot, TerminateReason,
};
pub use config::{Config, ConfigError};
pub use counters::Counters;
pub use membership::Membership;
pub use message::Message;
pub use view::View;
