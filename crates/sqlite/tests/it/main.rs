//! The store on real files.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod bad_files;
mod book;
mod conformance;
mod measure;
mod processes;
#[cfg(unix)]
mod read_only;
#[cfg(target_os = "linux")]
mod readers;
mod replaced;
