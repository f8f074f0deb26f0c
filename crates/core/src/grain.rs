//! The identity of a grain: its type and its key.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use crate::hash;

/// The number of a grain type: the low half of the stable hash of its name.
///
/// Names travel and are stored as this number; a silo refuses to host two types whose names
/// collide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GrainTypeId(u32);

impl GrainTypeId {
    /// The number of the type called `name`.
    pub const fn of(name: &str) -> Self {
        Self(hash::name32(name))
    }

    /// The type with this number, as it came from the wire.
    pub const fn from_u32(number: u32) -> Self {
        Self(number)
    }

    /// The number as the wire carries it.
    pub const fn as_u32(self) -> u32 {
        self.0
    }
}

impl fmt::Display for GrainTypeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// The key of a grain within its type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum GrainKey {
    /// An unsigned integer key.
    #[serde(rename = "u")]
    Uint(u64),
    /// A signed integer key.
    #[serde(rename = "i")]
    Int(i64),
    /// A UUID key.
    #[serde(rename = "g")]
    Uuid(Uuid),
    /// A text key, at most [`GRAIN_KEY_BYTES_MAX`](crate::limits::GRAIN_KEY_BYTES_MAX) bytes.
    #[serde(rename = "s")]
    Text(Arc<str>),
}

impl fmt::Display for GrainKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uint(n) => write!(f, "{n}"),
            Self::Int(n) => write!(f, "{n}"),
            Self::Uuid(u) => write!(f, "{u}"),
            Self::Text(s) => f.write_str(s),
        }
    }
}

impl From<u64> for GrainKey {
    fn from(key: u64) -> Self {
        Self::Uint(key)
    }
}

impl From<i64> for GrainKey {
    fn from(key: i64) -> Self {
        Self::Int(key)
    }
}

impl From<Uuid> for GrainKey {
    fn from(key: Uuid) -> Self {
        Self::Uuid(key)
    }
}

impl From<&str> for GrainKey {
    fn from(key: &str) -> Self {
        Self::Text(key.into())
    }
}

impl From<String> for GrainKey {
    fn from(key: String) -> Self {
        Self::Text(key.into())
    }
}

impl From<&String> for GrainKey {
    fn from(key: &String) -> Self {
        Self::Text(key.as_str().into())
    }
}

/// The identity of a grain: its type, its key and their stable hash, computed once.
#[derive(Clone)]
pub struct GrainId {
    hash: u64,
    grain_type: GrainTypeId,
    key: GrainKey,
}

impl GrainId {
    /// The identity of the grain `key` of `grain_type`.
    pub fn new(grain_type: GrainTypeId, key: impl Into<GrainKey>) -> Self {
        let key = key.into();
        Self { hash: stable_hash(grain_type, &key), grain_type, key }
    }

    /// The grain's type.
    pub const fn grain_type(&self) -> GrainTypeId {
        self.grain_type
    }

    /// The grain's key.
    pub const fn key(&self) -> &GrainKey {
        &self.key
    }

    /// The stable hash of type and key: the grain's place on the directory ring.
    pub const fn stable_hash(&self) -> u64 {
        self.hash
    }
}

/// The type's number is the seed, a letter for the kind of key comes before its bytes, so that the
/// text "1" and the integer 1 are different grains.
fn stable_hash(grain_type: GrainTypeId, key: &GrainKey) -> u64 {
    let seed = u64::from(grain_type.as_u32());
    let fixed = |kind: u8, bytes: [u8; 16]| {
        let mut buffer = [kind; 17];
        buffer[1..].copy_from_slice(&bytes);
        hash::stable64_seeded(&buffer, seed)
    };
    match key {
        GrainKey::Uint(n) => fixed(b'u', u128::from(*n).to_le_bytes()),
        GrainKey::Int(n) => fixed(b'i', i128::from(*n).to_le_bytes()),
        GrainKey::Uuid(u) => fixed(b'g', *u.as_bytes()),
        GrainKey::Text(s) => hash::stable64_seeded(s.as_bytes(), seed ^ (u64::from(b's') << 32)),
    }
}

impl PartialEq for GrainId {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.grain_type == other.grain_type && self.key == other.key
    }
}

impl Eq for GrainId {}

impl Hash for GrainId {
    /// Feeds the stable hash only: maps keyed by grain id need no second pass over the key.
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl PartialOrd for GrainId {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for GrainId {
    /// By type, then key: the order people expect in listings.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.grain_type.cmp(&other.grain_type).then_with(|| self.key.cmp(&other.key))
    }
}

impl fmt::Display for GrainId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.grain_type, self.key)
    }
}

impl fmt::Debug for GrainId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for GrainId {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        (self.grain_type, &self.key).serialize(s)
    }
}

impl<'de> Deserialize<'de> for GrainId {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let (grain_type, key) = <(GrainTypeId, GrainKey)>::deserialize(d)?;
        Ok(Self::new(grain_type, key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTER: GrainTypeId = GrainTypeId::of("counter");

    #[test]
    fn hash_vectors_are_frozen() {
        let found = [
            u64::from(COUNTER.as_u32()),
            GrainId::new(COUNTER, "home").stable_hash(),
            GrainId::new(COUNTER, 1u64).stable_hash(),
            GrainId::new(COUNTER, -1i64).stable_hash(),
            GrainId::new(COUNTER, Uuid::from_u128(7)).stable_hash(),
        ];
        assert_eq!(found, VECTORS);
    }

    const VECTORS: [u64; 5] = [
        372_594_717,
        4_386_632_229_778_278_573,
        15_427_330_036_362_023_104,
        3_442_392_712_119_611_816,
        18_319_136_297_599_661_282,
    ];

    #[test]
    fn kinds_of_keys_do_not_collide() {
        let ids =
            [GrainId::new(COUNTER, 1u64), GrainId::new(COUNTER, 1i64), GrainId::new(COUNTER, "1")];
        assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
        assert!(
            ids[0].stable_hash() != ids[1].stable_hash()
                && ids[1].stable_hash() != ids[2].stable_hash()
        );
    }
}
