//! The meaning of the driver's errors: if anything happened, and if the same is to be sent again.

use emmer_store::StoreErrorKind;
use emmer_store_keyvalue::{Failure, Fault};
use scylla::errors::{
    ConnectionError, ConnectionPoolError, ConnectionSetupRequestErrorKind, DbError, ExecutionError,
    MetadataError, NewSessionError, PrepareError, RequestAttemptError,
};

/// End of an attempt that was no success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Nothing happened; the same may be sent again after a pause.
    Busy(String),
    /// There is no connection to any node: nothing happened.
    Gone(Fault),
    /// The server cannot serve this now: nothing happened.
    Away(Fault),
    /// It happened, or not, or is about to.
    Uncertain(Fault),
    /// Nothing happened, and would not the next time.
    Refused(Fault),
}

impl Ended {
    /// Fault, in words.
    pub(crate) fn fault(self) -> Fault {
        match self {
            Self::Busy(words) => {
                Fault::unavailable(format!("the server has too much to do: {words}"))
            }
            Self::Gone(fault)
            | Self::Away(fault)
            | Self::Uncertain(fault)
            | Self::Refused(fault) => fault,
        }
    }

    /// Failure of a request whose outcome matters.
    pub(crate) fn failure(self) -> Failure {
        match self {
            Self::Uncertain(fault) => Failure::Broken(fault),
            other => Failure::Nothing(other.fault()),
        }
    }
}

/// An error with its cause, on one line.
fn words(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let more = source.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = source.source();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn uncertain(error: &dyn std::error::Error) -> Ended {
    Ended::Uncertain(Fault::unavailable(words(error)))
}

/// Meaning of an answer of the server's own.
fn answer(error: &DbError, said: &str) -> Ended {
    let refused = |kind| Ended::Refused(Fault::new(kind, said));
    match error {
        DbError::Overloaded | DbError::IsBootstrapping | DbError::RateLimitReached { .. } => {
            Ended::Busy(said.to_owned())
        }
        // Not enough replicas are alive: it did not begin.
        DbError::Unavailable { .. } => Ended::Away(Fault::unavailable(said)),
        DbError::AuthenticationError | DbError::Unauthorized => refused(StoreErrorKind::Refused),
        DbError::Invalid | DbError::ConfigError if is_missing(said) => {
            refused(StoreErrorKind::NotFound)
        }
        DbError::SyntaxError
        | DbError::Invalid
        | DbError::ConfigError
        | DbError::AlreadyExists { .. }
        | DbError::FunctionFailure { .. } => refused(StoreErrorKind::Invalid),
        // Timeouts and failures of some replicas, and whatever comes newly.
        other => Ended::Uncertain(Fault::unavailable(format!("{said} ({other})"))),
    }
}

/// Returns true if the server means that a table, or its keyspace, is not there.
fn is_missing(said: &str) -> bool {
    let said = said.to_ascii_lowercase();
    said.contains("unconfigured table") || said.contains("does not exist")
}

fn attempt(error: &RequestAttemptError) -> Ended {
    match error {
        RequestAttemptError::DbError(error, said) => answer(error, said),
        RequestAttemptError::UnableToAllocStreamId => Ended::Busy(words(error)),
        RequestAttemptError::SerializationError(_)
        | RequestAttemptError::CqlRequestSerialization(_) => {
            Ended::Refused(Fault::new(StoreErrorKind::Invalid, words(error)))
        }
        // The connection ended, or the answer is not understood.
        error => uncertain(error),
    }
}

fn pool(error: &ConnectionPoolError) -> Ended {
    match error {
        ConnectionPoolError::Broken { last_connection_error } => connection(last_connection_error),
        error => Ended::Gone(Fault::unavailable(words(error))),
    }
}

/// Why there is no connection.
fn connection(error: &ConnectionError) -> Ended {
    let refused = || Ended::Refused(Fault::new(StoreErrorKind::Refused, words(error)));
    match error {
        // The TLS library's complaints about the peer come in this form.
        ConnectionError::IoError(io) if io.kind() == std::io::ErrorKind::InvalidData => {
            Ended::Refused(Fault::new(StoreErrorKind::Refused, format!("TLS: {}", words(error))))
        }
        ConnectionError::ConnectionSetupRequestError(setup) => match setup.get_error() {
            ConnectionSetupRequestErrorKind::DbError(error, said) => match answer(error, said) {
                Ended::Uncertain(fault) => Ended::Gone(fault),
                ended => ended,
            },
            ConnectionSetupRequestErrorKind::MissingAuthentication => refused(),
            _ => Ended::Gone(Fault::unavailable(words(error))),
        },
        error => Ended::Gone(Fault::unavailable(words(error))),
    }
}

fn prepare(error: &PrepareError) -> Ended {
    match error {
        PrepareError::ConnectionPoolError(error) => pool(error),
        // Nothing happens when a statement is prepared.
        PrepareError::AllAttemptsFailed { first_attempt } => match attempt(first_attempt) {
            Ended::Uncertain(fault) => Ended::Away(fault),
            ended => ended,
        },
        error => Ended::Away(Fault::unavailable(words(error))),
    }
}

/// Outcome of a request.
pub(crate) fn understood(error: &ExecutionError) -> Ended {
    match error {
        ExecutionError::BadQuery(_) => {
            Ended::Refused(Fault::new(StoreErrorKind::Invalid, words(error)))
        }
        ExecutionError::EmptyPlan => Ended::Gone(Fault::unavailable("no node is reached")),
        ExecutionError::PrepareError(error) => prepare(error),
        ExecutionError::ConnectionPoolError(error) => pool(error),
        ExecutionError::LastAttemptError(error) => attempt(error),
        error => uncertain(error),
    }
}

/// Outcome of a statement that was to be prepared.
pub(crate) fn not_prepared(error: &PrepareError) -> Ended {
    prepare(error)
}

/// Why there is no session. Nothing happened.
pub(crate) fn not_opened(error: &NewSessionError) -> Ended {
    match error {
        NewSessionError::MetadataError(MetadataError::ConnectionPoolError(error)) => pool(error),
        NewSessionError::IllegalConfig(_) | NewSessionError::EmptyKnownNodesList => {
            Ended::Refused(Fault::new(StoreErrorKind::Invalid, words(error)))
        }
        error => Ended::Gone(Fault::unavailable(words(error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_says_is_told_apart() {
        let missing = answer(&DbError::Invalid, "table silo_instances does not exist");
        assert!(matches!(missing, Ended::Refused(fault) if fault.kind == StoreErrorKind::NotFound));
        let wrong = answer(&DbError::Invalid, "Invalid INTEGER constant");
        assert!(matches!(wrong, Ended::Refused(fault) if fault.kind == StoreErrorKind::Invalid));
        let nobody = answer(
            &DbError::AuthenticationError,
            "Provided username x and/or password are incorrect",
        );
        assert!(matches!(nobody, Ended::Refused(fault) if fault.kind == StoreErrorKind::Refused));
        assert!(matches!(answer(&DbError::Overloaded, ""), Ended::Busy(_)));
        assert!(matches!(answer(&DbError::ServerError, "?"), Ended::Uncertain(_)));
    }
}
