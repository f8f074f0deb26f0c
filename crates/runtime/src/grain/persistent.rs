//! State that outlives its activation.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use bytes::BytesMut;
use emmer_store::Etag;
use emmer_store::state::{ClearOutcome, StateSlot, WriteOutcome};
use emmer_wire::codec;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::clock;
use crate::grain::{Ctx, StateError, StateSpec};
use crate::trace;

/// A value that is read from the system store when its grain is activated, and written when the
/// grain says so.
///
/// Every write is conditional on the etag of the last read or write: when somebody else wrote in
/// between, nothing is written and the call gets [`StateError::EtagMismatch`]. After a write that
/// did not succeed, for whatever reason, the value in memory is not the one in the store: the
/// activation ends with the turn, nobody else sees it, and the next call finds a fresh activation
/// with what is stored. A write that is dropped before its end (by a `timeout` around it, by a
/// `select!`) has not succeeded; one that is leaked (by `mem::forget`) goes unnoticed. Fields may
/// be added to `T` with `#[serde(default)]`.
pub struct Persistent<T: 'static> {
    value: T,
    binding: Option<Box<Binding<T>>>,
}

struct Binding<T: 'static> {
    slot: StateSlot,
    spec: &'static StateSpec<T>,
    ctx: Ctx,
    etag: Option<Etag>,
}

impl<T: Default> Default for Persistent<T> {
    /// A state outside any silo: it can be changed but not stored ([`StateError::Unbound`]).
    fn default() -> Self {
        Self { value: T::default(), binding: None }
    }
}

impl<T> Persistent<T>
where
    T: Default + Serialize + DeserializeOwned + Send + 'static,
{
    /// A state of the grain of `ctx`, not read yet. Called by `#[derive(Grain)]`.
    pub fn bound(ctx: &Ctx, spec: &'static StateSpec<T>) -> Self {
        let mut state = Self::default();
        state.bind(ctx, spec);
        state
    }

    /// Makes this a state of the grain of `ctx`, not read yet.
    pub fn bind(&mut self, ctx: &Ctx, spec: &'static StateSpec<T>) {
        let slot = ctx.state_slot(spec.store, spec.name);
        self.binding =
            slot.map(|slot| Box::new(Binding { slot, spec, ctx: ctx.clone(), etag: None }));
    }

    /// Changes the value in memory. Nothing is stored until [`write`](Self::write).
    pub fn modify<R>(&mut self, change: impl FnOnce(&mut T) -> R) -> R {
        change(&mut self.value)
    }

    /// Replaces the value in memory.
    pub fn set(&mut self, value: T) {
        self.value = value;
    }

    /// Whether the store holds this state, as far as this activation knows.
    pub fn exists(&self) -> bool {
        self.binding.as_ref().is_some_and(|b| b.etag.is_some())
    }

    /// Reads the value from the store, replacing what is in memory; the default when the store has
    /// none.
    ///
    /// # Errors
    /// [`StateError`]; then the value in memory is unchanged.
    pub async fn read(&mut self) -> Result<(), StateError> {
        let binding = self.binding.as_mut().ok_or(StateError::Unbound)?;
        let span = trace::part(|| trace::state("read", binding.spec.name));
        let found = trace::within(span, binding.slot.read()).await;
        let found = found.map_err(|e| binding.store_error(&e, false))?;
        match found {
            None => {
                self.value = T::default();
                binding.etag = None;
            }
            Some(stored) => {
                let read = || binding.spec.read(&stored.format, &stored.payload);
                let value = binding.ctx.client().bind(read);
                self.value = value.map_err(|detail| binding.codec_error(detail))?;
                binding.etag = Some(stored.etag);
            }
        }
        Ok(())
    }

    /// Writes the value to the store.
    ///
    /// # Errors
    /// [`StateError`] says what is known about the store; the activation ends with this turn.
    pub async fn write(&mut self) -> Result<(), StateError> {
        let binding = self.binding.as_mut().ok_or(StateError::Unbound)?;
        let mut payload = BytesMut::new();
        codec::encode_into(&mut payload, &self.value)
            .map_err(|e| binding.unwritten(binding.codec_error(e)))?;
        let (bytes, max) = (payload.len(), binding.slot.bytes_max());
        if bytes > max {
            return Err(binding.unwritten(binding.too_large(bytes, max)));
        }
        let payload: Arc<[u8]> = Arc::from(&payload[..]);
        let format = binding.spec.format();
        let unanswered = Unanswered(binding);
        let span = trace::part(|| trace::state("write", binding.spec.name));
        let write = binding.slot.write(binding.etag.as_ref(), &format, payload, clock::wall());
        let outcome = trace::within(span, write).await;
        unanswered.answered();
        match outcome.map_err(|e| binding.unwritten(binding.store_error(&e, false)))? {
            WriteOutcome::Written(etag) => {
                binding.etag = Some(etag);
                Ok(())
            }
            WriteOutcome::EtagMismatch => Err(binding.stale()),
            WriteOutcome::Unknown(error) => Err(binding.unknown(&error)),
        }
    }

    /// Deletes the state from the store and makes the value in memory the default.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn clear(&mut self) -> Result<(), StateError> {
        let binding = self.binding.as_mut().ok_or(StateError::Unbound)?;
        if let Some(etag) = &binding.etag {
            let unanswered = Unanswered(binding);
            let span = trace::part(|| trace::state("clear", binding.spec.name));
            let outcome = trace::within(span, binding.slot.clear(etag)).await;
            unanswered.answered();
            match outcome.map_err(|e| binding.unwritten(binding.store_error(&e, false)))? {
                ClearOutcome::Cleared => binding.etag = None,
                ClearOutcome::EtagMismatch => return Err(binding.stale()),
                ClearOutcome::Unknown(error) => return Err(binding.unknown(&error)),
            }
        }
        self.value = T::default();
        Ok(())
    }
}

impl<T> Binding<T> {
    fn store_error(&self, error: &emmer_store::StoreError, maybe_written: bool) -> StateError {
        StateError::Store {
            name: self.spec.name.to_owned(),
            detail: error.to_string(),
            maybe_written,
        }
    }

    fn codec_error(&self, detail: impl fmt::Display) -> StateError {
        StateError::Codec { name: self.spec.name.to_owned(), detail: detail.to_string() }
    }

    fn too_large(&self, bytes: usize, max: usize) -> StateError {
        let name = self.spec.name.to_owned();
        StateError::TooLarge { name, grain: self.ctx.title(), bytes, max }
    }

    /// Nothing was written: what is in memory is stored nowhere.
    fn unwritten(&self, error: StateError) -> StateError {
        self.ctx.break_activation(error.to_string());
        error
    }

    /// Somebody else wrote: what this activation remembers is not true any more.
    fn stale(&self) -> StateError {
        self.unwritten(StateError::EtagMismatch { name: self.spec.name.to_owned() })
    }

    /// The etag of what may have been written is not known, so the next write could not be
    /// conditional on it.
    fn unknown(&self, error: &emmer_store::StoreError) -> StateError {
        self.unwritten(self.store_error(error, true))
    }
}

/// A write under way. Dropped with its future, nobody will ever hear whether it happened.
struct Unanswered<'a, T: 'static>(&'a Binding<T>);

impl<T> Unanswered<'_, T> {
    /// The store has answered.
    fn answered(self) {
        std::mem::forget(self);
    }
}

impl<T> Drop for Unanswered<'_, T> {
    fn drop(&mut self) {
        let detail = "the write was given up before the store answered".to_owned();
        self.0.unwritten(StateError::Store {
            name: self.0.spec.name.to_owned(),
            detail,
            maybe_written: true,
        });
    }
}

impl<T> Deref for Persistent<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// Changes the value in memory. Nothing is stored until [`write`](Persistent::write).
impl<T> DerefMut for Persistent<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Persistent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.value, f)
    }
}
