//! The load of each silo, as every silo knows it.
//!
//! Each silo measures itself ([`LoadReport`]). [`Gather`] brings all reports to all silos in waves:
//! each silo sends some ten small messages, and each report reaches each silo once. Directors use
//! the result ([`Loads`]).

mod gather;
mod known;
mod report;
#[cfg(test)]
mod world_tests;

pub use gather::{Effect, Gather, GatherConfig, Message};
pub use known::{Known, Loads};
pub use report::LoadReport;
