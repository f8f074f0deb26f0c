//! A silo: a process's seat in the cluster.

mod access;
mod admin;
mod arriving;
mod balancing;
mod builder;
mod classes;
mod clients;
mod core;
mod directors;
mod duty;
mod emptying;
mod filters;
mod gateway;
mod handle;
mod identity;
mod lifecycle;
mod log;
mod meter;
mod metrics;
mod ports;
mod records;
mod repartitioning;
mod running;
mod security;
mod start_error;
mod streams;
mod tasks;
mod watch;
mod wiring;

pub use self::builder::SiloBuilder;
pub use self::handle::Silo;
pub use self::running::{RunError, Terminated};
pub use self::start_error::StartError;
pub use self::watch::{Observer, Readiness, SiloWatch};
