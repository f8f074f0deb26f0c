//! The request of a turn for a place in a grain's queue.

use emmer_net::clock::CoarseInstant;

/// Turn that made the call in the queue.
#[derive(Clone, Copy)]
pub(crate) struct Who {
    /// Its number; 0 when no turn made the call.
    pub(crate) caller: u64,
    /// Time since when it waits.
    pub(crate) since: CoarseInstant,
    /// One of the turns behind the call may be inside.
    pub(crate) suspect: bool,
    /// The call came from elsewhere.
    pub(crate) remote: bool,
}

/// Request of a turn for its place in the queue.
#[derive(Clone, Copy)]
pub(crate) struct Asks {
    pub(crate) deadline: CoarseInstant,
    pub(crate) who: Option<Who>,
    /// True if the turn enters before turns that already wait.
    pub(crate) past: bool,
    /// True if a task of the runtime polls the turn, so that it always takes its place.
    pub(crate) driven: bool,
}

impl Asks {
    /// The request of a turn that no other turn waits for.
    pub(crate) const fn until(deadline: CoarseInstant) -> Self {
        Self { deadline, who: None, past: false, driven: false }
    }
}
