//! A failure on the way, before the method's own error type is known.

use std::convert::Infallible;
use std::fmt;

use emmer_core::SiloAddress;

use super::call_target::{CallTarget, Names, Rejection};
use super::error::CallError;

/// A failure on the way, before the method's own error type is known. Where it arises the call may
/// be unknown: the side of the caller adds that ([`Failure::of`]).
pub(crate) type Failure = CallError<Infallible>;

const CALL: CallTarget = CallTarget::UNKNOWN;

impl Failure {
    pub(crate) fn timeout(maybe_executed: bool, detail: impl Into<String>) -> Self {
        Self::Timeout { call: CALL, maybe_executed, detail: detail.into() }
    }

    pub(crate) const fn rejected(why: Rejection) -> Self {
        Self::Rejected { call: CALL, why }
    }

    pub(crate) fn refused(why: impl fmt::Display) -> Self {
        Self::rejected(Rejection::Refused(why.to_string()))
    }

    pub(crate) fn overloaded(detail: impl Into<String>) -> Self {
        Self::Overloaded { call: CALL, detail: detail.into() }
    }

    pub(crate) const fn unreachable(
        silo: Option<SiloAddress>,
        maybe_executed: bool,
        detail: String,
    ) -> Self {
        Self::Unreachable { call: CALL, silo, maybe_executed, detail }
    }

    pub(crate) const fn deadlock(circle: String) -> Self {
        Self::Deadlock { call: CALL, circle }
    }

    pub(crate) fn codec(maybe_executed: bool, detail: impl Into<String>) -> Self {
        Self::Codec { call: CALL, maybe_executed, detail: detail.into() }
    }

    /// Its caller has cancelled it.
    pub(crate) fn cancelled(maybe_executed: bool) -> Self {
        Self::cancelled_by(maybe_executed, "by its caller".to_owned())
    }

    pub(crate) const fn cancelled_by(maybe_executed: bool, detail: String) -> Self {
        Self::Cancelled { call: CALL, maybe_executed, detail }
    }

    pub(crate) const fn panicked(message: String) -> Self {
        Self::Panicked { call: CALL, message }
    }

    /// The failure of the same call after a panic in the `Drop` of one of its arguments.
    #[cold]
    pub(crate) fn and_panicked(mut self, message: String) -> Self {
        let call = self.call_mut().map_or(CALL, |call| std::mem::replace(call, CALL));
        Self::Panicked { call, message }
    }

    pub(crate) const fn shutting_down() -> Self {
        Self::ShuttingDown { call: CALL }
    }

    pub(crate) fn internal(detail: impl Into<String>) -> Self {
        Self::Internal { call: CALL, detail: detail.into() }
    }

    /// The failure of this call. A failure that names another call stays that call's, and this side
    /// passes it on.
    #[cold]
    pub(crate) fn of(mut self, target: &dyn Names, method: &'static str) -> Self {
        if let Some(call) = self.call_mut().filter(|call| !call.is_known()) {
            *call = CallTarget::of(target, method);
        }
        self
    }

    /// The failure as the caller of a method with error type `E` sees it.
    pub(crate) fn into_call_error<E>(self) -> CallError<E> {
        debug_assert!(self.call().is_some_and(CallTarget::is_known), "{self} names no call");
        self.map_app(|never| match never {})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of a failure may be a grain's, a filter's or a stranger's.
    #[test]
    fn no_failure_says_anything_to_a_terminal() {
        let words = || "\u{1b}]0;mine\u{7}\r\n\u{9b}2J".to_owned();
        let rejections: [fn(String) -> Rejection; 4] = [
            Rejection::NoSuchGrainType,
            Rejection::NoSuchMethod,
            Rejection::ActivationFailed,
            Rejection::Refused,
        ];
        let mut failures = vec![
            Failure::timeout(false, words()),
            Failure::overloaded(words()),
            Failure::unreachable(None, false, words()),
            Failure::deadlock(words()),
            Failure::codec(false, words()),
            Failure::panicked(words()),
            Failure::internal(words()),
        ];
        failures.extend(rejections.map(|why| Failure::rejected(why(words()))));
        for failure in failures {
            let shown = failure.to_string();
            assert!(!shown.contains(char::is_control) && shown.contains("mine"), "{shown:?}");
        }
    }
}
