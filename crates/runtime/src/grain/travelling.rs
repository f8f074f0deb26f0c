//! References as data: a reference travels, and is stored, as the text `type/kind.key`, and belongs
//! to the silo or client where it is decoded.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use emmer_core::limits::GRAIN_KEY_BYTES_MAX;
use emmer_core::{GrainId, GrainKey, GrainTypeId};
use emmer_store::keys::{parse_reference, reference};
use serde::de::{Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};

use super::reference::class_name;
use super::{Interface, RawRef};
use crate::calls::Node;
use crate::turn::KeyType;

/// A text that is no reference is shown up to this many characters.
const SHOWN_MAX: usize = 100;

impl Serialize for RawRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&reference(self.type_name(), self.key()))
    }
}

impl RawRef {
    /// Reads a reference to a grain of the interface `I`.
    ///
    /// # Errors
    /// The text is no reference, or one to a grain of another interface.
    pub fn decode<'de, I, D>(deserializer: D) -> Result<Self, D::Error>
    where
        I: Interface + ?Sized,
        D: Deserializer<'de>,
    {
        deserializer.deserialize_str(Text::<I>(PhantomData))
    }
}

struct Text<I: ?Sized>(PhantomData<fn() -> Box<I>>);

impl<I: Interface + ?Sized> Visitor<'_> for Text<I> {
    type Value = RawRef;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a reference to a grain, as in \"{}/s.key\"", I::GRAIN_TYPE)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<RawRef, E> {
        // Its beginning tells enough: the text may be anything.
        let end = text.char_indices().nth(SHOWN_MAX).map_or(text.len(), |(at, _)| at);
        let wrong = || E::invalid_value(serde::de::Unexpected::Str(&text[..end]), &self);
        let (type_name, key) = parse_reference(text).ok_or_else(wrong)?;
        let class = type_name.strip_prefix(I::GRAIN_TYPE).ok_or_else(wrong)?;
        let is_long = matches!(&key, GrainKey::Text(text) if text.len() > GRAIN_KEY_BYTES_MAX);
        if is_long || <I::Key as KeyType>::view(&key).is_none() {
            return Err(wrong());
        }
        let type_name = match class.strip_prefix(':') {
            None if class.is_empty() => Cow::Borrowed(I::GRAIN_TYPE),
            Some(class) if !class.is_empty() => Cow::Owned(class_name(I::GRAIN_TYPE, class)),
            _ => return Err(wrong()),
        };
        let id = GrainId::new(GrainTypeId::of(&type_name), key);
        Ok(RawRef::new(Node::of_decoding(), id, type_name))
    }
}
