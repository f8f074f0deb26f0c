#![doc = include_str!("../../../docs/directory.md")]

mod answering;
mod api;
mod collecting;
mod directory;
mod entries;
mod fading;
mod handover;
mod message;
mod pending;
mod ranges;
mod recovery;
mod silos;
mod streams;
mod views;

pub use api::{Config, Effect, FailReason, Outcome, Registration, ReportId, Token};
pub use directory::Directory;
pub use message::{Answer, Message, Operation};
pub use ranges::RangeSet;
