//! Cluster membership as a sans-IO state machine.
//!
//! `docs/membership.md` describes the protocol. Comments name where a rule comes from: a step of
//! the *membership description*, an *improvement* (both are listed there), an invariant (I1 to I14,
//! listed in `docs/proof.md`).

pub mod api;
mod bits;
pub mod changes;
#[cfg(test)]
mod chaos_tests;
mod compact;
pub mod config;
#[cfg(test)]
mod connect_tests;
pub mod counters;
pub mod delta;
mod detect;
mod dials;
mod dice;
#[cfg(test)]
mod duty_tests;
mod facts;
mod fence;
#[cfg(test)]
mod fence_tests;
#[cfg(test)]
mod handing_down_tests;
#[cfg(test)]
mod handing_on_tests;
pub mod humantime;
mod index;
mod inner;
pub mod intent;
mod join;
mod lapse;
#[cfg(test)]
mod lost_tests;
mod membership;
pub mod message;
mod out;
#[cfg(test)]
mod plan_tests;
#[cfg(test)]
mod promise_tests;
#[cfg(test)]
mod quorum_tests;
#[cfg(test)]
mod restart_tests;
mod rings;
mod rules;
#[cfg(test)]
mod scale_tests;
pub mod snapshot;
mod staleness;
mod standing;
mod steps;
#[cfg(test)]
mod strangers_tests;
#[cfg(test)]
mod supersede_tests;
mod table;
mod timers;
pub mod view;
mod views;
mod votes;
mod window;
#[cfg(test)]
mod wire_tests;
mod wishes;
#[cfg(test)]
mod world;
#[cfg(test)]
mod world_tests;
mod write;

pub use api::{
    ConnectionEvent, DialId, DialOutcome, Effect, Event, HealthSample, OpId, TableOutcome,
    TableRequest, TerminateReason,
};
pub use config::{Config, ConfigError};
pub use counters::Counters;
pub use lapse::{CLOCK_RATE_PERCENT, POLL_GRACE};
pub use membership::Membership;
pub use message::Message;
pub use rings::ring_targets;
pub use snapshot::TableSnapshot;
pub use view::View;
pub use views::Memo;
