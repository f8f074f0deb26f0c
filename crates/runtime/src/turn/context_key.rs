//! The keys of what an application sends along with its calls.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::str::FromStr;

use emmer_wire::{ContextError, RESERVED_PREFIX, RequestContext};

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

    pub(crate) fn is_reserved(&self) -> bool {
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
}

impl<T> fmt::Debug for ContextKey<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ContextKey").field(&self.name).finish()
    }
}

/// Request context that a call adds to that of its turn.
pub(crate) type Extra = Result<RequestContext, ContextError>;
