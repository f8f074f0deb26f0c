//! Emmer's ground: identities, ring, hash, time, limits. What comments call a *description* is
//! named in `docs/membership.md`.
//!
//! Everything above stands on this crate, and this crate stands on nothing that can block, wait or
//! surprise: no sockets, no clock, no operating-system randomness (architecture invariant
//! "sans-IO", see `ARCHITECTURE.md`). Time is always handed in as a value, randomness always grows
//! from a seed.
//!
//! | module | subject |
//! |---|---|
//! | [`address`] | who a silo is: `ip:port:epoch` |
//! | [`grain`] | who a grain is: type and key |
//! | [`cluster`] | the cluster id and the service id |
//! | [`silo`] | a silo's row in the membership table, its status and the votes against it |
//! | [`duty`] | how much work an operator wants a silo to have |
//! | [`reminder`] | a reminder: its schedule, its occurrences, its place on the ring |
//! | [`hash`] | the stable hash with frozen test vectors |
//! | [`ring`] | consistent hashing: owners of ranges, successors of silos |
//! | [`time`] | instants and timestamps as plain values |
//! | [`rng`] | seeded randomness |
//! | [`backoff`] | bounded retry delays with seeded jitter |
//! | [`limits`] | every named maximum and its default |

pub mod address;
pub mod backoff;
pub mod cluster;
pub mod duty;
pub mod grain;
pub mod hash;
pub mod limits;
pub mod reminder;
pub mod ring;
pub mod rng;
pub mod silo;
pub mod time;

pub use address::SiloAddress;
pub use cluster::ClusterId;
pub use duty::Duty;
pub use grain::{GrainId, GrainKey, GrainTypeId};
pub use reminder::Reminder;
pub use silo::{SiloEntry, SiloStatus, TableId, TableVersion, Vote};
pub use time::{CoarseInstant, Instant, Now, Timestamp};
/// A kind of grain key.
pub use uuid::Uuid;
