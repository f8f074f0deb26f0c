//! The meaning of the service's errors: if anything happened, and if the same is to be sent again.

use aws_sdk_dynamodb::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::transact_get_items::TransactGetItemsError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::CancellationReason;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use emmer_store::StoreErrorKind;
use emmer_store_keyvalue::{Failure, Fault};

use crate::connector::Carried;

/// A condition did not hold, as reasons name it.
const CONDITION: &str = "ConditionalCheckFailed";
/// Refusals that did nothing and pass by themselves: too much to do, another transaction on the
/// same rows.
const BUSY: &[&str] = &[
    "LimitExceededException",
    "ProvisionedThroughputExceeded",
    "ProvisionedThroughputExceededException",
    "ReplicatedWriteConflictException",
    "RequestLimitExceeded",
    "ThrottlingError",
    "ThrottlingException",
    "TransactionConflict",
    "TransactionConflictException",
];
/// Code of a refusal because the same request is on its way.
const IN_PROGRESS: &str = "TransactionInProgressException";

/// End of an attempt that was no success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// Nothing happened; the same may be sent again after a pause.
    Busy(String),
    /// An earlier attempt is on its way.
    InProgress,
    /// Nothing happened: these conditions, by position, did not hold. The first is the first of
    /// all.
    Conditions(Vec<usize>),
    /// Anything else.
    Failed(Failure),
}

/// Errors of the service's operations, as far as conditions go.
pub(crate) trait Refusal:
    ProvideErrorMetadata + std::error::Error + Send + Sync + 'static
{
    /// For each item of the request why it was refused.
    fn reasons(&self) -> Vec<CancellationReason> {
        Vec::new()
    }
}

/// The refusal of a request for one item.
fn alone(refused: bool) -> Vec<CancellationReason> {
    let reason = CancellationReason::builder().code(CONDITION).build();
    if refused { vec![reason] } else { Vec::new() }
}

impl Refusal for TransactWriteItemsError {
    fn reasons(&self) -> Vec<CancellationReason> {
        match self {
            Self::TransactionCanceledException(cancelled) => {
                cancelled.cancellation_reasons().to_vec()
            }
            _ => Vec::new(),
        }
    }
}

impl Refusal for TransactGetItemsError {
    fn reasons(&self) -> Vec<CancellationReason> {
        match self {
            Self::TransactionCanceledException(cancelled) => {
                cancelled.cancellation_reasons().to_vec()
            }
            _ => Vec::new(),
        }
    }
}

impl Refusal for UpdateItemError {
    fn reasons(&self) -> Vec<CancellationReason> {
        alone(self.is_conditional_check_failed_exception())
    }
}

impl Refusal for PutItemError {
    fn reasons(&self) -> Vec<CancellationReason> {
        alone(self.is_conditional_check_failed_exception())
    }
}

impl Refusal for DeleteItemError {
    fn reasons(&self) -> Vec<CancellationReason> {
        alone(self.is_conditional_check_failed_exception())
    }
}

impl Refusal for aws_sdk_dynamodb::operation::create_table::CreateTableError {}
impl Refusal for aws_sdk_dynamodb::operation::describe_table::DescribeTableError {}
impl Refusal for aws_sdk_dynamodb::operation::get_item::GetItemError {}
impl Refusal for aws_sdk_dynamodb::operation::query::QueryError {}
impl Refusal for aws_sdk_dynamodb::operation::scan::ScanError {}

/// Meaning of an error of the SDK.
pub(crate) fn understood<E: Refusal>(error: SdkError<E, HttpResponse>) -> Attempt {
    let unavailable = |words: String| Attempt::Failed(Failure::Broken(Fault::unavailable(words)));
    match error {
        SdkError::ServiceError(context) => {
            let status = context.raw().status().as_u16();
            let error = context.err();
            let (code, message) =
                (error.code().unwrap_or_default(), error.message().unwrap_or_default());
            match error.reasons() {
                reasons if reasons.is_empty() => said(status, code, message),
                reasons => cancelled(&reasons),
            }
        }
        SdkError::DispatchFailure(context) => {
            let source = context.as_connector_error().and_then(std::error::Error::source);
            match source.and_then(|source| source.downcast_ref::<Carried>()) {
                Some(Carried(failure)) => Attempt::Failed(failure.clone()),
                None => unavailable(format!(
                    "{}",
                    DisplayErrorContext(&SdkError::<E>::DispatchFailure(context))
                )),
            }
        }
        // It was not sent.
        SdkError::ConstructionFailure(context) => {
            let words =
                format!("{}", DisplayErrorContext(&SdkError::<E>::ConstructionFailure(context)));
            Attempt::Failed(Failure::Nothing(Fault::new(StoreErrorKind::Refused, words)))
        }
        SdkError::ResponseError(_) => unavailable("the server answered something else".to_owned()),
        _ => unavailable("the request failed".to_owned()),
    }
}

/// Why a transaction was cancelled, by the first reason.
fn cancelled(reasons: &[CancellationReason]) -> Attempt {
    let is_reason = |reason: &&CancellationReason| !matches!(reason.code(), None | Some("None"));
    let Some(first) = reasons.iter().find(is_reason) else {
        return Attempt::Busy("a transaction was cancelled for no reason".to_owned());
    };
    let (code, message) = (first.code().unwrap_or_default(), first.message().unwrap_or_default());
    if code != CONDITION {
        return said(400, code, message);
    }
    let failed = reasons.iter().enumerate().filter(|(_, reason)| reason.code() == Some(CONDITION));
    Attempt::Conditions(failed.map(|(at, _)| at).collect())
}

/// Meaning of an answer with this status and code.
fn said(status: u16, code: &str, message: &str) -> Attempt {
    use StoreErrorKind::{Invalid, NotFound, Refused};
    let message: String = message.chars().take(300).collect();
    let words =
        if code.is_empty() { format!("HTTP {status}") } else { format!("{code}: {message}") };
    if code == IN_PROGRESS {
        return Attempt::InProgress;
    }
    if BUSY.contains(&code) || status == 429 {
        return Attempt::Busy(words);
    }
    let kind = match (status, code) {
        (400..=499, "ResourceNotFoundException") => NotFound,
        (413, _) | (400..=499, "ValidationException" | "ValidationError") => Invalid,
        (400..=499, _) => Refused,
        // It does not know itself.
        _ => return Attempt::Failed(Failure::Broken(Fault::unavailable(words))),
    };
    Attempt::Failed(Failure::Nothing(Fault::new(kind, words)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reasons(codes: &[&str]) -> Attempt {
        let reason = |code: &&str| CancellationReason::builder().code(*code).message("So.").build();
        cancelled(&codes.iter().map(reason).collect::<Vec<_>>())
    }

    #[test]
    fn the_first_reason_decides() {
        assert_eq!(
            reasons(&["None", CONDITION, "None", CONDITION]),
            Attempt::Conditions(vec![1, 3])
        );
        assert_eq!(reasons(&[CONDITION, "TransactionConflict"]), Attempt::Conditions(vec![0]));
        // Its condition was not checked: its failure would come first.
        let busy = |code: &str| Attempt::Busy(format!("{code}: So."));
        assert_eq!(reasons(&["TransactionConflict", CONDITION]), busy("TransactionConflict"));
        for code in ["ThrottlingError", "ProvisionedThroughputExceeded"] {
            assert_eq!(reasons(&["None", code]), busy(code));
        }
        assert!(matches!(reasons(&["None"]), Attempt::Busy(_)));
        let Attempt::Failed(Failure::Nothing(fault)) = reasons(&["ValidationError"]) else {
            panic!("something may have happened")
        };
        assert_eq!(fault.kind, StoreErrorKind::Invalid);
    }

    #[test]
    fn only_a_server_that_does_not_know_leaves_the_outcome_open() {
        use StoreErrorKind::{Invalid, NotFound, Refused, Unavailable};
        for (status, code, kind, broken) in [
            (400, "ResourceNotFoundException", NotFound, false),
            (400, "ValidationException", Invalid, false),
            (413, "", Invalid, false),
            (400, "AccessDeniedException", Refused, false),
            (400, "UnrecognizedClientException", Refused, false),
            (403, "", Refused, false),
            (500, "InternalServerError", Unavailable, true),
            (503, "", Unavailable, true),
        ] {
            let (fault, found) = match said(status, code, "So.") {
                Attempt::Failed(Failure::Broken(fault)) => (fault, true),
                Attempt::Failed(Failure::Nothing(fault)) => (fault, false),
                other => panic!("{other:?}"),
            };
            assert_eq!((fault.kind, found), (kind, broken), "{status} {code}");
        }
        assert_eq!(said(400, IN_PROGRESS, ""), Attempt::InProgress);
        assert!(matches!(said(400, "ThrottlingException", ""), Attempt::Busy(_)));
    }
}
