//! The meaning of an answer from another process.

use emmer_core::SiloAddress;
use emmer_net::transport::Answer;
use emmer_wire::{FailureCode, ResponseStatus, decode_failure};

use crate::calls::Node;
use crate::hosting::Slot;
use crate::turn::{CallError, Failure, Rejection, contain};

/// Reads the output of a call of `node` that `peer` answered (None: a gateway). Returns the grain's
/// location if the peer had to pass the call on.
pub(crate) fn read_answer(
    node: &Node,
    peer: Option<SiloAddress>,
    answer: Answer,
    body: &[u8],
    slot: &mut dyn Slot,
) -> Result<Option<SiloAddress>, Failure> {
    match answer {
        Answer::Response { status: ResponseStatus::Ok, location } => {
            let read = contain(|| node.binds(|| slot.decode_output(body)))
                .and_then(|read| read.map_err(|e| e.to_string()));
            match read {
                Ok(()) => Ok(location.map(|at| *at)),
                Err(detail) => Err(Failure::codec(true, detail)),
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
            Failure::internal("an answer that is no failure".to_owned())
        }
    }
}

/// No answer came in time.
#[cold]
pub(crate) fn timed_out(peer: Option<SiloAddress>) -> Failure {
    let sent_to = peer.map_or_else(|| "the gateway".to_owned(), |silo| format!("silo {silo}"));
    let detail = format!("sent to {sent_to}, which has not answered yet");
    Failure::timeout(true, detail)
}

#[cold]
fn read_failure(silo: Option<SiloAddress>, code: FailureCode, body: &[u8]) -> Failure {
    let (maybe_executed, detail) = match decode_failure(body) {
        Ok(failure) => (failure.maybe_executed, failure.detail),
        Err(e) => (true, format!("an unreadable failure: {e}")),
    };
    match code {
        FailureCode::Timeout => Failure::timeout(maybe_executed, detail),
        FailureCode::Overloaded => Failure::overloaded(detail),
        FailureCode::Unreachable | FailureCode::Moved => {
            Failure::unreachable(silo, maybe_executed, detail)
        }
        FailureCode::Deadlock => Failure::deadlock(detail),
        FailureCode::Codec => Failure::codec(maybe_executed, detail),
        FailureCode::Cancelled => Failure::cancelled_by(maybe_executed, detail),
        FailureCode::ShuttingDown => Failure::shutting_down(),
        FailureCode::Panicked => Failure::panicked(detail),
        FailureCode::Internal => Failure::internal(detail),
        FailureCode::Rejected => Failure::refused(detail),
        FailureCode::NoSuchGrainType => Failure::rejected(Rejection::NoSuchGrainType(detail)),
        FailureCode::NoSuchMethod => Failure::rejected(Rejection::NoSuchMethod(detail)),
        FailureCode::ActivationFailed => Failure::rejected(Rejection::ActivationFailed(detail)),
    }
}

/// A failure as it travels: the code, whether the call may have been executed, the words.
pub(crate) fn failure_parts(failure: &Failure) -> (FailureCode, bool, String) {
    let (code, words) = match failure {
        CallError::App(never) => match *never {},
        CallError::Timeout { detail, .. } => (FailureCode::Timeout, detail.as_str()),
        CallError::Rejected { why, .. } => match why {
            Rejection::NoSuchGrainType(why) => (FailureCode::NoSuchGrainType, why.as_str()),
            Rejection::NoSuchMethod(why) => (FailureCode::NoSuchMethod, why.as_str()),
            Rejection::ActivationFailed(why) => (FailureCode::ActivationFailed, why.as_str()),
            Rejection::Refused(why) => (FailureCode::Rejected, why.as_str()),
        },
        CallError::Overloaded { detail, .. } => (FailureCode::Overloaded, detail.as_str()),
        CallError::Unreachable { detail, .. } => (FailureCode::Unreachable, detail.as_str()),
        CallError::Deadlock { circle, .. } => (FailureCode::Deadlock, circle.as_str()),
        CallError::Codec { detail, .. } => (FailureCode::Codec, detail.as_str()),
        CallError::Cancelled { detail, .. } => (FailureCode::Cancelled, detail.as_str()),
        CallError::Panicked { message, .. } => (FailureCode::Panicked, message.as_str()),
        CallError::ShuttingDown { .. } => (FailureCode::ShuttingDown, "shutting down"),
        CallError::Internal { detail, .. } => (FailureCode::Internal, detail.as_str()),
    };
    (code, failure.maybe_executed(), words.to_owned())
}
