//! The faults of SQLite, in the contract's kinds.

use emmer_store::{Fault, StoreErrorKind};
use rusqlite::ErrorCode;

/// A failure on one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failed(pub(crate) Fault);

impl Failed {
    pub(crate) fn new(kind: StoreErrorKind, detail: impl Into<String>) -> Self {
        Self(Fault::new(kind, detail))
    }
}

impl From<Failed> for Fault {
    fn from(failed: Failed) -> Self {
        failed.0
    }
}

impl From<rusqlite::Error> for Failed {
    fn from(error: rusqlite::Error) -> Self {
        use StoreErrorKind::{Corrupt, Damaged, Invalid, NotFound, Refused, Unavailable};
        let text = error.to_string();
        let kind = match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                return Self::new(
                    Unavailable,
                    format!("{text} (another process holds the write lock)"),
                );
            }
            Some(ErrorCode::CannotOpen) => {
                let hint = "can this process read and write the file and its directory?";
                return Self::new(Refused, format!("{text} ({hint})"));
            }
            Some(
                ErrorCode::ReadOnly
                | ErrorCode::PermissionDenied
                | ErrorCode::AuthorizationForStatementDenied
                | ErrorCode::NoLargeFileSupport,
            ) => Refused,
            Some(ErrorCode::NotADatabase) => {
                return Self::new(Damaged, "the file is not a SQLite database, or is damaged");
            }
            Some(ErrorCode::DatabaseCorrupt) => Damaged,
            Some(ErrorCode::TypeMismatch | ErrorCode::ConstraintViolation) => Corrupt,
            Some(ErrorCode::TooBig) => Invalid,
            Some(ErrorCode::Unknown) if text.contains("no such table") => NotFound,
            Some(ErrorCode::Unknown) if text.contains("no such column") => Corrupt,
            Some(_) => Unavailable,
            // Not from SQLite but from reading its answer: the content differs from the
            // declaration.
            None => Corrupt,
        };
        Self::new(kind, text)
    }
}
