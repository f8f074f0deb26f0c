//! What an answer from another process means.

use emmer_core::SiloAddress;
use emmer_wire::{FailureCode, ResponseStatus, codec, decode_failure};

use crate::grain::{CallError, Failure, Method};
use crate::net::{Answer, Lost};

/// The output of a call that `peer` answered, and where the grain really is if the peer had to pass it on.
pub(crate) fn read_answer<M: Method>(
    peer: SiloAddress,
    answer: Result<Answer, Lost>,
) -> Result<(M::Output, Option<SiloAddress>), Failure> {
    read_answer_from::<M>(Some(peer), answer)
}

/// As [`read_answer`], from a peer that may be a gateway.
pub(crate) fn read_answer_from<M: Method>(
    peer: Option<SiloAddress>,
    answer: Result<Answer, Lost>,
) -> Result<(M::Output, Option<SiloAddress>), Failure> {
    match answer {
        Ok(Answer::Response(header, body)) => match header.status {
            ResponseStatus::Ok => {
                let output = codec::decode(&body)
                    .map_err(|e| CallError::Codec { maybe_executed: true, detail: e.to_string() })?;
                Ok((output, header.location))
            }
            ResponseStatus::Failed(code) => Err(read_failure(header.location.or(peer), code, &body)),
        },
        Ok(Answer::TimedOut) => Err(CallError::Timeout {
            maybe_executed: true,
            detail: peer.map_or_else(|| "waiting for the gateway".to_owned(), |p| format!("waiting for {p}")),
        }),
        Err(lost) => {
            Err(CallError::Unreachable { silo: peer, maybe_executed: true, detail: lost.to_string() })
        }
    }
}

fn read_failure(silo: Option<SiloAddress>, code: FailureCode, body: &[u8]) -> Failure {
    let (maybe_executed, detail) = match decode_failure(body) {
        Ok(failure) => (failure.maybe_executed, failure.detail),
        Err(e) => (true, format!("an unreadable failure: {e}")),
    };
    match code {
        FailureCode::Timeout => CallError::Timeout { maybe_executed, detail },
        FailureCode::Overloaded => CallError::Overloaded(detail),
        FailureCode::Unreachable | FailureCode::Moved => {
            CallError::Unreachable { silo, maybe_executed, detail }
        }
        FailureCode::Deadlock => CallError::Deadlock(detail),
        FailureCode::Codec => CallError::Codec { maybe_executed, detail },
        FailureCode::Cancelled => CallError::Cancelled { maybe_executed },
        FailureCode::ShuttingDown => CallError::ShuttingDown,
        FailureCode::Panicked => CallError::Panicked(detail),
        FailureCode::Rejected
        | FailureCode::NoSuchGrainType
        | FailureCode::NoSuchMethod
        | FailureCode::ActivationFailed => CallError::Rejected(detail),
    }
}

/// How a failure travels: the code, whether the call may have been executed, the words.
pub(crate) fn failure_parts(failure: &Failure) -> (FailureCode, bool, String) {
    let code = match failure {
        CallError::App(never) => match *never {},
        CallError::Timeout { .. } => FailureCode::Timeout,
        CallError::Rejected(_) => FailureCode::Rejected,
        CallError::Overloaded(_) => FailureCode::Overloaded,
        CallError::Unreachable { .. } => FailureCode::Unreachable,
        CallError::Deadlock(_) => FailureCode::Deadlock,
        CallError::Codec { .. } => FailureCode::Codec,
        CallError::Cancelled { .. } => FailureCode::Cancelled,
        CallError::Panicked(_) => FailureCode::Panicked,
        CallError::ShuttingDown => FailureCode::ShuttingDown,
    };
    let detail = match failure {
        CallError::Rejected(d)
        | CallError::Overloaded(d)
        | CallError::Deadlock(d)
        | CallError::Panicked(d) => d.clone(),
        CallError::Timeout { detail, .. }
        | CallError::Unreachable { detail, .. }
        | CallError::Codec { detail, .. } => detail.clone(),
        CallError::App(_) | CallError::Cancelled { .. } | CallError::ShuttingDown => failure.to_string(),
    };
    (code, failure.maybe_executed(), detail)
}
