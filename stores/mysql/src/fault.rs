//! The faults in the contract's kinds, and their meaning for the statement that was sent.

use emmer_store::StoreErrorKind;
use emmer_store_relational::{Failure, Fault};
use mysql_async::{DriverError, Error, IoError, ServerError};

/// The row is there already.
pub(crate) const DUPLICATE: u16 = 1062;
/// A deadlock, a wait for a lock that took too long, a row changed since the snapshot (MariaDB), a
/// statement that must be prepared again, a table that was made again.
const AGAIN: [u16; 6] = [1213, 1205, 1020, 1615, 1243, 1412];
/// The server only reads: a replica, which was the primary when the connection was made.
const READ_ONLY: [u16; 3] = [1290, 1792, 1836];
/// The session is ended: by a shutdown, or by an administrator.
const ENDED: [u16; 4] = [1053, 1927, 3169, 4031];

/// Meaning of an error for a statement that was sent.
pub(crate) fn failure(error: &Error) -> Failure {
    let fault = fault(error);
    match error {
        Error::Server(server) if ENDED.contains(&server.code) => Failure::Broken(fault),
        Error::Server(server) if READ_ONLY.contains(&server.code) => {
            Failure::elsewhere(fault.detail)
        }
        // The row was missing when the statement looked and there when it wrote.
        Error::Server(server) if AGAIN.contains(&server.code) || server.code == DUPLICATE => {
            Failure::Again(fault)
        }
        Error::Server(_) => Failure::Nothing(fault),
        Error::Driver(DriverError::PacketTooLarge | DriverError::StmtParamsMismatch { .. }) => {
            Failure::Nothing(fault)
        }
        _ => Failure::Broken(fault),
    }
}

/// An error in the contract's kinds.
pub(crate) fn fault(error: &Error) -> Fault {
    use StoreErrorKind::{Corrupt, Invalid, Refused, Unavailable};
    match error {
        Error::Server(server) => Fault::new(kind(server.code), words(server)),
        Error::Io(IoError::Tls(tls)) => Fault::new(Refused, format!("TLS: {tls}")),
        Error::Io(IoError::Io(io)) => Fault::new(Unavailable, io.to_string()),
        Error::Driver(DriverError::NoClientSslFlagFromServer) => Fault::new(
            Refused,
            "the server offers no TLS (sslmode=prefer or disable would do without)",
        ),
        Error::Driver(DriverError::PacketTooLarge) => Fault::new(Invalid, "a packet is too large"),
        Error::Driver(DriverError::ConnectionClosed) => {
            Fault::new(Unavailable, "the connection is closed")
        }
        // Their words may hold rows and values.
        Error::Driver(DriverError::FromRow { .. } | DriverError::FromValue { .. }) => {
            Fault::new(Corrupt, "a value has another type than declared")
        }
        Error::Driver(driver) => Fault::new(Unavailable, driver.to_string()),
        Error::Url(url) => Fault::new(Invalid, url.to_string()),
        Error::Other(other) => Fault::new(Unavailable, other.to_string()),
    }
}

fn words(error: &ServerError) -> String {
    let hint = match error.code {
        1205 | 1969 | 3024 => "; another session may hold the rows, see SHOW PROCESSLIST",
        1045 if error.message.contains("using password: NO") => {
            "; give the password in the URL or in the environment variable MYSQL_PWD"
        }
        1142 if ["SELECT", "INSERT", "UPDATE", "DELETE"]
            .iter()
            .any(|word| error.message.starts_with(word)) =>
        {
            "; this user needs SELECT, INSERT, UPDATE and DELETE on the database's tables"
        }
        1153 => "; raise the server's max_allowed_packet",
        _ => "",
    };
    format!("{}{hint} (error {}, SQLSTATE {})", error.message, error.code, error.state)
}

fn kind(code: u16) -> StoreErrorKind {
    use StoreErrorKind::{Corrupt, Invalid, NotFound, Refused, Unavailable};
    match code {
        // No such table, no such database.
        1146 | 1051 | 1049 => NotFound,
        // Errors about rights, hosts, missing objects and read-only servers.
        1044 | 1045 | 1095 | 1129 | 1130 | 1142 | 1143 | 1227 | 1251 | 1290 | 1370 | 1524
        | 1698 | 1792 | 1820 | 1836 | 1862 | 3118 | 3159 | 4151 => Refused,
        // Out of a type's range, too long, too large.
        1118 | 1153 | 1264 | 1292 | 1366 | 1406 => Invalid,
        // Another table than ours.
        1048 | 1054 | 1062 | 1136 | 1364 | 3140 | 3819 | 4025 => Corrupt,
        _ => Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_become_kinds_and_ends() {
        use StoreErrorKind::{Corrupt, Invalid, NotFound, Refused, Unavailable};
        let server = |code| {
            Error::Server(ServerError {
                code,
                message: "words".to_owned(),
                state: "HY000".to_owned(),
            })
        };
        for (code, wanted) in [
            (1146, NotFound),
            (1045, Refused),
            (1049, NotFound),
            (1142, Refused),
            (1292, Invalid),
            (1153, Invalid),
            (1054, Corrupt),
            (1040, Unavailable),
            (1969, Unavailable),
        ] {
            assert_eq!(failure(&server(code)), Failure::Nothing(fault(&server(code))), "{code}");
            assert_eq!(fault(&server(code)).kind, wanted, "{code}");
        }
        for code in [1213, 1205, 1062] {
            assert!(matches!(failure(&server(code)), Failure::Again(_)), "{code}");
        }
        for code in [1290, 1792, 1836] {
            let failure = failure(&server(code));
            assert!(matches!(&failure, Failure::Elsewhere(_)), "{code}");
            assert_eq!(failure.fault().kind, Unavailable, "{code}");
        }
        for code in [1053, 1927] {
            assert!(matches!(failure(&server(code)), Failure::Broken(_)), "{code}");
        }
    }
}
