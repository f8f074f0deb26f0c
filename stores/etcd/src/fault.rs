//! Refusals of the gateway as the contract's errors.

use emmer_store::StoreErrorKind;
use emmer_store_keyvalue::http::Answer;
use emmer_store_keyvalue::{Failure, Fault};
use serde::Deserialize;

/// The gateway's words for a refusal.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Refusal {
    message: String,
    error: String,
    code: u32,
}

/// gRPC's codes, as far as they matter here.
mod code {
    pub(super) const INVALID_ARGUMENT: u32 = 3;
    pub(super) const PERMISSION_DENIED: u32 = 7;
    pub(super) const RESOURCE_EXHAUSTED: u32 = 8;
    pub(super) const FAILED_PRECONDITION: u32 = 9;
    pub(super) const OUT_OF_RANGE: u32 = 11;
    pub(super) const UNIMPLEMENTED: u32 = 12;
    pub(super) const UNAUTHENTICATED: u32 = 16;
}

/// Reason of an answer that is not a success.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The token is not valid, or no longer: ask for another and try again. Nothing was done.
    Token(Fault),
    /// The revision asked for is gone. Nothing was done.
    Compacted(Fault),
    /// As it says.
    Otherwise(Failure),
}

impl Refused {
    pub(crate) fn failure(self) -> Failure {
        match self {
            Self::Token(fault) | Self::Compacted(fault) => Failure::Nothing(fault),
            Self::Otherwise(failure) => failure,
        }
    }
}

/// Reads an answer whose status is not 200.
pub(crate) fn refused(answer: &Answer) -> Refused {
    use StoreErrorKind::{Invalid, Refused as Refusing};
    let nothing =
        |kind, detail: String| Refused::Otherwise(Failure::Nothing(Fault::new(kind, detail)));
    if answer.status == 404 {
        let detail = "there is no JSON gateway (/v3): this is not etcd 3.4 or later, or \
                      --enable-grpc-gateway is off";
        return nothing(Refusing, format!("{detail} ({})", answer.words()));
    }
    let Ok(found) = serde_json::from_slice::<Refusal>(&answer.body) else {
        return Refused::Otherwise(Failure::Broken(Fault::unavailable(answer.words())));
    };
    let words = if found.message.is_empty() { found.error } else { found.message };
    let has = |part: &str| words.contains(part);
    match found.code {
        code::UNAUTHENTICATED => Refused::Token(Fault::new(Refusing, words)),
        code::OUT_OF_RANGE if has("compacted") => Refused::Compacted(Fault::unavailable(words)),
        code::RESOURCE_EXHAUSTED | code::INVALID_ARGUMENT | code::OUT_OF_RANGE
            if has("too large") || has("larger than max") =>
        {
            nothing(
                Invalid,
                format!("{words}: the rows of one commit must fit --max-request-bytes (1.5 MiB)"),
            )
        }
        code::INVALID_ARGUMENT if has("too many operations") => nothing(
            Refusing,
            format!("{words}: this store needs --max-txn-ops of 128, the default"),
        ),
        // No space, too many requests: nothing was proposed.
        code::RESOURCE_EXHAUSTED => nothing(StoreErrorKind::Unavailable, words),
        code::INVALID_ARGUMENT
        | code::PERMISSION_DENIED
        | code::FAILED_PRECONDITION
        | code::UNIMPLEMENTED
        | code::OUT_OF_RANGE => nothing(Refusing, words),
        // Timed out, leader changed, stopped: it may have been proposed, and may happen yet.
        _ => Refused::Otherwise(Failure::Broken(Fault::unavailable(words))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: u16, code: u32, message: &str) -> Refused {
        let body = format!(r#"{{"error":"{message}","message":"{message}","code":{code}}}"#);
        refused(&Answer::of(status, body))
    }

    #[test]
    fn what_may_have_happened_is_told_from_what_did_not() {
        use StoreErrorKind::{Invalid, Refused as Refusing, Unavailable};
        for (status, code, message, kind) in [
            (400, 3, "etcdserver: request is too large", Invalid),
            (400, 3, "etcdserver: too many operations in txn request", Refusing),
            (400, 3, "etcdserver: user name is empty", Refusing),
            (400, 3, "etcdserver: authentication failed, invalid user ID or password", Refusing),
            (403, 7, "etcdserver: permission denied", Refusing),
            (429, 8, "etcdserver: mvcc: database space exceeded", Unavailable),
            (404, 0, "", Refusing),
        ] {
            match of(status, code, message) {
                Refused::Otherwise(Failure::Nothing(fault)) => {
                    assert_eq!(fault.kind, kind, "{message}");
                }
                other => panic!("{message}: {other:?}"),
            }
        }
        for message in ["etcdserver: request timed out", "etcdserver: leader changed"] {
            assert!(
                matches!(of(503, 14, message), Refused::Otherwise(Failure::Broken(_))),
                "{message}"
            );
        }
        assert!(matches!(of(401, 16, "etcdserver: invalid auth token"), Refused::Token(_)));
        let compacted = "etcdserver: mvcc: required revision has been compacted";
        assert!(matches!(of(400, 11, compacted), Refused::Compacted(_)));
        let other = Answer::of(502, "<html>");
        assert!(matches!(refused(&other), Refused::Otherwise(Failure::Broken(_))));
    }
}
