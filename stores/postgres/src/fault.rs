//! The faults in the contract's kinds, and their meaning for the statement that was sent.

use std::error::Error as _;

use emmer_store::StoreErrorKind;
use emmer_store_relational::{Failure, Fault};
use tokio_postgres::error::{DbError, Severity, SqlState};

/// Meaning of the driver's error for a statement that was sent.
pub(crate) fn failure(error: &tokio_postgres::Error) -> Failure {
    let fault = fault(error);
    let Some(db) = error.as_db_error() else {
        return if before_sending(error) {
            Failure::Nothing(fault)
        } else {
            Failure::Broken(fault)
        };
    };
    // FATAL and PANIC end the session, perhaps between the commit and its acknowledgement.
    if db.parsed_severity() != Some(Severity::Error) {
        return Failure::Broken(fault);
    }
    let again = [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        // A row was missing when the statement looked and there when it wrote.
        SqlState::UNIQUE_VIOLATION,
        // "cached plan must not change result type": the table was made again.
        SqlState::FEATURE_NOT_SUPPORTED,
        // Our prepared statements were deallocated.
        SqlState::INVALID_SQL_STATEMENT_NAME,
    ];
    // A standby, which was the primary when the connection was made.
    if *db.code() == SqlState::READ_ONLY_SQL_TRANSACTION {
        Failure::elsewhere(fault.detail)
    } else if again.contains(db.code()) {
        Failure::Again(fault)
    } else {
        Failure::Nothing(fault)
    }
}

/// The driver tells its kinds of errors apart by their words only.
fn said(error: &tokio_postgres::Error, words: &[&str]) -> bool {
    let text = error.to_string();
    words.iter().any(|word| text.starts_with(word))
}

/// The driver could not put the request together.
fn before_sending(error: &tokio_postgres::Error) -> bool {
    said(error, &["error serializing", "error encoding", "expected "])
}

/// The driver's error in the contract's kinds.
pub(crate) fn fault(error: &tokio_postgres::Error) -> Fault {
    if let Some(db) = error.as_db_error() {
        return Fault::new(kind(db.code()), words(db));
    }
    let kind = if before_sending(error) {
        StoreErrorKind::Invalid
    } else if said(error, &["authentication", "invalid configuration", "error performing TLS"]) {
        StoreErrorKind::Refused
    } else {
        StoreErrorKind::Unavailable
    };
    let mut detail = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        detail = format!("{detail}: {inner}");
        cause = inner.source();
    }
    if detail.contains("password missing") {
        detail += "; give it in the URL or in the environment variable PGPASSWORD";
    }
    Fault::new(kind, detail)
}

fn words(db: &DbError) -> String {
    let mut text = db.message().to_owned();
    for more in [db.detail(), db.hint()].into_iter().flatten() {
        text = format!("{text}; {more}");
    }
    if *db.code() == SqlState::INSUFFICIENT_PRIVILEGE && db.message().contains("for table") {
        text += "; this user needs SELECT, INSERT, UPDATE and DELETE on the tables, and SELECT on \
            emmer_meta";
    }
    if *db.code() == SqlState::QUERY_CANCELED {
        text += "; another session may hold the rows, see pg_stat_activity";
    }
    format!("{text} (SQLSTATE {})", db.code().code())
}

fn kind(code: &SqlState) -> StoreErrorKind {
    use StoreErrorKind::{Corrupt, Invalid, NotFound, Refused, Unavailable};
    match code.code() {
        // No such table, no such database.
        "42P01" | "3D000" => NotFound,
        // Permissions, a standby, a wrong schema.
        "42501" | "25006" | "3F000" => Refused,
        // A feature the server does not have, a limit of the server's.
        "0A000" => Refused,
        code => match code.get(..2) {
            Some("28") => Refused,
            Some("22" | "54") => Invalid,
            Some("42" | "23") => Corrupt,
            _ => Unavailable,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_become_kinds() {
        use StoreErrorKind::{Corrupt, Invalid, NotFound, Refused, Unavailable};
        for (code, wanted) in [
            ("42P01", NotFound),
            ("42703", Corrupt),
            ("42501", Refused),
            ("28P01", Refused),
            ("28000", Refused),
            ("3D000", NotFound),
            ("25006", Refused),
            ("22008", Invalid),
            ("54000", Invalid),
            ("57014", Unavailable),
            ("57P03", Unavailable),
            ("53300", Unavailable),
            ("53100", Unavailable),
            ("40P01", Unavailable),
            ("XX000", Unavailable),
        ] {
            assert_eq!(kind(&SqlState::from_code(code)), wanted, "{code}");
        }
    }
}
