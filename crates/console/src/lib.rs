//! Pictures of a running cluster, gathered from all its silos by the admin interface.
//!
//! | module | subject |
//! |---|---|
//! | `gather` | asks the silos, once for each picture ([`Gather`]) |
//! | `rates` | counts that grow, as rates and latencies of the last moment |
//! | `events` | changes of the membership between two pictures |
//! | `picture` | the result ([`Picture`]) |

mod events;
mod gather;
mod picture;
mod rates;

pub use self::events::Event;
pub use self::gather::{Gather, Wants};
pub use self::picture::{
    HotRow, MethodRow, Picture, QueueRow, ReminderRow, SiloOwn, SiloRow, TurnRow, TypeRow,
};
