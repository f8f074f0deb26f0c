//! The grain directory: which silo hosts a grain, and who may.
//!
//! A state machine without sockets, clocks or threads. Every silo runs one [`Directory`], in two
//! roles: owner of some ranges of the ring, and requester to the owners of the others. Of all silos
//! that want to activate a grain, one gets `Registered`, the others `Taken`.
//!
//! The shell hands in views, messages of other silos and commands, each with the time, and carries
//! out the [`Effect`]s. The book's page "The grain directory" (`docs/directory.md` in the
//! repository) has the rules and the invariants; `safety.md` in this folder has the proof.

mod api;
mod departure;
mod directory;
mod facts;
mod handover;
mod inner;
mod list;
mod lists;
mod message;
mod out;
mod owner;
mod ranges;
mod recovery;
mod registration;
mod requester;
mod silos;

pub use api::{Config, Effect, FailReason, Outcome, ReportId, Token};
pub use departure::{Departure, DepartureEffect, DepartureEnd, Word};
pub use directory::Directory;
pub use message::{Answer, Ask, Message, Operation};
pub use ranges::RangeSet;
pub use registration::Registration;
