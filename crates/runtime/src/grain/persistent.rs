//! State that outlives its activation.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Weak};

use bytes::BytesMut;
use emmer_net::clock;
use emmer_store::Etag;
use emmer_store::state::StateSlot;
use emmer_wire::{CodecError, codec};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::bond::Bond;
use crate::grain::{Carried, Ctx, StateSpec};
use crate::hosting::Activation;
use crate::metrics::StateOperation;
use crate::trace;
use crate::turn::StateError;

/// A value that is read from the system store when its grain is activated, and written when the
/// grain says so.
///
/// Every write is conditional on the etag of the last read or write. If another process wrote in
/// between, nothing is written and the call gets [`StateError::EtagMismatch`]. After a write that
/// failed, for any reason, memory and store may differ: the activation ends with the turn, and the
/// next call finds a fresh activation with the stored value. A write that is dropped before its end
/// (by a `timeout` or a `select!`) has failed; a leaked one (`mem::forget`) goes unnoticed. Fields
/// may be added to `T` with `#[serde(default)]`.
///
/// ```
/// use emmer::prelude::*;
///
/// #[grain_interface(key = String)]
/// pub trait Counter {
///     async fn add(&mut self, n: u64) -> Result<u64, StateError>;
/// }
///
/// #[derive(Grain)]
/// struct CounterGrain {
///     #[state("total")]
///     total: Persistent<u64>,
/// }
///
/// #[grain]
/// impl Counter for CounterGrain {
///     async fn add(&mut self, n: u64) -> Result<u64, StateError> {
///         *self.total += n;
///         self.total.write().await?;
///         Ok(*self.total)
///     }
/// }
/// # fn main() {}
/// ```
pub struct Persistent<T: 'static> {
    value: T,
    binding: Option<Binding<T>>,
}

/// Link of a state to its grain and its store. Each state of each grain in memory has one, so it
/// keeps only values that no other place has.
struct Binding<T: 'static> {
    spec: &'static StateSpec<T>,
    activation: Weak<Activation>,
    etag: KeptEtag,
}

/// An etag in little memory.
#[derive(Debug, Default, PartialEq, Eq)]
enum KeptEtag {
    /// The store does not hold the state.
    #[default]
    None,
    /// The one spelling of this number.
    Number(i64),
    Text(Box<Etag>),
}

impl KeptEtag {
    fn of(etag: Option<Etag>) -> Self {
        let Some(etag) = etag else { return Self::None };
        match etag.parse::<i64>() {
            Ok(number) if number.to_string() == *etag => Self::Number(number),
            _ => Self::Text(Box::new(etag)),
        }
    }

    fn get(&self) -> Option<Etag> {
        match self {
            Self::None => None,
            Self::Number(number) => Some(number.to_string().into()),
            Self::Text(etag) => Some((**etag).clone()),
        }
    }
}

/// A binding while its store is asked.
struct Open {
    ctx: Ctx,
    slot: StateSlot,
    name: &'static str,
}

impl Open {
    const fn bond(&self) -> Bond<'_> {
        Bond { name: self.name, ctx: &self.ctx }
    }
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
        let is_there = ctx.state_kind(spec.store, spec.name).is_some();
        self.binding =
            is_there.then(|| Binding { spec, activation: ctx.weak(), etag: KeptEtag::None });
    }

    /// Changes the value in memory. Nothing is stored until [`write`](Self::write).
    pub fn modify<R>(&mut self, change: impl FnOnce(&mut T) -> R) -> R {
        change(&mut self.value)
    }

    /// Replaces the value in memory.
    pub fn set(&mut self, value: T) {
        self.value = value;
    }

    /// Returns true if the store holds this state, as far as this activation knows.
    pub fn exists(&self) -> bool {
        self.binding.as_ref().is_some_and(|b| b.etag != KeptEtag::None)
    }

    /// Reads the value from the store, replacing the value in memory; the default when the store
    /// has none.
    ///
    /// # Errors
    /// [`StateError`]; then the value in memory is unchanged.
    pub async fn read(&mut self) -> Result<(), StateError> {
        let binding = self.binding.as_mut().ok_or(StateError::Unbound)?;
        let open = binding.open()?;
        let span = trace::part(|| trace::state("read", binding.spec.name));
        let found = trace::within(span, open.slot.read()).await;
        match open.bond().read(found)? {
            None => {
                self.value = T::default();
                binding.etag = KeptEtag::None;
            }
            Some(stored) => {
                let read = || binding.spec.read(&stored.format, &stored.payload);
                let value = open.ctx.grains().bind(read);
                self.value = value.map_err(|why| open.bond().unreadable(why))?;
                binding.etag = KeptEtag::of(Some(stored.etag));
            }
        }
        Ok(())
    }

    /// Writes the value to the store.
    ///
    /// # Errors
    /// [`StateError`] describes the knowledge about the store. The activation ends with this turn.
    pub async fn write(&mut self) -> Result<(), StateError> {
        let binding = self.binding.as_mut().ok_or(StateError::Unbound)?;
        let open = binding.open()?;
        let bond = open.bond();
        let payload = encoded(bond, &self.value, open.slot.bytes_max())
            .map_err(|error| bond.unwritten(error))?;
        let format = binding.spec.format();
        let unanswered = bond.unanswered();
        let span = trace::part(|| trace::state("write", binding.spec.name));
        let etag = binding.etag.get();
        let write = open.slot.write(etag.as_ref(), &format, payload, clock::wall());
        let outcome = trace::within(span, write).await;
        unanswered.answered();
        binding.etag = KeptEtag::of(Some(bond.written(StateOperation::Write, outcome)?));
        Ok(())
    }

    /// Deletes the state from the store and makes the value in memory the default.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn clear(&mut self) -> Result<(), StateError> {
        let binding = self.binding.as_mut().ok_or(StateError::Unbound)?;
        if let Some(etag) = binding.etag.get() {
            let open = binding.open()?;
            let bond = open.bond();
            let unanswered = bond.unanswered();
            let span = trace::part(|| trace::state("clear", binding.spec.name));
            let outcome = trace::within(span, open.slot.clear(&etag)).await;
            unanswered.answered();
            bond.cleared(outcome)?;
            binding.etag = KeptEtag::None;
        }
        self.value = T::default();
        Ok(())
    }
}

impl<T> Carried for Persistent<T>
where
    T: Default + Serialize + DeserializeOwned + Send + 'static,
{
    fn pack(&self, out: &mut BytesMut) -> Result<(), CodecError> {
        let bound = self.binding.as_ref();
        let format = bound.map(|binding| binding.spec.format());
        let etag = bound.and_then(|binding| binding.etag.get());
        codec::encode_into(out, &(format, etag.as_deref(), &self.value))
    }

    fn unpack(&mut self, ctx: &Ctx, bytes: &[u8]) -> Result<(), String> {
        let read = ctx.grains().bind(|| codec::decode::<Packed<T>>(bytes));
        let (format, etag, value) = read.map_err(|error| error.to_string())?;
        let own = self.binding.as_ref().map(|binding| binding.spec.format());
        if format != own {
            return Err(format!("it is {format:?} there and {own:?} here"));
        }
        self.value = value;
        if let Some(binding) = &mut self.binding {
            binding.etag = KeptEtag::of(etag.map(Etag::from));
        }
        Ok(())
    }
}

/// The format of a state's version, its etag, its value.
type Packed<T> = (Option<String>, Option<String>, T);

impl<T> Binding<T> {
    /// # Errors
    /// [`StateError::Unbound`] when the grain is gone.
    fn open(&self) -> Result<Open, StateError> {
        let activation = self.activation.upgrade().ok_or(StateError::Unbound)?;
        let ctx = Ctx::of(&activation).ok_or(StateError::Unbound)?;
        let kind = activation.state_kind(self.spec.store, self.spec.name);
        let slot = kind.ok_or(StateError::Unbound)?.slot(activation.id().key());
        Ok(Open { ctx, slot, name: self.spec.name })
    }
}

/// A value as it is stored, if it is not too large.
pub(super) fn encoded<T: Serialize + ?Sized>(
    bond: Bond<'_>,
    value: &T,
    max: usize,
) -> Result<Arc<[u8]>, StateError> {
    let mut payload = BytesMut::new();
    codec::encode_into(&mut payload, value).map_err(|error| bond.codec_error(error))?;
    let bytes = payload.len();
    if bytes > max { Err(bond.too_large(bytes, max)) } else { Ok(Arc::from(&payload[..])) }
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
