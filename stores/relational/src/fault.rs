//! What went wrong, in the contract's kinds, and what it says about the statement that was sent.

use emmer_store::{StoreError, StoreErrorKind};

/// A failure without its store and operation, which the store adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kind, for a program.
    pub kind: StoreErrorKind,
    /// What went wrong, in the server's words, without credentials.
    pub detail: String,
}

impl Fault {
    /// A failure of `kind`.
    pub fn new(kind: StoreErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }

    /// Try again later.
    pub fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Unavailable, detail)
    }

    /// The server answered something that no store of this crate wrote.
    pub fn corrupt(detail: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Corrupt, detail)
    }

    /// The failure as the contract reports it.
    pub fn at(self, store: &str, operation: String) -> StoreError {
        StoreError::new(self.kind, store, operation, self.detail)
    }
}

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
