//! Identities on the wire: silo addresses and grain ids.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use emmer_core::grain::{GrainKey, GrainTypeId};
use emmer_core::limits::GRAIN_KEY_BYTES_MAX;
use emmer_core::{GrainId, SiloAddress};
use uuid::Uuid;

use crate::error::HeaderError;
use crate::read::Reader;
use crate::staged::Staged;

/// The kinds of grain key. Zero is not one of them, so a zeroed header is an error.
const KEY_UINT: u8 = 1;
const KEY_INT: u8 = 2;
const KEY_UUID: u8 = 3;
const KEY_TEXT: u8 = 4;

/// 16 address bytes (IPv4 in its mapped form), port, epoch.
pub(crate) fn put_silo(out: &mut Staged<'_>, silo: &SiloAddress) {
    out.put_slice(&silo.ip_v6().octets());
    out.put_u16_le(silo.port());
    out.put_u64_le(silo.epoch());
}

pub(crate) fn read_silo(input: &mut Reader<'_>) -> Result<SiloAddress, HeaderError> {
    let ip = Ipv6Addr::from(input.array::<16>("a silo's ip")?);
    let port = input.u16("a silo's port")?;
    let epoch = input.u64("a silo's epoch")?;
    Ok(SiloAddress::new(SocketAddr::new(IpAddr::V6(ip), port), epoch))
}

/// A byte 0, or a byte 1 and the silo.
#[inline]
pub(crate) fn put_optional_silo(out: &mut Staged<'_>, silo: Option<&SiloAddress>) {
    out.put_u8(u8::from(silo.is_some()));
    if let Some(silo) = silo {
        put_silo(out, silo);
    }
}

#[inline]
pub(crate) fn read_optional_silo(
    input: &mut Reader<'_>,
    field: &'static str,
) -> Result<Option<SiloAddress>, HeaderError> {
    Ok(if input.flag(field)? { Some(read_silo(input)?) } else { None })
}

/// The number that says how the key's bytes are to be read.
pub(crate) const fn key_kind(key: &GrainKey) -> u8 {
    match key {
        GrainKey::Uint(_) => KEY_UINT,
        GrainKey::Int(_) => KEY_INT,
        GrainKey::Uuid(_) => KEY_UUID,
        GrainKey::Text(_) => KEY_TEXT,
    }
}

/// The key's bytes, without its kind. Text beyond the limit goes out whole, for the peer to refuse
/// loudly: cut, it would be another grain's key.
#[inline]
pub(crate) fn put_key(out: &mut Staged<'_>, key: &GrainKey) {
    match key {
        GrainKey::Uint(n) => put_leb128(out, *n),
        GrainKey::Int(n) => put_leb128(out, zigzag(*n)),
        GrainKey::Uuid(uuid) => out.put_slice(uuid.as_bytes()),
        GrainKey::Text(text) => {
            put_leb128(out, text.len() as u64);
            out.put_slice(text.as_bytes());
        }
    }
}

#[inline]
pub(crate) fn read_key(kind: u8, input: &mut Reader<'_>) -> Result<GrainKey, HeaderError> {
    const FIELD: &str = "a grain key";
    Ok(match kind {
        KEY_UINT => GrainKey::Uint(input.leb128(FIELD)?),
        KEY_INT => GrainKey::Int(unzigzag(input.leb128(FIELD)?)),
        KEY_UUID => GrainKey::Uuid(Uuid::from_bytes(input.array(FIELD)?)),
        KEY_TEXT => {
            let announced = input.leb128(FIELD)?;
            let n = usize::try_from(announced).unwrap_or(usize::MAX);
            if n > GRAIN_KEY_BYTES_MAX {
                return Err(HeaderError::KeyTooLong(announced));
            }
            GrainKey::Text(Arc::from(input.text(n, FIELD)?))
        }
        value => {
            return Err(HeaderError::Value {
                field: "the kind of a grain key",
                value: u64::from(value),
            });
        }
    })
}

/// Type and key, with the kind of the key already read.
#[inline]
pub(crate) fn grain(grain_type: u32, key: GrainKey) -> GrainId {
    GrainId::new(GrainTypeId::from_u32(grain_type), key)
}

fn put_leb128(out: &mut Staged<'_>, mut value: u64) {
    while value >= 0x80 {
        out.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

/// Small magnitudes of either sign become small numbers: 0, -1, 1, -2 are 0, 1, 2, 3.
const fn zigzag(n: i64) -> u64 {
    ((n << 1) ^ (n >> 63)) as u64
}

const fn unzigzag(n: u64) -> i64 {
    (n >> 1) as i64 ^ -((n & 1) as i64)
}
