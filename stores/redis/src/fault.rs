//! The driver's errors as the contract's.

use emmer_store::StoreErrorKind;
use emmer_store_keyvalue::{Failure, Fault};
use redis::{ErrorKind, RedisError};

/// An error of a request that was sent.
pub(crate) fn failure(error: &RedisError) -> Failure {
    match error.code() {
        // The server's own answer: it did nothing. (Scripts here check everything before they
        // write.)
        Some(code) => Failure::Nothing(Fault::new(kind(code), words(error))),
        None => Failure::Broken(Fault::unavailable(words(error))),
    }
}

/// An error while connecting, over TLS or not.
pub(crate) fn connecting(error: &RedisError, tls: bool) -> Fault {
    let words = words(error);
    let lower = words.to_ascii_lowercase();
    let kind = match error.code() {
        Some(code) => match kind(code) {
            // A database number, a user: what the handshake asks for is not there.
            StoreErrorKind::Corrupt => StoreErrorKind::Refused,
            kind => kind,
        },
        None if error.kind() == ErrorKind::AuthenticationFailed => StoreErrorKind::Refused,
        None if lower.contains("certificate")
            || lower.contains("tls")
            || lower.contains("corrupt message") =>
        {
            StoreErrorKind::Refused
        }
        None => StoreErrorKind::Unavailable,
    };
    // Hint for a greeting that the peer does not understand.
    let hint = match kind {
        StoreErrorKind::Unavailable if tls && error.is_timeout() => {
            " over TLS: the server may not speak it at this port"
        }
        StoreErrorKind::Unavailable
            if !tls && error.is_connection_dropped() && !error.is_connection_refusal() =>
        {
            ": where the server speaks TLS at this port, write rediss://"
        }
        _ => "",
    };
    Fault::new(kind, format!("{words}{hint}"))
}

/// Returns true if a server could not be reached, so that another of its cluster may answer.
pub(crate) fn is_away(fault: &Fault) -> bool {
    fault.kind == StoreErrorKind::Unavailable
}

/// Returns true if the connection is of no use after this error.
pub(crate) fn ends_connection(error: &RedisError) -> bool {
    error.code().is_none_or(is_elsewhere)
}

/// Returns true if the server says that it cannot serve now: a replica, or a server that is still
/// loading. Another server may have taken its address meanwhile, and only a new connection leads
/// there.
fn is_elsewhere(code: &str) -> bool {
    matches!(code, "READONLY" | "LOADING" | "MASTERDOWN" | "CLUSTERDOWN")
}

/// Returns true if the server does not know the script, and so did not run it.
pub(crate) fn is_unknown_script(error: &RedisError) -> bool {
    error.code() == Some("NOSCRIPT")
}

fn words(error: &RedisError) -> String {
    let text = error.to_string();
    match error.code() {
        Some("CLUSTERDOWN") => format!("{text}; see redis-cli CLUSTER INFO"),
        Some("NOAUTH") => {
            "authentication required: name a password, as in redis://:password@host".to_owned()
        }
        Some("READONLY") => format!("{text}; name the primary"),
        Some("OOM") => format!("{text}; raise maxmemory"),
        None if error.kind() == ErrorKind::AuthenticationFailed => {
            "the server refuses this user or password: authentication failed".to_owned()
        }
        _ => text,
    }
}

fn kind(code: &str) -> StoreErrorKind {
    use StoreErrorKind::{Corrupt, Refused, Unavailable};
    match code {
        "WRONGPASS" | "NOAUTH" | "NOPERM" | "DENIED" | "MOVED" | "ASK" | "CROSSSLOT" => Refused,
        "READONLY" | "LOADING" | "BUSY" | "MASTERDOWN" | "TRYAGAIN" | "CLUSTERDOWN" | "OOM"
        | "MISCONF" | "NOREPLICAS" | "UNKILLABLE" | "NOTREADY" => Unavailable,
        // A key of another type, or a script with an unexpected value.
        _ => Corrupt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_become_kinds() {
        use StoreErrorKind::{Corrupt, Refused, Unavailable};
        for (code, wanted) in [
            ("WRONGPASS", Refused),
            ("NOPERM", Refused),
            ("MOVED", Refused),
            ("READONLY", Unavailable),
            ("LOADING", Unavailable),
            ("OOM", Unavailable),
            ("MISCONF", Unavailable),
            ("WRONGTYPE", Corrupt),
            ("ERR", Corrupt),
        ] {
            assert_eq!(kind(code), wanted, "{code}");
        }
    }
}
