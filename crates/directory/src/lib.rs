//! The grain directory: which silo hosts a grain, and who may.
//!
//! A state machine without sockets, clocks or threads. Every silo runs one [`Directory`], in two
//! roles: owner of some ranges of the ring, and requester to the owners of the others. Of all silos
//! that want to activate a grain, one gets `Registered`, the others `Taken`.
//!
//! The shell hands in views, messages of other silos and commands, each with the time, and carries
//! out the [`Effect`]s. The rules, the invariants and what is promised while views change are on
//! the book's page "The grain directory" (`docs/directory.md` in the repository).

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
