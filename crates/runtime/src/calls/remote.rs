//! What an answer from another process means.

use emmer_core::SiloAddress;
use emmer_wire::{FailureCode, ResponseStatus, codec, decode_failure};

use crate::grain::{CallError, Failure, Method, Node};
use crate::hosting::contain;
use crate::net::Answer;

/// The output of a call of `node` that `peer` (a gateway, when it is none) answered, and where the
/// grain really is if the peer had to pass it on.
#[inline]
pub(crate) fn read_answer<M: Method>(
    node: &Node,
    peer: Option<SiloAddress>,
    answer: Answer,
    body: &[u8],
) -> Result<(M::Output, Option<SiloAddress>), Failure> {
    match answer {
        Answer::Response { status: ResponseStatus::Ok, location } => {
            let output = contain(|| node.binds(|| codec::decode(body)))
                .and_then(|output| output.map_err(|e| e.to_string()));
            match output {
                Ok(output) => Ok((output, location.map(|at| *at))),
                Err(detail) => Err(CallError::Codec { maybe_executed: true, detail }),
            }
        }
        Answer::Response { status: ResponseStatus::Failed(code), location } => {
            Err(read_failure(location.map(|at| *at).or(peer), code, body))
        }
        Answer::TimedOut => Err(timed_out(peer)),
    }
}

/// The failure in an answer with this status.
pub(crate) fn read_failed(
    silo: Option<SiloAddress>,
    status: ResponseStatus,
    body: &[u8],
) -> Failure {
    match status {
        ResponseStatus::Failed(code) => read_failure(silo, code, body),
        ResponseStatus::Ok => {
            debug_assert!(false, "an answer that is no failure");
            CallError::Internal("an answer that is no failure".to_owned())
        }
    }
}

/// No answer came in time.
#[cold]
pub(crate) fn timed_out(peer: Option<SiloAddress>) -> Failure {
    let detail =
        peer.map_or_else(|| "waiting for the gateway".to_owned(), |p| format!("waiting for {p}"));
    CallError::Timeout { maybe_executed: true, detail }
}

/// A turn that is over left no output: a fault of this crate.
#[cold]
pub(crate) fn no_output<M: Method>() -> Failure {
    debug_assert!(false, "{} ended without its output", M::NAME);
    CallError::Internal(format!("{} ended without its output", M::NAME))
}

#[cold]
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
        FailureCode::Internal => CallError::Internal(detail),
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
        CallError::Internal(_) => FailureCode::Internal,
    };
    let detail = match failure {
        CallError::Rejected(d)
        | CallError::Overloaded(d)
        | CallError::Deadlock(d)
        | CallError::Panicked(d)
        | CallError::Internal(d) => d.clone(),
        CallError::Timeout { detail, .. }
        | CallError::Unreachable { detail, .. }
        | CallError::Codec { detail, .. } => detail.clone(),
        CallError::App(_) | CallError::Cancelled { .. } | CallError::ShuttingDown => {
            failure.to_string()
        }
    };
    (code, failure.maybe_executed(), detail)
}
