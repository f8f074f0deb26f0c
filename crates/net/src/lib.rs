//! Connections between silos, and between clients and silos; and the seam to the world around
//! them.
//!
//! From bottom to top: the virtual world or none (`elsewhere.rs` or `nowhere.rs`), clocks
//! ([`clock`]), lines of the log ([`log`]), tasks and sockets ([`world`]), TLS (`tls`, a feature),
//! and connections with their handshake, driver and pool ([`transport`]). This crate does not know
//! grains: a connection carries calls, their answers and messages of the system, and reports a lost
//! peer.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests run in no virtual world"))]

pub mod asker;
pub mod clock;
pub mod contain;
pub mod credentials;
#[cfg_attr(not(feature = "virtual"), path = "nowhere.rs")]
mod elsewhere;
pub mod log;
pub mod numbers;
#[cfg(feature = "tls")]
pub mod tls;
pub mod transport;
pub mod world;
