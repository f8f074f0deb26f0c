//! The types that can be a grain's key.

use emmer_core::GrainKey;
use emmer_store::keys::{escape, unescape};
use uuid::Uuid;

/// A type that can be a grain's key: an integer of up to 64 bits, a `Uuid`, a `String`, a pair of
/// such types, or a struct around one of them with `#[derive(GrainKey)]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a grain's key",
    label = "not a type of key",
    note = "keys are integers of up to 64 bits, `Uuid`, `String` and pairs of these",
    note = "for a type of your own write `#[derive(GrainKey)]` on a struct with one field of these \
        types"
)]
pub trait KeyType: Sized + Send + 'static {
    /// The key as a reference shows it: `&str` for a text, the value itself otherwise.
    type View<'a>;

    /// The kind of the keys.
    const KIND: KeyKind;

    /// The key of a grain.
    fn into_key(self) -> GrainKey;

    /// The key as it is shown; none if it cannot be a key of this type.
    fn view(key: &GrainKey) -> Option<Self::View<'_>>;

    /// The key as an owned value; none if it cannot be a key of this type.
    fn read(key: &GrainKey) -> Option<Self>;
}

/// The kinds of keys: what the key is in every store and on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// An unsigned integer.
    Uint,
    /// A signed integer.
    Int,
    /// A UUID.
    Uuid,
    /// A text.
    Text,
}

impl KeyKind {
    /// Its name: `text`, `uint`, `int` or `uuid`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uint => "uint",
            Self::Int => "int",
            Self::Uuid => "uuid",
            Self::Text => "text",
        }
    }

    /// The key of this kind that a text stands for.
    fn parse(self, text: &str) -> Option<GrainKey> {
        match self {
            Self::Uint => text.parse().ok().map(GrainKey::Uint),
            Self::Int => text.parse().ok().map(GrainKey::Int),
            Self::Uuid => text.parse().ok().map(GrainKey::Uuid),
            Self::Text => unescape(text).map(|text| GrainKey::Text(text.into())),
        }
    }
}

macro_rules! integer_keys {
    ($kind:ident, $wide:ty: $($int:ty),*) => {$(
        impl KeyType for $int {
            type View<'a> = Self;

            const KIND: KeyKind = KeyKind::$kind;

            fn into_key(self) -> GrainKey {
                // No type has more than 64 bits where this is compiled.
                GrainKey::$kind(self as $wide)
            }

            fn view(key: &GrainKey) -> Option<Self> {
                Self::read(key)
            }

            fn read(key: &GrainKey) -> Option<Self> {
                match key {
                    GrainKey::$kind(n) => Self::try_from(*n).ok(),
                    _ => None,
                }
            }
        }
    )*};
}

integer_keys!(Uint, u64: u8, u16, u32, u64, usize);
integer_keys!(Int, i64: i8, i16, i32, i64, isize);

impl KeyType for Uuid {
    type View<'a> = Self;

    const KIND: KeyKind = KeyKind::Uuid;

    fn into_key(self) -> GrainKey {
        GrainKey::Uuid(self)
    }

    fn view(key: &GrainKey) -> Option<Self> {
        Self::read(key)
    }

    fn read(key: &GrainKey) -> Option<Self> {
        match key {
            GrainKey::Uuid(uuid) => Some(*uuid),
            _ => None,
        }
    }
}

impl KeyType for String {
    type View<'a> = &'a str;

    const KIND: KeyKind = KeyKind::Text;

    fn into_key(self) -> GrainKey {
        self.into()
    }

    fn view(key: &GrainKey) -> Option<&str> {
        match key {
            GrainKey::Text(text) => Some(text),
            _ => None,
        }
    }

    fn read(key: &GrainKey) -> Option<Self> {
        Self::view(key).map(str::to_owned)
    }
}

/// A pair is a text, `first/second`, each of them escaped.
impl<A: KeyType, B: KeyType> KeyType for (A, B) {
    type View<'a> = Self;

    const KIND: KeyKind = KeyKind::Text;

    fn into_key(self) -> GrainKey {
        let part = |key: GrainKey| escape(&key.to_string());
        GrainKey::Text(format!("{}/{}", part(self.0.into_key()), part(self.1.into_key())).into())
    }

    fn view(key: &GrainKey) -> Option<Self> {
        Self::read(key)
    }

    fn read(key: &GrainKey) -> Option<Self> {
        let (first, second) = String::view(key)?.split_once('/')?;
        let first = A::read(&A::KIND.parse(first)?)?;
        Some((first, B::read(&B::KIND.parse(second)?)?))
    }
}

/// Value that may stand for a key where a reference is made: the key itself, or a borrowed form of
/// it.
#[diagnostic::on_unimplemented(
    message = "this interface's grains have keys of type `{K}`, not `{Self}`",
    label = "a key of type `{K}` belongs here",
    note = "the type of the keys is what `#[grain_interface(key = ..)]` says on the trait"
)]
pub trait IntoKey<K: KeyType> {
    /// The key.
    fn into_key(self) -> GrainKey;
}

impl<K: KeyType> IntoKey<K> for K {
    fn into_key(self) -> GrainKey {
        KeyType::into_key(self)
    }
}

impl IntoKey<String> for &str {
    fn into_key(self) -> GrainKey {
        self.into()
    }
}

impl IntoKey<String> for &String {
    fn into_key(self) -> GrainKey {
        self.into()
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;

    fn comes_back<K: KeyType + Clone + PartialEq + Debug>(key: K, shown: &str) {
        let made = KeyType::into_key(key.clone());
        assert_eq!((made.to_string().as_str(), K::read(&made)), (shown, Some(key)));
    }

    #[test]
    fn keys_come_back_as_they_went_in() {
        comes_back(200_u8, "200");
        comes_back(u64::MAX, "18446744073709551615");
        comes_back(-7_i16, "-7");
        comes_back("a/b%".to_owned(), "a/b%");
        comes_back(Uuid::from_u128(7), "00000000-0000-0000-0000-000000000007");
        comes_back(("a/b".to_owned(), 7_u32), "a%2Fb/7");
        comes_back((("a/b".to_owned(), -1_i64), "%".to_owned()), "a%252Fb%2F-1/%25");
    }

    #[test]
    fn keys_of_another_kind_are_none() {
        assert_eq!(u8::read(&GrainKey::Uint(256)), None);
        assert_eq!(u64::read(&GrainKey::Int(1)), None);
        assert_eq!(String::view(&GrainKey::Uint(1)), None);
        let text = |text: &str| GrainKey::from(text);
        assert_eq!(<(u64, u64)>::read(&text("1")), None);
        assert_eq!(<(u64, String)>::read(&text("x/y")), None);
    }
}
