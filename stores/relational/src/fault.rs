//! The meaning of a failure for the statement that was sent.

use emmer_store::Fault;

/// Way in which a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The server refused it or rolled it back: nothing was changed.
    Nothing(Fault),
    /// Like [`Nothing`](Self::Nothing), and the same request may succeed now: it was the victim of
    /// others, or its plan was out of date.
    Again(Fault),
    /// The server cannot serve this now, and another one may have taken its address: it is
    /// read-only, starting or stopping. Nothing was changed. Every connection is made again.
    Elsewhere(Fault),
    /// The connection or the session ended: the request was done or not.
    Broken(Fault),
}

impl Failure {
    /// A failure of a server that cannot serve this now, in its words.
    pub fn elsewhere(detail: impl Into<String>) -> Self {
        Self::Elsewhere(Fault::unavailable(detail))
    }

    /// Fault.
    pub fn fault(self) -> Fault {
        match self {
            Self::Nothing(fault)
            | Self::Again(fault)
            | Self::Elsewhere(fault)
            | Self::Broken(fault) => fault,
        }
    }
}
