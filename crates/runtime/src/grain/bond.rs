//! The common part of fields that are stored: failures and counts.

use std::fmt;

use emmer_store::state::{ClearOutcome, WriteOutcome};
use emmer_store::{Etag, StoreError};

use crate::grain::Ctx;
use crate::grain::stored::Unreadable;
use crate::metrics::{StateEnded, StateOperation};
use crate::turn::StateError;

/// A state or journal, and the grain that has it.
#[derive(Clone, Copy)]
pub(super) struct Bond<'a> {
    pub(super) name: &'static str,
    pub(super) ctx: &'a Ctx,
}

impl Bond<'_> {
    pub(super) fn store_error(self, error: &StoreError, maybe_written: bool) -> StateError {
        let (name, detail) = (self.name.to_owned(), error.to_string());
        StateError::Store { name, detail, maybe_written }
    }

    pub(super) fn codec_error(self, detail: impl fmt::Display) -> StateError {
        StateError::Codec { name: self.name.to_owned(), detail: detail.to_string() }
    }

    pub(super) fn unreadable(self, why: Unreadable) -> StateError {
        match why {
            Unreadable::Words(detail) => self.codec_error(detail),
            Unreadable::Newer { stored, known } => {
                StateError::NewerVersion { name: self.name.to_owned(), stored, known }
            }
        }
    }

    pub(super) fn too_large(self, bytes: usize, max: usize) -> StateError {
        StateError::TooLarge { name: self.name.to_owned(), grain: self.ctx.title(), bytes, max }
    }

    /// Nothing was written: the value in memory differs from the stored one.
    pub(super) fn unwritten(self, error: StateError) -> StateError {
        self.ctx.break_activation(error.to_string());
        error
    }

    /// Failure of a write after another writer: the memory of this activation is out of date.
    fn stale(self) -> StateError {
        StateError::EtagMismatch { name: self.name.to_owned() }
    }

    /// Counts what a request came to.
    pub(super) fn count(self, operation: StateOperation, ended: StateEnded) {
        if let Some(activation) = self.ctx.activation() {
            activation.count_state(operation, ended);
        }
    }

    /// Counts a read.
    ///
    /// # Errors
    /// The store's.
    pub(super) fn read<T>(self, found: Result<T, StoreError>) -> Result<T, StateError> {
        self.count(
            StateOperation::Read,
            if found.is_ok() { StateEnded::Ok } else { StateEnded::Error },
        );
        found.map_err(|error| self.store_error(&error, false))
    }

    /// Counts a write, and returns the new etag.
    ///
    /// # Errors
    /// The memory differs from the store, or may differ: the activation ends.
    pub(super) fn written(
        self,
        operation: StateOperation,
        outcome: Result<WriteOutcome, StoreError>,
    ) -> Result<Etag, StateError> {
        let (ended, error) = match outcome {
            Ok(WriteOutcome::Written(etag)) => {
                self.count(operation, StateEnded::Ok);
                return Ok(etag);
            }
            Ok(WriteOutcome::EtagMismatch) => (StateEnded::Conflict, self.stale()),
            Ok(WriteOutcome::Unknown(why)) => (StateEnded::Unknown, self.store_error(&why, true)),
            Err(why) => (StateEnded::Error, self.store_error(&why, false)),
        };
        self.count(operation, ended);
        Err(self.unwritten(error))
    }

    /// Counts a clear.
    ///
    /// # Errors
    /// As [`written`](Self::written).
    pub(super) fn cleared(
        self,
        outcome: Result<ClearOutcome, StoreError>,
    ) -> Result<(), StateError> {
        let (ended, error) = match outcome {
            Ok(ClearOutcome::Cleared) => {
                self.count(StateOperation::Clear, StateEnded::Ok);
                return Ok(());
            }
            Ok(ClearOutcome::EtagMismatch) => (StateEnded::Conflict, self.stale()),
            Ok(ClearOutcome::Unknown(why)) => (StateEnded::Unknown, self.store_error(&why, true)),
            Err(why) => (StateEnded::Error, self.store_error(&why, false)),
        };
        self.count(StateOperation::Clear, ended);
        Err(self.unwritten(error))
    }

    /// A write begins.
    pub(super) const fn unanswered(&self) -> Unanswered<'_> {
        let detail = "the write was given up before the store answered";
        Unanswered { of: *self, detail, maybe_written: true }
    }

    /// Events are about to change the state.
    pub(super) const fn applying(&self) -> Unanswered<'_> {
        let detail = "`apply` panicked half way: the state is not what its events add up to";
        Unanswered { of: *self, detail, maybe_written: false }
    }
}

/// A request under way. If it is dropped before its end, memory and store may differ, and the
/// activation ends.
pub(super) struct Unanswered<'a> {
    of: Bond<'a>,
    detail: &'static str,
    maybe_written: bool,
}

impl Unanswered<'_> {
    /// It has come to its end.
    pub(super) fn answered(self) {
        std::mem::forget(self);
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        let (name, detail) = (self.of.name.to_owned(), self.detail.to_owned());
        self.of.unwritten(StateError::Store { name, detail, maybe_written: self.maybe_written });
    }
}
