//! The store on its real server.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod book;
mod common;
mod examine;
mod failover;
mod faults;
mod pooler;
mod refused;
mod shared;
mod slow;
mod suite;
mod tls;
