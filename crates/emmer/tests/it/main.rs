//! Everything that users of the runtime rely on, through its public interface, one subject in each
//! module. One program, so that the runtime is compiled once for all.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::panic, reason = "a test")]
#![allow(clippy::type_complexity, reason = "a test")]

mod access;
#[cfg(feature = "test")]
mod admin;
#[cfg(feature = "test")]
mod admin_lists;
mod admission;
mod attacks;
#[cfg(feature = "test")]
mod broken_connections;
#[cfg(feature = "test")]
mod cancelled;
mod chains;
#[cfg(feature = "test")]
mod clients;
mod cluster;
mod common;
#[cfg(feature = "test")]
mod context;
mod crowds;
#[cfg(feature = "test")]
mod directors;
mod duties;
#[cfg(feature = "test")]
mod error_flow;
#[cfg(feature = "test")]
mod faulty_calls;
mod fence;
#[cfg(feature = "test")]
mod filters;
mod instant;
#[cfg(feature = "test")]
mod journals;
mod leaving;
#[cfg(feature = "test")]
mod limits;
mod lives;
#[cfg(feature = "test")]
mod lost_gateways;
// Public: it looks at what the lints say of public items.
#[cfg(feature = "certs")]
mod imposters;
pub mod macros;
#[cfg(feature = "test")]
mod metrics;
#[cfg(feature = "test")]
mod mixed;
#[cfg(feature = "test")]
mod moves;
mod named_failures;
#[cfg(feature = "test")]
mod observers;
mod order;
#[cfg(feature = "test")]
mod order_in_virtual_time;
#[cfg(feature = "test")]
mod outages;
mod paths;
#[cfg(feature = "test")]
mod placement;
mod pulse;
#[cfg(feature = "test")]
mod records;
mod reentrancy;
#[cfg(feature = "test")]
mod references;
mod reminders;
#[cfg(feature = "test")]
mod repartition;
#[cfg(feature = "test")]
mod reports;
#[cfg(feature = "test")]
mod rollout;
mod runtimes;
#[cfg(feature = "test")]
mod services;
#[cfg(feature = "test")]
mod shedding;
mod starting;
#[cfg(feature = "test")]
mod states;
mod strangers;
#[cfg(feature = "test")]
mod streamed_calls;
mod streams;
#[cfg(feature = "test")]
mod tasks;
mod texts;
#[cfg(feature = "test")]
mod timers;
#[cfg(feature = "certs")]
mod tls;
#[cfg(feature = "test")]
mod topics;
#[cfg(feature = "test")]
mod traces;
#[cfg(feature = "test")]
mod uploads;
#[cfg(feature = "test")]
mod versions;
#[cfg(feature = "test")]
mod virtual_time;
#[cfg(feature = "test")]
mod workers;
