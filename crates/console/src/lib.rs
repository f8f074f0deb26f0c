//! Pictures of a running cluster, gathered from all its silos by the admin interface.
//!
//! | module | subject |
//! |---|---|
//! | `gather` | asks the silos, once for each picture ([`Gather`]) |
//! | `asking` | one question to many silos |
//! | `rates` | counts that grow, as rates and latencies of the last moment |
//! | `events` | changes of the membership between two pictures |
//! | `picture` | the result ([`Picture`]) |
//! | `pages` | pages of grains of all silos as one, and keys as people write them |
//! | `grain` | one grain as a document ([`GrainDocument`]) |
//! | `payload` | MessagePack as JSON, and back |
//! | `serve` | the console: pages for a browser (feature `serve`) |

mod asking;
mod events;
mod gather;
mod grain;
mod pages;
pub mod payload;
mod picture;
mod rates;
#[cfg(feature = "serve")]
mod serve;

pub use self::asking::{Asked, ask_silos};
pub use self::events::Event;
pub use self::gather::{Gather, Wants};
pub use self::grain::{GrainDocument, StateDocument};
pub use self::pages::{key_of, merge_pages};
pub use self::picture::{
    HotRow, MethodRow, Picture, QueueRow, ReminderRow, SiloOwn, SiloRow, TurnRow, TypeRow,
};
#[cfg(feature = "serve")]
pub use self::serve::{Console, ConsoleError, ConsoleOptions, Serving};
