//! A grain interface and its methods as the runtime sees them. Implemented by `#[grain_interface]`
//! only.

use std::marker::PhantomData;

use bytes::BytesMut;
use emmer_core::{GrainId, GrainTypeId};
use emmer_wire::CodecError;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::class::Grain;
use super::context::Ctx;
use super::reference::{GrainFactory, RawRef};
use crate::hosting::MethodEntry;
use crate::turn::{IntoKey, KeyType, MethodInfo};

/// A grain interface, implemented for `dyn Trait` by `#[grain_interface]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a grain interface",
    label = "not the `dyn Trait` of a #[grain_interface]",
    note = "name the interface as `dyn Trait`, and write `#[grain_interface(key = ..)]` on the \
        trait"
)]
pub trait Interface: 'static {
    /// The type of the key of its grains.
    type Key: KeyType;
    /// The generated reference type with one method per call.
    type Ref: From<RawRef> + Clone + Send + Sync + 'static;
    /// The trait's name.
    const NAME: &'static str;
    /// The name of the grain type that implements it, the same on every silo and client.
    const GRAIN_TYPE: &'static str;
    /// Its version.
    const VERSION: u32;
}

impl GrainFactory {
    /// A reference to the grain `key` behind interface `I`, as in
    /// `client.grain::<dyn Counter>("home")`.
    ///
    /// A text key of more than
    /// [`GRAIN_KEY_BYTES_MAX`](emmer_core::limits::GRAIN_KEY_BYTES_MAX) bytes makes every call
    /// `Rejected`.
    pub fn grain<I: Interface + ?Sized>(&self, key: impl IntoKey<I::Key>) -> I::Ref {
        let id = GrainId::new(GrainTypeId::of(I::GRAIN_TYPE), key.into_key());
        RawRef::of(self, id, I::GRAIN_TYPE).into()
    }
}

impl Ctx {
    /// A reference to this grain by an interface of its class, for giving to others.
    pub fn me<I: Interface + ?Sized>(&self) -> I::Ref {
        let activation = self.activation();
        let type_name = activation.map_or(I::GRAIN_TYPE, |activation| activation.type_name());
        RawRef::of(self.grains(), self.grain_id().clone(), type_name).into()
    }
}

/// One method of an interface. The implementing type holds the arguments as named fields, so that
/// arguments travel as a map and may grow by trailing ones with a default.
pub trait Method: Sized + Send + 'static {
    /// The interface it belongs to.
    type Interface: Interface + ?Sized;
    /// The method's declared return type; what travels back.
    type Output: Serialize + DeserializeOwned + Send + 'static;
    /// Value of a successful call: `T` of `Result<T, E>`, or the whole return type.
    type Ok: Send + 'static;
    /// The method's own error: `E` of `Result<T, E>`, or [`NoError`](crate::turn::NoError).
    type Err: Send + 'static;
    /// The method's name.
    const NAME: &'static str;
    /// The method's number: [`name32`](emmer_core::hash::name32) of `Interface.method`, or of
    /// `Interface.method@2` where the interface's version is 2 and counts.
    const ID: u32;
    /// True if it takes `&mut self`: such a turn runs alone.
    const EXCLUSIVE: bool;
    /// True if an argument of it is a stream.
    const STREAMS: bool = false;
    /// The names and types of its arguments, as the source has them.
    const ARGUMENTS: &'static [(&'static str, &'static str)] = &[];
    /// Its return type, as the source has it.
    const RETURNS: &'static str = "";
    /// All of it that is no type.
    const INFO: &'static MethodInfo = &MethodInfo {
        interface: Self::Interface::NAME,
        grain_type: Self::Interface::GRAIN_TYPE,
        name: Self::NAME,
        id: Self::ID,
        exclusive: Self::EXCLUSIVE,
        streams: Self::STREAMS,
        key: <Self::Interface as Interface>::Key::KIND,
        arguments: Self::ARGUMENTS,
        returns: Self::RETURNS,
    };

    /// Appends the arguments to a request's body.
    ///
    /// # Errors
    /// The codec's own.
    fn encode_args(&self, out: &mut BytesMut) -> Result<(), CodecError>;

    /// Reads the arguments out of a request's body.
    ///
    /// # Errors
    /// The codec's own.
    fn decode_args(body: &[u8]) -> Result<Self, CodecError>;

    /// Returns true if the method returned its own error.
    fn is_error(output: &Self::Output) -> bool {
        let _ = output;
        false
    }

    /// Tells the method's own success from its own error.
    fn split(output: Self::Output) -> Result<Self::Ok, Self::Err>;
}

/// Says that class `G` hosts an interface. Implemented by `#[grain_interface]` on `dyn Trait` for
/// every class that implements the trait (on the interface and not on the class, because only the
/// interface belongs to the crate that declares it).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a grain interface that `{G}` can host",
    label = "not the `dyn Trait` of a #[grain_interface]",
    note = "write `#[grain_interface(key = ..)]` on the trait and `#[grain]` on its implementation"
)]
pub trait Hosted<G: Grain>: Interface {
    /// Every method, ready to be started on an activation of `G`.
    fn methods() -> Vec<MethodEntry>;
}

/// Tells whether a return type is a `Result`, whatever it is called:
/// `Returned::<T>::IS_RESULT`, with [`NoResult`] in scope.
pub struct Returned<T: ?Sized>(PhantomData<T>);

impl<T, E> Returned<Result<T, E>> {
    /// It is.
    pub const IS_RESULT: bool = true;
}

/// See [`Returned`].
pub trait NoResult {
    /// It is not.
    const IS_RESULT: bool = false;
}

impl<T: ?Sized> NoResult for Returned<T> {}
