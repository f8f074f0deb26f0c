//! The virtual-time world that runs Emmer's state machines by the thousand.
//!
//! The production machines ([`emmer_membership::Membership`], [`emmer_directory::Directory`],
//! [`emmer_placement::PlacementTable`]) are driven here by a queue of events in virtual time: one
//! thread, no sockets, no clock, every choice drawn from one seed. Faults come from a
//! [`scenario::Scenario`], written by hand or derived from a number. After every step the
//! [`invariants`] check the changes. A run that violates one is replayed exactly by its seed and
//! shrunk to the few faults that matter.
//!
//! `docs/proof.md` says how to run, replay and shrink, and lists the limits of the model.

pub mod bytes;
pub mod calm;
pub mod experiments;
pub mod grains;
pub mod host;
pub mod invariants;
pub mod measure;
pub mod net;
pub mod process;
pub mod queue;
pub mod run;
pub mod scenario;
pub mod shrink;
pub mod sometimes;
pub mod store;
pub mod swarm;
pub mod table;
pub mod time;
pub mod trace;
pub mod world;

pub use run::{Outcome, run, run_prepared, run_traced};
pub use scenario::{Fault, Profile, Scenario, Step};
pub use swarm::Swarm;
pub use time::VirtualTime;
pub use world::{Prepare, World};
