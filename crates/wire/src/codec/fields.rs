//! Arguments as they travel: a map from name to value, without a type of its own for serde. The
//! code that a method adds is a list of names; all else is compiled once for each type of an
//! argument.

use std::any::type_name;

use bytes::BytesMut;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{CodecError, check, checked, encode_with, unreadable};
use crate::staged::Staged;

/// A writer of values.
pub struct Writer<'a>(pub(super) Serializer<'a>);

pub(super) type Serializer<'a> = rmp_serde::Serializer<
    Staged<'a>,
    rmp_serde::config::StructMapConfig<rmp_serde::config::DefaultConfig>,
>;

/// A value of any type that can be written.
pub trait Encode {
    /// Writes it.
    ///
    /// # Errors
    /// Its own `Serialize` failed.
    fn encode(&self, to: &mut Writer<'_>) -> Result<(), rmp_serde::encode::Error>;
}

impl<T: Serialize> Encode for T {
    fn encode(&self, to: &mut Writer<'_>) -> Result<(), rmp_serde::encode::Error> {
        self.serialize(&mut to.0)
    }
}

/// Appends the arguments of `of` to `out`.
///
/// # Errors
/// [`CodecError`] when a value cannot be encoded; then `out` is as it was before.
pub fn encode_fields(
    out: &mut BytesMut,
    of: &'static str,
    fields: &[(&str, &dyn Encode)],
) -> Result<(), CodecError> {
    encode_with(out, of, &|to: &mut Writer<'_>| {
        let count = u32::try_from(fields.len()).unwrap_or(u32::MAX);
        rmp::encode::write_map_len(to.0.get_mut(), count)?;
        for (name, value) in fields {
            rmp::encode::write_str(to.0.get_mut(), name)?;
            value.encode(to)?;
        }
        Ok(())
    })
}

/// Finds the arguments of `of` by their names: the bytes of each, none of those that are not there.
/// Others are passed over.
///
/// # Errors
/// [`CodecError`] when `body` is no map, or names an argument twice.
pub fn decode_fields<'a>(
    body: &'a [u8],
    of: &'static str,
    names: &[&str],
    values: &mut [Option<&'a [u8]>],
) -> Result<(), CodecError> {
    checked(body, of)?;
    let mut rest = body;
    let entries = check::map_len(&mut rest).ok_or_else(|| no_map(of))?;
    for _ in 0..entries {
        let name = check::text(&mut rest);
        let value = check::value(&mut rest);
        let Some(name) = name else { return Err(no_map(of)) };
        let known = names.iter().position(|known| known.as_bytes() == name);
        let Some(place) = known.and_then(|at| values.get_mut(at)) else { continue };
        if place.replace(value).is_some() {
            let name = String::from_utf8_lossy(name);
            return Err(unreadable(of, &format_args!("duplicate field `{name}`")));
        }
    }
    Ok(())
}

#[cold]
fn no_map(of: &'static str) -> CodecError {
    unreadable(of, &"expected a map from name to value")
}

/// The argument `name` of `of`. Nil stands for one that is missing: an `Option` reads it as none.
///
/// # Errors
/// [`CodecError`] when it is missing, or is no `T`.
pub fn field<T: DeserializeOwned>(
    of: &'static str,
    name: &'static str,
    value: Option<&[u8]>,
) -> Result<T, CodecError> {
    rmp_serde::from_slice(value.unwrap_or(&[0xc0]))
        .map_err(|error| wrong_field(of, name, value.is_none(), type_name::<T>(), &error))
}

#[cold]
fn wrong_field(
    of: &'static str,
    name: &str,
    is_missing: bool,
    expected: &str,
    error: &rmp_serde::decode::Error,
) -> CodecError {
    if is_missing {
        return unreadable(of, &format_args!("missing field `{name}`"));
    }
    unreadable(of, &format_args!("`{name}` is no {expected}: {error}"))
}
