//! What went wrong, in the contract's kinds, and what it says about the batch that was sent.

use emmer_store::StoreErrorKind;
use emmer_store_relational::{Failure, Fault};
use tiberius::error::Error;

/// A deadlock, a wait for a lock that took too long, a key that came into being in between, a changed snapshot.
const AGAIN: [u32; 5] = [1205, 1222, 2627, 2601, 3960];
/// From this severity on the server ends the session.
const FATAL: u8 = 20;

/// What an error of a batch that was sent says about it: every write is in one transaction, which any error of the
/// server rolls back (`XACT_ABORT`).
pub(crate) fn failure(error: &Error) -> Failure {
    let fault = fault(error);
    match error {
        Error::Server(token) if token.class() >= FATAL => Failure::Broken(fault),
        Error::Server(token) if AGAIN.contains(&token.code()) => Failure::Again(fault),
        Error::Server(_) => Failure::Nothing(fault),
        _ => Failure::Broken(fault),
    }
}

/// An error in the contract's kinds.
pub(crate) fn fault(error: &Error) -> Fault {
    use StoreErrorKind::{Refused, Unavailable};
    match error {
        Error::Server(token) => {
            let words = token.message();
            Fault::new(kind(token.code()), format!("{words} (error {})", token.code()))
        }
        Error::Tls(words) => Fault::new(Refused, format!("TLS: {words}")),
        Error::Conversion(_) => Fault::corrupt("a value has another type than declared"),
        other => Fault::new(Unavailable, other.to_string()),
    }
}

fn kind(code: u32) -> StoreErrorKind {
    use StoreErrorKind::{Corrupt, Invalid, NotFound, Refused, Unavailable};
    match code {
        208 | 3701 | 4902 => NotFound,
        // Logins, permissions, databases, read-only databases.
        229 | 230 | 262 | 300 | 911 | 916 | 2760 | 3906 | 4060 | 4064 | 18_452 | 18_456 | 18_470 | 18_486 => {
            Refused
        }
        241 | 242 | 2628 | 8114 | 8115 | 8152 => Invalid,
        207 | 213 | 515 | 547 | 2601 | 2627 => Corrupt,
        _ => Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_become_kinds() {
        use StoreErrorKind::{Corrupt, NotFound, Refused, Unavailable};
        for (code, wanted) in [
            (208, NotFound),
            (18_456, Refused),
            (4060, Refused),
            (207, Corrupt),
            (1205, Unavailable),
            (1222, Unavailable),
        ] {
            assert_eq!(kind(code), wanted, "{code}");
        }
    }
}
