//! The wire format through its interface, and every vector of `docs/wire.md`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod codec;
mod common;
mod frames;
mod headers;
mod properties;
mod vectors;
