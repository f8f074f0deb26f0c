//! The directory through its interface: rule by rule, and many worlds at random.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod collecting;
mod common;
mod fading;
mod handover;
mod owner;
mod random_world;
mod recovery;
mod requester;
mod waves;
mod wire;
mod world;
