//! What a turn asks of the queue at the door of a grain.

use emmer_net::clock::CoarseInstant;

/// The turn that waits for a waiter.
#[derive(Clone, Copy)]
pub(crate) struct Who {
    /// Its number; 0 when no turn made the call.
    pub(crate) caller: u64,
    /// Since when.
    pub(crate) since: CoarseInstant,
    /// One of the turns behind the call may be inside.
    pub(crate) suspect: bool,
    /// The call came from elsewhere.
    pub(crate) remote: bool,
}

/// What a turn brings to the queue.
#[derive(Clone, Copy)]
pub(crate) struct Asks {
    pub(crate) deadline: CoarseInstant,
    pub(crate) who: Option<Who>,
    /// Whether it goes past those that wait.
    pub(crate) past: bool,
    /// Whether a task of the runtime polls it, so that it is never absent.
    pub(crate) driven: bool,
}

impl Asks {
    /// For nobody that others could wait for.
    pub(crate) const fn until(deadline: CoarseInstant) -> Self {
        Self { deadline, who: None, past: false, driven: false }
    }
}
