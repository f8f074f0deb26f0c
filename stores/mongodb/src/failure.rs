//! Meaning of the driver's errors: did anything happen, and should the same be sent again.

use emmer_store::StoreErrorKind;
use emmer_store_keyvalue::{Failure, Fault};
use mongodb::error::{
    Error, ErrorKind, NO_WRITES_PERFORMED, SYSTEM_OVERLOADED_ERROR, WriteFailure,
};

/// A key, or a collection, that is there already.
const DUPLICATE: [i32; 2] = [11_000, 48];
/// No user of this name, or with another password; a user who may not do this; a server that is no
/// replica set.
const REFUSED: [i32; 6] = [13, 18, 20, 33, 123, 8_000];
/// The document, or the request, would be larger than the server takes.
const TOO_LARGE: [i32; 3] = [10_334, 17_419, 17_420];
/// The server took the request and gave it up for want of time.
const TOO_LATE: [i32; 2] = [50, 262];

/// End of an attempt that was no success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Nothing happened; the same may be sent again after a pause.
    Busy(String),
    /// The thing to be made is there already: nothing happened.
    Duplicate(String),
    /// There is no server that serves this now: nothing happened.
    Away(Fault),
    /// It happened, or not, or is about to.
    Uncertain(Fault),
    /// Nothing happened, and would not the next time.
    Refused(Fault),
}

impl Ended {
    /// The fault, in words.
    pub(crate) fn fault(self) -> Fault {
        match self {
            Self::Busy(words) => {
                Fault::unavailable(format!("the server has too much to do: {words}"))
            }
            Self::Duplicate(words) => Fault::corrupt(words),
            Self::Away(fault) | Self::Uncertain(fault) | Self::Refused(fault) => fault,
        }
    }

    /// The failure of a request whose outcome matters.
    pub(crate) fn failure(self) -> Failure {
        match self {
            Self::Uncertain(fault) => Failure::Broken(fault),
            other => Failure::Nothing(other.fault()),
        }
    }
}

/// Meaning of a code of the server's that came with these words.
fn code(code: i32, said: &str) -> Ended {
    let refused = |kind| Ended::Refused(Fault::new(kind, said));
    match code {
        code if DUPLICATE.contains(&code) => Ended::Duplicate(said.to_owned()),
        code if REFUSED.contains(&code) => refused(StoreErrorKind::Refused),
        code if TOO_LARGE.contains(&code) => refused(StoreErrorKind::Invalid),
        code if TOO_LATE.contains(&code) => Ended::Uncertain(Fault::unavailable(format!(
            "the server does not answer in time: {said}"
        ))),
        // One of them says that it is no longer a primary: the attempt before this one may have
        // been the other kind.
        _ => Ended::Uncertain(Fault::unavailable(said)),
    }
}

/// Why no server was found, in the words of those that were asked.
fn nobody(said: &str) -> Ended {
    let fault = |kind| Fault::new(kind, servers_words(said));
    if said.contains("invalid peer certificate") || said.contains("received corrupt message") {
        return Ended::Refused(fault(StoreErrorKind::Refused));
    }
    Ended::Away(fault(StoreErrorKind::Unavailable))
}

/// The words of servers about themselves, out of the driver's description of all: a set of fields
/// in braces for each.
fn servers_words(description: &str) -> String {
    let of = |server: &str| {
        let (address, rest) = server.split_once(',')?;
        let said = match rest.split_once("Error: ") {
            Some((_, error)) => {
                let error = error.split(", labels:").next().unwrap_or(error);
                let error = error.trim_start_matches("Kind: ");
                error.trim_start_matches("I/O error: ").trim_end_matches([' ', '}']).to_owned()
            }
            None => {
                let kind = rest.split_once("Type: ")?.1;
                format!("is of the type {}", kind.split([',', ' ']).next()?)
            }
        };
        Some(format!("{address}: {said}"))
    };
    let told: Vec<_> = description.split("Address: ").skip(1).filter_map(of).collect();
    if told.is_empty() {
        return description.to_owned();
    }
    let set = description.split_once("Set Name: ").and_then(|(_, rest)| rest.split(',').next());
    let set = set.map_or_else(String::new, |set| format!(" of the replica set {set}"));
    format!("no server{set} takes the request: {}", told.join("; "))
}

/// The error as a sentence: the driver's own form is for programmers.
fn words(error: &Error) -> String {
    let said = match &*error.kind {
        ErrorKind::Command(command) if command.code_name.is_empty() => command.message.clone(),
        ErrorKind::Command(command) => format!("{} ({})", command.message, command.code_name),
        ErrorKind::Write(WriteFailure::WriteError(write)) => write.message.clone(),
        ErrorKind::Write(WriteFailure::WriteConcernError(concern)) => concern.message.clone(),
        ErrorKind::ServerSelection { message, .. } => servers_words(message),
        ErrorKind::InvalidArgument { message, .. } => message.clone(),
        ErrorKind::Io(io) => io.to_string(),
        kind => kind.to_string(),
    };
    said.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Outcome of a request.
pub(crate) fn understood(error: &Error) -> Ended {
    let said = words(error);
    let refused = |kind| Ended::Refused(Fault::new(kind, said.clone()));
    if error.contains_label(SYSTEM_OVERLOADED_ERROR) && error.contains_label(NO_WRITES_PERFORMED) {
        return Ended::Busy(said);
    }
    match &*error.kind {
        ErrorKind::Authentication { .. } => refused(StoreErrorKind::Refused),
        ErrorKind::InvalidArgument { .. }
        | ErrorKind::InvalidTlsConfig { .. }
        | ErrorKind::Bson(_) => refused(StoreErrorKind::Invalid),
        ErrorKind::SessionsNotSupported | ErrorKind::IncompatibleServer { .. } => {
            refused(StoreErrorKind::Refused)
        }
        ErrorKind::ServerSelection { message, .. } => nobody(message),
        ErrorKind::DnsResolve { .. } => Ended::Away(Fault::unavailable(said)),
        // The driver tells the first attempt's error where that may have done something: this one
        // did not.
        ErrorKind::Io(io) if io.kind() == std::io::ErrorKind::ConnectionRefused => {
            Ended::Away(Fault::unavailable(said))
        }
        ErrorKind::Io(io) if io.kind() == std::io::ErrorKind::InvalidData => nobody(&said),
        ErrorKind::ConnectionPoolCleared { .. } => Ended::Away(Fault::unavailable(said)),
        ErrorKind::Command(command) => code(command.code, &said),
        ErrorKind::Write(WriteFailure::WriteError(write)) => code(write.code, &said),
        // A connection that ended, a majority that did not answer in time, and unknown errors.
        _ => Ended::Uncertain(Fault::unavailable(said)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_says_is_told_apart() {
        assert!(matches!(code(11_000, "E11000"), Ended::Duplicate(_)));
        for (number, kind) in [
            (18, StoreErrorKind::Refused),
            (13, StoreErrorKind::Refused),
            (17_419, StoreErrorKind::Invalid),
        ] {
            assert!(
                matches!(code(number, ""), Ended::Refused(fault) if fault.kind == kind),
                "{number}"
            );
        }
        for number in [50, 189, 10_107, 11_600, 64] {
            assert!(matches!(code(number, "").failure(), Failure::Broken(_)), "{number}");
        }
        let stranger = "Server selection timeout: ... invalid peer certificate: UnknownIssuer";
        assert!(
            matches!(nobody(stranger), Ended::Refused(fault) if fault.kind == StoreErrorKind::Refused)
        );
        assert!(matches!(nobody("Server selection timeout: refused"), Ended::Away(_)));
    }

    #[test]
    fn the_words_are_a_sentence() {
        let description = "Server selection timeout: No available servers. Topology: { Type: \
            ReplicaSetNoPrimary, Set Name: rs0, Servers: [ { Address: a:27017, Type: Unknown, \
            Error: Kind: I/O error: Connection refused (os error 111), labels: {}, source: None }, \
            { Address: b:27017, Type: RsSecondary, Average RTT: 1ms } ] }";
        assert_eq!(
            servers_words(description),
            "no server of the replica set rs0 takes the request: a:27017: Connection refused (os \
             error 111); b:27017: is of the type RsSecondary"
        );
        let io = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
        assert_eq!(words(&Error::from(io)), "unexpected end of file");
    }

    #[test]
    fn a_connection_that_was_refused_did_nothing_and_one_that_ended_may_have() {
        let io = |kind: std::io::ErrorKind| understood(&Error::from(std::io::Error::from(kind)));
        assert!(matches!(io(std::io::ErrorKind::ConnectionRefused).failure(), Failure::Nothing(_)));
        for kind in [std::io::ErrorKind::ConnectionReset, std::io::ErrorKind::UnexpectedEof] {
            assert!(matches!(io(kind).failure(), Failure::Broken(_)), "{kind:?}");
        }
    }
}
