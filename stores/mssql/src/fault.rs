//! Faults in the contract's kinds, and the fate of the sent batch.

use emmer_store::StoreErrorKind;
use emmer_store_relational::{Failure, Fault};
use tiberius::error::Error;

/// A deadlock, a wait for a lock that took too long, a key that another transaction made, a
/// snapshot that others changed or whose table they changed.
const AGAIN: [u32; 6] = [1205, 1222, 2627, 2601, 3960, 3961];
/// The database only reads or cannot be opened here: a secondary, which was the primary when the
/// connection was made.
const SECONDARY: [u32; 6] = [976, 978, 982, 983, 3906, 3908];
/// From this severity on the server ends the session.
const FATAL: u8 = 20;
/// Azure moves the database elsewhere, or gives up on the request: it may have been executed.
const MOVED: [u32; 4] = [40_143, 40_166, 40_197, 40_540];

/// The outcome of a batch by the server's error: every write is in one transaction, which any error
/// of the server rolls back (`XACT_ABORT`).
pub(crate) fn failure(error: &Error) -> Failure {
    let fault = fault(error);
    match error {
        Error::Server(token) => server(token.code(), token.class(), fault),
        _ => Failure::Broken(fault),
    }
}

fn server(code: u32, class: u8, fault: Fault) -> Failure {
    if class >= FATAL || MOVED.contains(&code) {
        Failure::Broken(fault)
    } else if SECONDARY.contains(&code) {
        Failure::elsewhere(fault.detail)
    } else if AGAIN.contains(&code) {
        Failure::Again(fault)
    } else {
        Failure::Nothing(fault)
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
        Error::Tls(words) => {
            // The rest is for users of the driver.
            let found = words.split(" To connect anyway").next().unwrap_or_default();
            Fault::new(Refused, format!("TLS: {found}"))
        }
        error if is_without_tls(error) => Fault::new(
            Refused,
            "TLS: the server has none, and sslmode asks for it (prefer or disable would do \
             without)",
        ),
        // A handshake that failed comes as the words of a stream.
        Error::Io { message, .. } if is_of_tls(message) => {
            Fault::new(Refused, format!("TLS: {message}"))
        }
        Error::Conversion(_) => Fault::corrupt("a value has another type than declared"),
        other => Fault::new(Unavailable, other.to_string()),
    }
}

/// Returns true if the server has no TLS and the client asked for it. The driver tells it by these
/// words only.
pub(crate) fn is_without_tls(error: &Error) -> bool {
    matches!(error, Error::Protocol(words) if words.contains("requested encryption level"))
}

/// Returns true if words about a stream are about its encryption.
fn is_of_tls(words: &str) -> bool {
    let lower = words.to_ascii_lowercase();
    ["certificate", "fatal alert", "corrupt message", "handshake"]
        .iter()
        .any(|word| lower.contains(word))
}

fn kind(code: u32) -> StoreErrorKind {
    use StoreErrorKind::{Corrupt, Invalid, NotFound, Refused, Unavailable};
    match code {
        208 | 3701 | 4902 => NotFound,
        // Logins, permissions, databases, read-only databases.
        229 | 230 | 262 | 300 | 911 | 916 | 2760 | 3906 | 4060 | 4064 | 18_452 | 18_456
        | 18_470 | 18_486 => Refused,
        241 | 242 | 2628 | 8114 | 8115 | 8152 => Invalid,
        207 | 213 | 515 | 547 | 2601 | 2627 => Corrupt,
        _ => Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_tell_what_became_of_a_batch() {
        let became = |code, class| server(code, class, Fault::unavailable("words"));
        for victim in [1205, 1222, 2627, 3960] {
            assert!(matches!(became(victim, 13), Failure::Again(_)), "{victim}");
        }
        for refused in [208, 229, 8152, 9002] {
            assert!(matches!(became(refused, 16), Failure::Nothing(_)), "{refused}");
        }
        for secondary in [978, 3906] {
            assert!(matches!(became(secondary, 16), Failure::Elsewhere(_)), "{secondary}");
        }
        assert!(matches!(became(596, 21), Failure::Broken(_)));
        assert!(matches!(became(40_197, 17), Failure::Broken(_)));
    }

    #[test]
    fn a_refused_certificate_comes_without_advice_on_the_driver() {
        let found = fault(&Error::Tls("it is expired. To connect anyway you can: (1)".to_owned()));
        assert_eq!(
            (found.kind, found.detail.as_str()),
            (StoreErrorKind::Refused, "TLS: it is expired.")
        );
    }

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
