//! User values as bytes: MessagePack with named fields.
//!
//! Structs are maps from field name to value. So fields may be added and removed between versions
//! (with `#[serde(default)]`), a method's arguments may grow by trailing optional ones, and other
//! languages can read them. MessagePack cannot tell `Some(())` and `Some(None)` from `None`, as
//! JSON: they arrive as `None`.
//!
//! Before serde sees bytes from outside, [`decode`] checks in one pass without recursion that they
//! are exactly one well-formed value of bounded depth. Serde's recursion through enums and options
//! has no depth limit of its own, and `size_hint`s come straight from the input: the check bounds
//! both.

use std::any::type_name;
use std::fmt::Display;

use bytes::BytesMut;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::staged::Staged;

mod check;
mod fields;

pub use self::fields::{Encode, Writer, decode_fields, encode_fields, field};

/// The number of [`MessagePack`] in the handshake.
pub const CODEC_MESSAGE_PACK: u8 = 1;

/// Maximum nesting of arrays and maps in a value. A deeper value is refused when it is written and
/// when it arrives, so that every written value can be read, and no input can overflow the stack.
pub const VALUE_DEPTH_MAX: usize = 128;

/// Writing a value that is nested too deep reaches further down the stack than this, however little
/// each level takes.
const DEEP_STACK_BYTES: usize = 4 << 10;

/// The longest reason in an error: reasons quote the input.
const REASON_BYTES_MAX: usize = 256;

/// A way to turn user values into bytes, named in the handshake.
pub trait Codec {
    /// Its number in the handshake; never 0, never reused.
    const NUMBER: u8;
    /// Its name, for people.
    const NAME: &'static str;

    /// Appends `value` to `out`.
    ///
    /// # Errors
    /// [`CodecError`] when the value cannot be encoded; then `out` is as it was before.
    fn encode_into<T: Serialize + ?Sized>(out: &mut BytesMut, value: &T) -> Result<(), CodecError>;

    /// Reads one value that fills `bytes` exactly.
    ///
    /// # Errors
    /// [`CodecError`] when `bytes` are anything else.
    fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError>;
}

/// MessagePack with named fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessagePack;

impl Codec for MessagePack {
    const NUMBER: u8 = CODEC_MESSAGE_PACK;
    const NAME: &'static str = "MessagePack with named fields";

    fn encode_into<T: Serialize + ?Sized>(out: &mut BytesMut, value: &T) -> Result<(), CodecError> {
        encode_with(out, type_name::<T>(), &|to: &mut Writer<'_>| value.serialize(&mut to.0))
    }

    fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
        checked(bytes, type_name::<T>())?;
        rmp_serde::from_slice(bytes).map_err(|error| unreadable(type_name::<T>(), &error))
    }
}

/// Appends what `write` writes of a `type_name` to `out`, or nothing.
fn encode_with(
    out: &mut BytesMut,
    type_name: &'static str,
    write: &dyn Fn(&mut Writer<'_>) -> Result<(), rmp_serde::encode::Error>,
) -> Result<(), CodecError> {
    let start = out.len();
    let mut writer = Writer(rmp_serde::Serializer::new(Staged::new(out)).with_struct_map());
    let written = write(&mut writer);
    let stack_bytes = writer.0.into_inner().finish();
    if written.is_ok() && stack_bytes < DEEP_STACK_BYTES {
        return Ok(());
    }
    examine(out, type_name, start, written.err())
}

/// Returns an error if `bytes` are not exactly one value.
#[inline]
fn checked(bytes: &[u8], type_name: &'static str) -> Result<(), CodecError> {
    check::check(bytes).map_err(|defect| match defect {
        check::Defect::Truncated => CodecError::Truncated { type_name },
        check::Defect::Trailing(bytes) => CodecError::Trailing { type_name, bytes },
        check::Defect::TooDeep => CodecError::TooDeep { type_name },
        check::Defect::Reserved => unreadable(type_name, &"not MessagePack: a byte c1"),
    })
}

/// Bytes that are no value of this type, and why.
#[cold]
fn unreadable(type_name: &'static str, why: &dyn Display) -> CodecError {
    CodecError::Decode { type_name, reason: reason(why) }
}

/// Checks the bytes of a `type_name` behind `start`, after writing failed, or reached so far down
/// the stack that the value may be nested too deep. Truncates `out` if it is.
#[cold]
fn examine(
    out: &mut BytesMut,
    type_name: &'static str,
    start: usize,
    failed: Option<rmp_serde::encode::Error>,
) -> Result<(), CodecError> {
    let refused = match failed {
        // The written part of a value that nests without end is too deep before it is cut off.
        _ if check::check(&out[start..]) == Err(check::Defect::TooDeep) => {
            CodecError::TooDeep { type_name }
        }
        Some(error) => CodecError::Encode { type_name, reason: reason(&error) },
        None => return Ok(()),
    };
    out.truncate(start);
    Err(refused)
}

/// Appends `value` to `out` in the codec every peer speaks, [`MessagePack`].
///
/// # Errors
/// [`CodecError`] when the value cannot be encoded (its own `Serialize` said no); then `out` is as
/// it was before.
pub fn encode_into<T: Serialize + ?Sized>(out: &mut BytesMut, value: &T) -> Result<(), CodecError> {
    MessagePack::encode_into(out, value)
}

/// Reads one value that fills `bytes` exactly, in the codec every peer speaks, [`MessagePack`].
///
/// # Errors
/// [`CodecError`] when `bytes` are anything else.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    MessagePack::decode(bytes)
}

/// A value could not be encoded or decoded. It names the type and the reason. Only one call is
/// concerned: the connection stays.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The value's own `Serialize` failed.
    #[error("cannot encode {type_name}: {reason}")]
    Encode {
        /// The type of the value.
        type_name: &'static str,
        /// Why.
        reason: String,
    },
    /// The bytes are not a value of this type.
    #[error("cannot decode {type_name}: {reason}")]
    Decode {
        /// The wanted type.
        type_name: &'static str,
        /// Why.
        reason: String,
    },
    /// The bytes end inside the value.
    #[error("cannot decode {type_name}: the bytes end inside the value")]
    Truncated {
        /// The wanted type.
        type_name: &'static str,
    },
    /// Bytes are left over after the value.
    #[error("cannot decode {type_name}: {bytes} bytes too many after the value")]
    Trailing {
        /// The wanted type.
        type_name: &'static str,
        /// Number of bytes.
        bytes: usize,
    },
    /// Nested deeper than [`VALUE_DEPTH_MAX`].
    #[error("{type_name} is nested more than {VALUE_DEPTH_MAX} deep")]
    TooDeep {
        /// The wanted type.
        type_name: &'static str,
    },
}

fn reason(error: &dyn Display) -> String {
    let mut text = error.to_string();
    text.truncate(text.floor_char_boundary(REASON_BYTES_MAX));
    text
}
