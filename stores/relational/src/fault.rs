//! What a failure says about the statement that was sent.

use emmer_store::Fault;

/// How a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The server refused it or rolled it back: nothing was changed.
    Nothing(Fault),
    /// The same, and the same request may succeed now: it was the victim of others, or its plan was
    /// out of date.
    Again(Fault),
    /// The connection or the session ended: the request was done or not.
    Broken(Fault),
}

impl Failure {
    /// What went wrong.
    pub fn fault(self) -> Fault {
        match self {
            Self::Nothing(fault) | Self::Again(fault) | Self::Broken(fault) => fault,
        }
    }
}
