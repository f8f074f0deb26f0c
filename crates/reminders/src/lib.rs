//! Reminders: who fires which, and when.
//!
//! The ring of hashes is cut into [`REMINDER_BUCKETS`](emmer_core::reminder::REMINDER_BUCKETS)
//! buckets. The owner of a bucket is the silo that owns its middle on the ring of the view's Active
//! silos. [`Reminders`] is one silo's part: it reads reminders that are due soon in its buckets,
//! fires them, and settles each in the table before the next occurrence counts.
//!
//! * **At least once.** An occurrence is settled only by a compare-and-set of its row after its
//!   tick was delivered. Whatever fails before that, the same number is delivered again, by this
//!   silo or by the next owner.
//! * **Nothing rests on the owner being one.** During a change of views two silos may fire one
//!   occurrence. One of the two writes wins, the other silo reads the row again.
//! * **The table decides.** What a silo has in memory is a copy. A message that a reminder changed
//!   makes its owner read the row, and a lost message is made good by the next read.
//!
//! | module | subject |
//! |---|---|
//! | `api` | what goes in and comes out, as plain data |
//! | `owners` | which silo owns which bucket |
//! | `leaves` | which parts of the table are read next, and how |
//! | `entries` | the reminders in memory, by place and by due time |
//! | `machine` | the machine: inputs, firing, settling |
//! | `tells` | messages to owners about what changed, until they are heard |

mod api;
mod entries;
mod leaves;
mod machine;
mod owners;
mod tells;
#[cfg(test)]
mod world_tests;

pub use api::{
    Config, Effect, EntryId, Etag, Found, Looked, Message, ReadId, Row, Settled, Statistics, Tick,
    Ticked,
};
pub use machine::Reminders;
