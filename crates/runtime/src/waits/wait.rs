//! A call that waits, and when it is looked at.

use std::time::Duration;

use emmer_net::clock::CoarseInstant;

/// A call that has waited for so long for its grain is looked at.
pub(super) const PATIENCE: Duration = Duration::from_millis(200);

/// How often this silo looks at calls that have waited for long.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Two looks after its patience has ended a circle on one silo is known, and long before a second
/// if others have a part in it.
const _: () = assert!(PATIENCE.as_millis() + 3 * LOOK_EVERY.as_millis() <= 400);

/// A call that waits for its grain, behind turns that stand in its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    /// Its place in the queue; no other one has it, ever.
    pub(crate) ticket: u64,
    /// The turn that made the call.
    pub(crate) caller: u64,
    pub(crate) since: CoarseInstant,
    /// One of the turns behind the call may stand in its way: it is looked at without patience.
    pub(crate) suspect: bool,
}
