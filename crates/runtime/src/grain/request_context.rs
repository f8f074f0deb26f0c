//! The request context of the turn that runs now.

use std::fmt::Display;
use std::str::FromStr;

use emmer_wire::ContextError;

use crate::access::Identity;
use crate::hosting::TurnContext;
use crate::turn::ContextKey;

impl<T> ContextKey<T> {
    /// The value that came with the call of the current turn. None outside a turn, without such a
    /// value, and if it is not a `T`.
    pub fn get(&self) -> Option<T>
    where
        T: FromStr,
    {
        self.read(&TurnContext::request_context()?)
    }

    /// Sends a value along with the calls that the current turn makes from now on, and what follows
    /// from them. The turn's own caller does not see it.
    ///
    /// # Errors
    /// There is no room for it, or this is no turn.
    pub fn set(&self, value: impl Into<T>) -> Result<(), SetContextError>
    where
        T: Display,
    {
        let context =
            TurnContext::request_context().ok_or_else(|| SetContextError::NoTurn(self.name()))?;
        TurnContext::set_request_context(self.put(&context, value)?);
        Ok(())
    }

    /// Stops sending the key along. Outside a turn there is nothing to remove.
    pub fn clear(&self) {
        if let Some(context) = TurnContext::request_context().filter(|_| !self.is_reserved()) {
            TurnContext::set_request_context(context.without(self.name()));
        }
    }
}

impl Identity {
    /// The identity of the client that began the chain of calls of the current turn. None if no
    /// client began it, and outside a turn.
    pub fn of_caller() -> Option<Self> {
        Self::read(&TurnContext::request_context()?)
    }
}

/// A value of the request context was not set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetContextError {
    /// There is no room for it.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// Only a turn has a context; elsewhere a call is given one by `.with(..)`.
    #[error("{0:?} cannot be set outside a turn: write `.with(..)` on a call")]
    NoTurn(&'static str),
}
