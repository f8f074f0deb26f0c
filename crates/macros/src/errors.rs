//! Several mistakes in one go: a user sees them all at once.

use std::fmt::Display;

use proc_macro2::Span;
use quote::ToTokens;

/// The mistakes found so far.
#[derive(Default)]
pub(crate) struct Errors(Option<syn::Error>);

impl Errors {
    /// A mistake at these tokens.
    pub(crate) fn at(&mut self, tokens: impl ToTokens, message: impl Display) {
        self.add(syn::Error::new_spanned(tokens, message));
    }

    /// A mistake at this place.
    pub(crate) fn at_span(&mut self, span: Span, message: impl Display) {
        self.add(syn::Error::new(span, message));
    }

    /// A mistake found elsewhere.
    pub(crate) fn add(&mut self, error: syn::Error) {
        match &mut self.0 {
            Some(errors) => errors.combine(error),
            None => self.0 = Some(error),
        }
    }

    /// The value, or the mistake instead of it.
    pub(crate) fn take<T>(&mut self, result: syn::Result<T>) -> Option<T> {
        result.map_err(|error| self.add(error)).ok()
    }

    /// Returns true if nothing was wrong so far.
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Nothing when nothing was wrong.
    pub(crate) fn finish(self) -> syn::Result<()> {
        self.0.map_or(Ok(()), Err)
    }
}
