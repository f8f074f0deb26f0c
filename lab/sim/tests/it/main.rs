//! The simulator as a whole.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod attacks;
mod exhaustive;
mod experiments;
mod grains;
mod seeds;
mod sometimes;
mod world;
