//! The store on its real server.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod book;
mod cluster;
mod failover;
mod server;
mod suite;
