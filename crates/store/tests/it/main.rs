//! The store contract through its interface.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod limits;
mod memory;
mod planted_bugs;
mod typed_tables;
