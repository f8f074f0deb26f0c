//! Faults in the contract's kinds, and the fate of the sent request.

use emmer_store::StoreErrorKind;
use zookeeper_client::Error;

/// A failure without its store and operation, which the caller adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) kind: StoreErrorKind,
    pub(crate) detail: String,
    /// True if the connection was lost, so that the same request may be answered over another.
    pub(crate) lost: bool,
}

impl Fault {
    pub(crate) fn new(kind: StoreErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), lost: false }
    }

    pub(crate) fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Unavailable, detail)
    }

    pub(crate) fn corrupt(detail: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Corrupt, detail)
    }

    /// The table was never made, or was removed.
    pub(crate) fn no_table() -> Self {
        Self::new(StoreErrorKind::NotFound, "the table is not there: ensure it first")
    }

    /// The server took too long.
    pub(crate) fn too_late() -> Self {
        Self::unavailable("the server does not answer in time")
    }
}

impl From<Fault> for emmer_store_keyvalue::Fault {
    fn from(fault: Fault) -> Self {
        Self::new(fault.kind, fault.detail)
    }
}

impl From<&Error> for Fault {
    fn from(error: &Error) -> Self {
        use StoreErrorKind::{Corrupt, Invalid, NotFound, Refused, Unavailable};
        let kind = match error {
            Error::NoNode => NotFound,
            Error::NoAuth
            | Error::AuthFailed
            | Error::InvalidAcl
            | Error::NotReadOnly
            | Error::QuotaExceeded
            | Error::Unimplemented => Refused,
            Error::BadArguments(_) => Invalid,
            Error::NodeExists
            | Error::NotEmpty
            | Error::BadVersion
            | Error::NoChildrenForEphemerals
            | Error::UnmarshalError { .. } => Corrupt,
            _ => Unavailable,
        };
        let hint = match error {
            Error::NoAuth => {
                ": name the user who made the nodes, as in zookeeper://user:password@host"
            }
            Error::Unimplemented => ": this store needs ZooKeeper 3.6",
            Error::NoHosts => ": no host accepts a session",
            _ => "",
        };
        // Only the server's own answers count as answers.
        let lost = kind == Unavailable && !matches!(error, Error::Throttled);
        Self { lost, ..Self::new(kind, format!("{error}{hint}")) }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::from(&error)
    }
}

/// Returns true if `error`, given for a whole request, proves that the request did nothing. Only
/// errors before a server passes a request to the others do; any other error may have come after it
/// was done.
pub(crate) fn did_nothing(error: &Error) -> bool {
    matches!(
        error,
        Error::NoAuth
            | Error::BadArguments(_)
            | Error::InvalidAcl
            | Error::NotReadOnly
            | Error::QuotaExceeded
            | Error::Throttled
            | Error::Unimplemented
            | Error::NoNode
            | Error::NodeExists
            | Error::BadVersion
            | Error::NotEmpty
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_have_happened_is_never_certain() {
        for error in [
            Error::ConnectionLoss,
            Error::SessionExpired,
            Error::SessionMoved,
            Error::ClientClosed,
            Error::Timeout,
            Error::MarshallingError,
            Error::UnexpectedError("?".to_owned()),
        ] {
            let fault = Fault::from(&error);
            assert!(!did_nothing(&error) && fault.lost, "{error}");
            assert_eq!(fault.kind, StoreErrorKind::Unavailable, "{error}");
        }
        assert!(did_nothing(&Error::BadVersion) && !Fault::from(&Error::BadVersion).lost);
        assert_eq!(Fault::from(&Error::NoAuth).kind, StoreErrorKind::Refused);
    }
}
