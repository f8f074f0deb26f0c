//! The fields of a grain that move with it to another silo.

use bytes::{Bytes, BytesMut};
use emmer_wire::{CodecError, codec};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Ctx;
use crate::cluster::moves::Fields;

/// A field that moves with its grain: a state, a journal, or a field marked `#[carry]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot move with its grain to another silo",
    label = "`{Self}` does not implement serde's `Serialize` and `Deserialize`",
    note = "a field marked `#[carry]` travels as MessagePack"
)]
pub trait Carried {
    /// Appends the field's value.
    ///
    /// # Errors
    /// The codec's own.
    fn pack(&self, out: &mut BytesMut) -> Result<(), CodecError>;

    /// Takes the value of the field on another silo. References in it belong to the silo of `ctx`.
    ///
    /// # Errors
    /// The value does not decode, in these words.
    fn unpack(&mut self, ctx: &Ctx, bytes: &[u8]) -> Result<(), String>;
}

impl<T: Serialize + DeserializeOwned> Carried for T {
    fn pack(&self, out: &mut BytesMut) -> Result<(), CodecError> {
        codec::encode_into(out, self)
    }

    fn unpack(&mut self, ctx: &Ctx, bytes: &[u8]) -> Result<(), String> {
        let read = ctx.grains().bind(|| codec::decode(bytes));
        *self = read.map_err(|error: CodecError| error.to_string())?;
        Ok(())
    }
}

/// The fields of a grain that move with it, by name.
pub type CarriedFields<'a> = Vec<(&'static str, &'a mut dyn Carried)>;

/// The values of the fields.
///
/// # Errors
/// The first that does not encode, in words.
pub(super) fn pack(carried: CarriedFields<'_>) -> Result<Fields, String> {
    let mut out = BytesMut::new();
    let mut fields = Fields::with_capacity(carried.len());
    for (name, field) in carried {
        field.pack(&mut out).map_err(|error| format!("the field `{name}`: {error}"))?;
        fields.push((name.to_owned(), out.split().freeze()));
    }
    Ok(fields)
}

/// Gives the fields the values of the grain on another silo.
///
/// # Errors
/// A field is missing on one of the silos, or does not decode, in words.
pub(super) fn unpack(
    ctx: &Ctx,
    carried: CarriedFields<'_>,
    fields: &[(String, Bytes)],
) -> Result<(), String> {
    if carried.len() != fields.len() {
        let (own, its) = (carried.len(), fields.len());
        return Err(format!("{own} fields move with the class here, and {its} there"));
    }
    for (name, field) in carried {
        let value = fields.iter().find(|(other, _)| other == name).map(|(_, value)| value);
        let value = value.ok_or_else(|| format!("the field `{name}` does not move there"))?;
        field.unpack(ctx, value).map_err(|error| format!("the field `{name}`: {error}"))?;
    }
    Ok(())
}
