//! Failures in a store without its name and the operation, and whether they leave the outcome
//! unknown.

use crate::contract::{StoreError, StoreErrorKind};
use crate::one_moment::Unread;

/// A failure without its store and operation, which the caller adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kind, for a program.
    pub kind: StoreErrorKind,
    /// Error, without credentials.
    pub detail: String,
}

impl From<Unread<Self>> for Fault {
    /// Says that others came in between where they did: the read is slow because of them, not the
    /// server.
    fn from(unread: Unread<Self>) -> Self {
        const OVERTAKEN: &str = "others change the partition all the time";
        match unread {
            Unread::Overtaken => Self::unavailable(OVERTAKEN),
            Unread::Failed { error, overtaken: true }
                if error.kind == StoreErrorKind::Unavailable =>
            {
                Self::unavailable(format!("{OVERTAKEN}: {}", error.detail))
            }
            Unread::Failed { error, .. } => error,
        }
    }
}

impl Fault {
    /// A failure of `kind`.
    pub fn new(kind: StoreErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }

    /// The server cannot be reached or does not answer.
    pub fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Unavailable, detail)
    }

    /// Fault of stored data, or of an answer, that cannot be understood.
    pub fn corrupt(detail: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Corrupt, detail)
    }

    /// The failure as the contract reports it.
    pub fn at(self, store: &str, operation: impl Into<String>) -> StoreError {
        StoreError::new(self.kind, store, operation, self.detail)
    }
}

/// Way in which a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Nothing happened: the request was not sent, or the server refused it.
    Nothing(Fault),
    /// It was done or not: the connection ended, or the server does not know itself.
    Broken(Fault),
}

impl Failure {
    /// Fault of a request whose repetition does no harm.
    pub fn fault(self) -> Fault {
        match self {
            Self::Nothing(fault) | Self::Broken(fault) => fault,
        }
    }
}

impl From<Fault> for Failure {
    /// A failure that did nothing.
    fn from(fault: Fault) -> Self {
        Self::Nothing(fault)
    }
}
