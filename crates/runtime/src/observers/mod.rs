//! Observers: what grains tell to people. A grain keeps [`Observers`]; a client, or a service of a
//! silo, has a [`Watch`] that renews itself.
//!
//! | module | subject |
//! |---|---|
//! | `interface` | an observer's interface and its events, as the runtime sees them |
//! | `reference` | an observer as data |
//! | `told` | the observers that a grain tells |
//! | `mailbox` | events that wait for their observer |
//! | `watch` | an observer, and the task that keeps it registered |

mod interface;
mod mailbox;
mod reference;
mod told;
mod watch;

pub use self::interface::ObserverInterface;
pub use self::mailbox::{Gap, News, Overflow};
pub use self::reference::ObserverRef;
pub use self::told::{Observers, ObserversError};
pub use self::watch::{Handled, Watch, WatchError};
