//! The faults in the contract's kinds, and their meaning for the transaction and the session.

use emmer_store::StoreErrorKind;
use emmer_store_relational::{Failure, Fault};
use oracledb::{Error, ErrorKind};

/// A row came into being in between.
pub(crate) const DUPLICATE: u32 = 1;
/// There is no such table.
pub(crate) const NO_TABLE: u32 = 942;
/// There is a table of this name.
pub(crate) const TABLE_EXISTS: u32 = 955;
/// `COMMIT` found that the transaction was rolled back.
const ROLLED_BACK: u32 = 2_091;

/// Others were in the way: a duplicate key, locks that are held (`NOWAIT`, `WAIT`), deadlocks among
/// rows and in the library cache, a snapshot that is gone, a transaction that cannot be serialized,
/// a lock of a distributed transaction, an object that changed.
const AGAIN: [u32; 11] =
    [DUPLICATE, 54, 60, 1_555, 2_049, 4_020, 4_068, 8_103, 8_177, 22_924, 30_006];

/// The database is mounted or open to read only: a standby, which was the primary when the session
/// was made.
const STANDBY: [u32; 4] = [1_219, 10_456, 16_000, 16_456];

/// The session is over, or nothing can be done with it.
const GONE: [u32; 27] = [
    24, 28, 31, 600, 603, 1_012, 1_033, 1_034, 1_041, 1_089, 1_090, 1_092, 2_396, 2_399, 3_113,
    3_114, 3_135, 7_445, 12_152, 12_153, 12_537, 12_547, 12_570, 12_571, 12_583, 25_401, 25_402,
];

/// Why a statement failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) fault: Fault,
    /// The server's number of it (`ORA-00942` is 942).
    pub(crate) code: Option<u32>,
    /// The session must no longer be used.
    pub(crate) is_gone: bool,
}

impl Trouble {
    /// The session ended, or its state is unknown.
    pub(crate) fn gone(detail: impl Into<String>) -> Self {
        Self { fault: Fault::unavailable(detail), code: None, is_gone: true }
    }

    /// Meaning for a transaction whose `COMMIT` was not sent.
    pub(crate) fn before_commit(self) -> Failure {
        if self.is_gone {
            Failure::Broken(self.fault)
        } else if self.code.is_some_and(|code| AGAIN.contains(&code)) {
            Failure::Again(self.fault)
        } else if self.code.is_some_and(|code| STANDBY.contains(&code)) {
            Failure::elsewhere(self.fault.detail)
        } else {
            Failure::Nothing(self.fault)
        }
    }

    /// Meaning for a transaction whose `COMMIT` was sent.
    pub(crate) fn at_commit(self) -> Failure {
        if self.code == Some(ROLLED_BACK) && !self.is_gone {
            return Failure::Nothing(self.fault);
        }
        // A server that says no to a commit may have done it already.
        Failure::Broken(self.fault)
    }
}

impl From<Fault> for Trouble {
    /// Found here; the session is as it was.
    fn from(fault: Fault) -> Self {
        Self { fault, code: None, is_gone: false }
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::DbError(found) => {
                let code = u32::try_from(found.code()).unwrap_or_default();
                server(code, found.message())
            }
            // The driver has told the server to stop; a fresh session is safer than one that was
            // interrupted.
            ErrorKind::CallTimeoutExceeded => Self::gone("the server does not answer in time"),
            kind => Self { fault: driver(kind, &error), code: None, is_gone: true },
        }
    }
}

/// An error that the server reports.
pub(crate) fn server(code: u32, message: &str) -> Trouble {
    let words: Vec<&str> = message
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty() && !l.starts_with("Help:"))
        .collect();
    let mut detail = words.join(" ");
    if !detail.contains("ORA-") {
        detail += &format!(" (ORA-{code:05})");
    }
    Trouble {
        fault: Fault::new(kind(code), detail),
        code: Some(code),
        is_gone: GONE.contains(&code),
    }
}

fn kind(code: u32) -> StoreErrorKind {
    use StoreErrorKind::{Corrupt, Invalid, NotFound, Refused, Unavailable};
    match code {
        NO_TABLE | 4_043 => NotFound,
        // Logins, accounts, privileges, quotas, databases that are read only.
        1_005 | 1_017 | 1_031 | 1_045 | 1_435 | 1_536 | 1_950 | 16_000 | 28_000 | 28_001
        | 28_009 => Refused,
        1_438 | 1_461 | 1_841 | 12_899 | 24_816 => Invalid,
        DUPLICATE | 904 | 932 | 1_400 | 1_722 | 2_290 => Corrupt,
        _ => Unavailable,
    }
}

/// Returns true if words about a stream are about TLS; the driver does not say.
fn is_of_tls(words: &str) -> bool {
    ["certificate", "fatal alert", "corrupt message"].iter().any(|of_tls| words.contains(of_tls))
}

/// An error that the driver found.
fn driver(kind: &ErrorKind, error: &Error) -> Fault {
    use StoreErrorKind::{Corrupt, Invalid, Refused, Unavailable};
    let words = error.to_string();
    match kind {
        ErrorKind::InvalidServiceName(..) | ErrorKind::InvalidSid(..) => Fault::new(
            Unavailable,
            format!("{words}: there is none, or its instance is still starting"),
        ),
        ErrorKind::TlsOperation
        | ErrorKind::PemFileOperation
        | ErrorKind::WalletPasswordMissingOrInvalid(..)
        | ErrorKind::WalletPrivateKeyInvalid(_)
        | ErrorKind::WalletUnreadable(_) => Fault::new(Refused, format!("TLS: {words}")),
        // Faults of the peer's certificate are found while bytes are read.
        ErrorKind::StreamOperation if is_of_tls(&words) => {
            Fault::new(Refused, format!("TLS: {words}"))
        }
        ErrorKind::ServerVersionNotSupported => Fault::new(Refused, words),
        ErrorKind::NoCredentials => Fault::new(Invalid, "no password is given"),
        ErrorKind::InvalidEncodedString
        | ErrorKind::ColumnTruncated(..)
        | ErrorKind::UnsupportedDbType(_)
        | ErrorKind::UnsupportedConversion(..) => Fault::new(Corrupt, words),
        _ => Fault::new(Unavailable, words),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_become_kinds() {
        use StoreErrorKind::{Corrupt, Invalid, NotFound, Refused, Unavailable};
        for (code, wanted) in [
            (942, NotFound),
            (1_017, Refused),
            (28_000, Refused),
            (1_031, Refused),
            (12_899, Invalid),
            (904, Corrupt),
            (60, Unavailable),
            (3_113, Unavailable),
            (20, Unavailable),
        ] {
            assert_eq!(kind(code), wanted, "{code}");
        }
    }

    #[test]
    fn before_the_commit_nothing_happened() {
        let before = |code| server(code, "words").before_commit();
        for victim in [1, 60, 8_177, 1_555, 30_006, 54] {
            assert!(matches!(before(victim), Failure::Again(_)), "{victim}");
        }
        for refused in [942, 1_031, 12_899] {
            assert!(matches!(before(refused), Failure::Nothing(_)), "{refused}");
        }
        // The store repeats it on another connection, because no changing statement was sent.
        for gone in [28, 3_113, 3_114, 12_537, 1_089] {
            assert!(matches!(before(gone), Failure::Broken(_)), "{gone}");
        }
    }

    #[test]
    fn at_the_commit_nobody_knows_unless_it_was_rolled_back() {
        for code in [3_113, 3_114, 12_537, 1_092, 1_013, 60] {
            assert!(matches!(server(code, "words").at_commit(), Failure::Broken(_)), "{code}");
        }
        assert!(matches!(server(2_091, "words").at_commit(), Failure::Nothing(_)));
        assert!(matches!(Trouble::gone("cut").at_commit(), Failure::Broken(_)));
    }

    #[test]
    fn words_are_the_servers_in_one_line() {
        let text = "ORA-00001: unique constraint (A.B) violated\n\nHelp: a page\n";
        assert_eq!(server(1, text).fault.detail, "ORA-00001: unique constraint (A.B) violated");
        assert_eq!(server(1, "duplicate").fault.detail, "duplicate (ORA-00001)");
    }
}
