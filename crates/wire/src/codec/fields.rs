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

/// Finds the arguments of `of` by their names: the bytes of each, None for missing ones. Unknown
/// names are ignored.
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

/// The argument `name` of `of`. A missing argument reads as nil: an `Option` becomes None.
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

#[cfg(test)]
mod tests {
    use super::*;

    const OF: &str = "Bank::transfer";

    /// The bytes of each of `names` in `body`.
    fn found<'a>(body: &'a [u8], names: &[&str]) -> Result<Vec<Option<&'a [u8]>>, CodecError> {
        let mut values = vec![None; names.len()];
        decode_fields(body, OF, names, &mut values).map(|()| values)
    }

    #[test]
    fn arguments_are_found_whatever_form_names_and_map_have() {
        // Names of 32 and of 300 bytes have headers of two and of three bytes.
        let (long, longest) = ("n".repeat(32), "m".repeat(300));
        let mut body = BytesMut::new();
        let fields: [(&str, &dyn Encode); 3] = [(&long, &7u8), (&longest, &true), ("x", &"y")];
        encode_fields(&mut body, OF, &fields).unwrap();
        let names = ["x", longest.as_str(), "missing", long.as_str()];
        let values = found(&body, &names).unwrap();
        assert_eq!(values[2], None);
        assert_eq!(field::<u8>(OF, "n", values[3]).unwrap(), 7);
        assert!(field::<bool>(OF, "m", values[1]).unwrap());
        assert_eq!(field::<String>(OF, "x", values[0]).unwrap(), "y");
        // A map of 16 bits has the same entries, and one whose value is of an extension type.
        let mut wide = vec![0xde, 0, 4, 0xa1, b'e', 0xd4, 5, 0];
        wide.extend(&body[1..]);
        let mut expected = vec![Some(&wide[5..8])];
        expected.extend(values);
        let names = [&["e"], &names[..]].concat();
        assert_eq!(found(&wide, &names).unwrap(), expected);
    }

    #[test]
    fn what_is_missing_is_nil_and_what_comes_twice_is_refused() {
        assert_eq!(field::<Option<u8>>(OF, "x", None).unwrap(), None);
        let error = field::<u8>(OF, "x", None).unwrap_err().to_string();
        assert!(error.contains("missing field `x`"), "{error}");
        let twice = [0x82, 0xa1, b'x', 1, 0xa1, b'x', 2];
        assert!(found(&twice, &["x"]).unwrap_err().to_string().contains("duplicate field `x`"));
        assert!(found(&[0x91, 1], &["x"]).is_err(), "a list is no map");
    }
}
