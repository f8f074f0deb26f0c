//! Two ends of a connection against each other, without a socket.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod cuts;
mod ends;
mod limits;
mod random;
mod renewal;
mod world;
