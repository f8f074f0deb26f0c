//! A waiting call, and the times after which it is checked for a circle.

use std::time::Duration;

use emmer_net::clock::CoarseInstant;

/// Wait for a grain after which a call is checked for a circle.
pub(super) const PATIENCE: Duration = Duration::from_millis(200);

/// Time between two looks at calls that have waited longer than [`PATIENCE`].
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A circle on one silo is known two looks after its patience has ended, and long before a second
/// if other silos have a part in it.
const _: () = assert!(PATIENCE.as_millis() + 3 * LOOK_EVERY.as_millis() <= 400);

/// A call that waits for its grain, behind turns that stand in its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    /// Its place in the queue, unique for all time.
    pub(crate) ticket: u64,
    /// The turn that made the call.
    pub(crate) caller: u64,
    pub(crate) since: CoarseInstant,
    /// True if a turn behind the call may hold its grain: it is checked without [`PATIENCE`].
    pub(crate) suspect: bool,
}
