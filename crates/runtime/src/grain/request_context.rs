//! The request context: what an application sends along with its calls.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::str::FromStr;

use emmer_wire::{ContextError, RESERVED_PREFIX, RequestContext};

use super::TurnContext;

/// A key of the request context, and the type of its values, which travel as texts.
///
/// ```ignore (needs the facade, whose tests compile it)
/// static TENANT: ContextKey<String> = ContextKey::new("tenant");
///
/// cart.add(item).with(&TENANT, "acme").await?; // a caller, for this call and what follows from it
/// let tenant = TENANT.get();                   // any grain on the way
/// ```
pub struct ContextKey<T> {
    name: &'static str,
    value: PhantomData<fn() -> T>,
}

impl<T> ContextKey<T> {
    /// The key of this name, of 1 to 64 bytes that do not begin with `emmer.`.
    pub const fn new(name: &'static str) -> Self {
        Self { name, value: PhantomData }
    }

    /// The key's name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    fn is_reserved(&self) -> bool {
        self.name.starts_with(RESERVED_PREFIX)
    }

    /// The value in a context.
    pub(crate) fn read(&self, context: &RequestContext) -> Option<T>
    where
        T: FromStr,
    {
        context.get(self.name)?.parse().ok()
    }

    /// A context with a value in it.
    pub(crate) fn put(
        &self,
        context: &RequestContext,
        value: impl Into<T>,
    ) -> Result<RequestContext, ContextError>
    where
        T: Display,
    {
        self.put_text(context, &value.into().to_string())
    }

    /// A context with a value in it that is text already.
    pub(crate) fn put_text(
        &self,
        context: &RequestContext,
        value: &str,
    ) -> Result<RequestContext, ContextError> {
        if self.is_reserved() {
            return Err(ContextError::Reserved(self.name.to_owned()));
        }
        context.with(self.name, value)
    }

    /// The value that came with the call whose turn runs now; none if there is none, if it is no
    /// `T`, and outside a turn.
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
        let context = TurnContext::request_context().ok_or(SetContextError::NoTurn(self.name))?;
        TurnContext::set_request_context(self.put(&context, value)?);
        Ok(())
    }

    /// Sends the key along no more. Outside a turn there is nothing to take away.
    pub fn clear(&self) {
        if let Some(context) = TurnContext::request_context().filter(|_| !self.is_reserved()) {
            TurnContext::set_request_context(context.without(self.name));
        }
    }
}

impl<T> fmt::Debug for ContextKey<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ContextKey").field(&self.name).finish()
    }
}

/// A value of the request context was not set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetContextError {
    /// There is no room for it.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// Only a turn has a context; elsewhere a call is given one by `.with(..)`.
    #[error(
        "there is no turn here whose calls could take {0:?} along: write `.with(..)` on a call"
    )]
    NoTurn(&'static str),
}

/// What a call takes along beside what its turn does.
pub(crate) type Extra = Result<RequestContext, ContextError>;
