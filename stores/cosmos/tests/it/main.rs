//! The store on the SDK's emulator.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod account;
mod emulator;
mod server;
mod suite;
mod throttling;
