//! The values that an application sends along with its calls: texts under keys, from call to call.

use std::fmt;
use std::sync::Arc;

use crate::error::HeaderError;
use crate::read::Reader;
use crate::staged::Staged;

/// The most entries of a request context, and as many that a gateway adds.
pub const CONTEXT_ENTRIES_MAX: usize = 32;
/// The most bytes of a request context, its keys and values together, and as many that a gateway
/// adds.
pub const CONTEXT_BYTES_MAX: usize = 4_096;
/// The longest key, in bytes.
pub const CONTEXT_KEY_BYTES_MAX: usize = 64;

/// Key of a call's hint for its placement director. It travels with that call alone.
pub const HINT_KEY: &str = "emmer.hint";

/// The key under which the identity of a caller from outside the cluster goes along: its name. Its
/// claims have keys that begin with [`CLAIM_PREFIX`].
pub const IDENTITY_KEY: &str = "emmer.identity";

/// The beginning of the keys of an identity's claims.
pub const CLAIM_PREFIX: &str = "emmer.claim.";

/// Key by which a gateway marks a call from outside the cluster that was not yet checked, because
/// the gateway does not know the method. It travels with that call alone.
pub const OUTSIDE_KEY: &str = "emmer.outside";

/// The beginning of all keys that applications cannot use.
pub const RESERVED_PREFIX: &str = "emmer.";

/// Texts under keys that go along with a call, and with the calls that are made because of it.
/// Cheap to clone, and free when empty. A few, small: at most 32 entries of 4,096 bytes together,
/// with keys of 1 to 64 bytes. The entries that a gateway adds have as much room of their own: what
/// an application sends along fits by every way, or by none.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RequestContext(Option<Arc<[Entry]>>);

type Entry = (Arc<str>, Arc<str>);

/// A context would exceed its limit, or a key is not valid. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContextError {
    /// The key is one of Emmer's own.
    #[error(
        "the key {0:?} of a request context begins with {RESERVED_PREFIX:?}: it is Emmer's own"
    )]
    Reserved(String),
    /// The key is empty or too long.
    #[error("the key {0:?} of a request context does not have 1 to {CONTEXT_KEY_BYTES_MAX} bytes")]
    Key(String),
    /// Too much of it.
    #[error(
        "a request context has at most {CONTEXT_ENTRIES_MAX} entries of {CONTEXT_BYTES_MAX} bytes \
         together: there is no room for {0:?}"
    )]
    Full(String),
}

impl RequestContext {
    /// No entries.
    pub const EMPTY: Self = Self(None);

    fn entries(&self) -> &[Entry] {
        self.0.as_deref().unwrap_or_default()
    }

    /// Returns true if there are no entries.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The text under a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.entries().iter().find(|(known, _)| **known == *key).map(|(_, value)| &**value)
    }

    /// The entries, ordered by their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries().iter().map(|(key, value)| (&**key, &**value))
    }

    /// Copies the context with a text under a key, which replaces an earlier one.
    ///
    /// # Errors
    /// [`ContextError`].
    pub fn with(&self, key: &str, value: &str) -> Result<Self, ContextError> {
        if key.is_empty() || key.len() > CONTEXT_KEY_BYTES_MAX {
            return Err(ContextError::Key(key.chars().take(CONTEXT_KEY_BYTES_MAX).collect()));
        }
        let mut entries: Vec<Entry> =
            self.entries().iter().filter(|(known, _)| **known != *key).cloned().collect();
        let place = entries.partition_point(|(known, _)| **known < *key);
        entries.insert(place, (key.into(), value.into()));
        let by_gateway = is_by_gateway(key);
        let alike = entries.iter().filter(|(known, _)| is_by_gateway(known) == by_gateway);
        let (count, bytes) = alike.fold((0, 0), |(count, bytes), (key, value)| {
            (count + 1, bytes + key.len() + value.len())
        });
        if count > CONTEXT_ENTRIES_MAX || bytes > CONTEXT_BYTES_MAX {
            return Err(ContextError::Full(key.to_owned()));
        }
        Ok(Self(Some(entries.into())))
    }

    /// Copies the context without a key.
    #[must_use]
    pub fn without(&self, key: &str) -> Self {
        self.kept(|known| known != key)
    }

    fn kept(&self, keeps: impl Fn(&str) -> bool) -> Self {
        let kept: Vec<Entry> =
            self.entries().iter().filter(|(key, _)| keeps(key)).cloned().collect();
        Self((!kept.is_empty()).then(|| kept.into()))
    }

    /// Context of the calls that are made because of this one.
    #[must_use]
    pub fn inherited(&self) -> Self {
        let is_own = |key: &str| key == HINT_KEY || key == OUTSIDE_KEY;
        if self.iter().any(|(key, _)| is_own(key)) {
            self.kept(|key| !is_own(key))
        } else {
            self.clone()
        }
    }

    /// Copies the context without an identity.
    #[must_use]
    pub fn without_identity(&self) -> Self {
        self.kept(|key| key != IDENTITY_KEY && !key.starts_with(CLAIM_PREFIX))
    }

    /// The part of a context that a client may send: the hint for the placement director, and the
    /// application's own keys.
    #[must_use]
    pub fn of_client(&self) -> Self {
        self.kept(|key| !is_by_gateway(key))
    }

    /// This context with the entries of `other`, which replace its own.
    ///
    /// # Errors
    /// [`ContextError::Full`].
    pub fn merged(&self, other: &Self) -> Result<Self, ContextError> {
        if self.is_empty() {
            return Ok(other.clone());
        }
        other.iter().try_fold(self.clone(), |merged, (key, value)| merged.with(key, value))
    }
}

/// Returns true if only a gateway adds entries under this key.
fn is_by_gateway(key: &str) -> bool {
    key.starts_with(RESERVED_PREFIX) && key != HINT_KEY
}

impl fmt::Debug for RequestContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cold]
pub(crate) fn put_context(out: &mut Staged<'_>, context: &RequestContext) {
    // Each of these numbers fits: a context is bounded where it is made.
    out.put_u8(context.entries().len() as u8);
    for (key, value) in context.iter() {
        out.put_u8(key.len() as u8);
        out.put_slice(key.as_bytes());
        out.put_slice(&(value.len() as u16).to_le_bytes());
        out.put_slice(value.as_bytes());
    }
}

#[cold]
pub(crate) fn read_context(input: &mut Reader<'_>) -> Result<RequestContext, HeaderError> {
    const FIELD: &str = "a request context";
    let count = input.u8(FIELD)?;
    let wrong = HeaderError::Value { field: FIELD, value: u64::from(count) };
    let mut context = RequestContext::EMPTY;
    let text = |bytes: &[u8]| str::from_utf8(bytes).map(str::to_owned).map_err(|_| wrong);
    let mut last = String::new();
    for _ in 0..count {
        let key_bytes = usize::from(input.u8(FIELD)?);
        let key = text(input.bytes(key_bytes, FIELD)?)?;
        let value_bytes = usize::from(input.u16(FIELD)?);
        let value = text(input.bytes(value_bytes, FIELD)?)?;
        // In order, so that each key is there once.
        if key <= last {
            return Err(wrong);
        }
        context = context.with(&key, &value).map_err(|_| wrong)?;
        last = key;
    }
    // Without an entry the flag would not be set.
    if context.is_empty() { Err(wrong) } else { Ok(context) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_kept_in_order_each_key_once() {
        let context = RequestContext::EMPTY.with("b", "1").unwrap().with("a", "2").unwrap();
        let context = context.with("b", "3").unwrap();
        assert_eq!(context.iter().collect::<Vec<_>>(), [("a", "2"), ("b", "3")]);
        assert_eq!((context.get("b"), context.get("c")), (Some("3"), None));
        let other = RequestContext::EMPTY.with("a", "4").unwrap();
        assert_eq!(context.merged(&other).unwrap().get("a"), Some("4"));
        assert_eq!(RequestContext::EMPTY.merged(&other).unwrap(), other);
        let hinted = other.with(HINT_KEY, "x").unwrap();
        assert!(hinted.inherited() == other && other.inherited() == other);
        assert!(other.without("a").is_empty() && !other.without("b").is_empty());
    }

    #[test]
    fn it_takes_no_more_than_it_may() {
        let empty = RequestContext::EMPTY;
        assert!(matches!(empty.with("", "x"), Err(ContextError::Key(_))));
        assert!(matches!(empty.with(&"k".repeat(65), "x"), Err(ContextError::Key(_))));
        assert!(empty.with("k", &"v".repeat(CONTEXT_BYTES_MAX - 1)).is_ok());
        assert!(matches!(
            empty.with("k", &"v".repeat(CONTEXT_BYTES_MAX)),
            Err(ContextError::Full(_))
        ));
        let full = (0..CONTEXT_ENTRIES_MAX)
            .fold(empty, |context, n| context.with(&n.to_string(), "").unwrap());
        assert!(full.with("one more", "").is_err() && full.with("7", "x").is_ok());
        // The entries of a gateway have room of their own.
        let added = full.with(OUTSIDE_KEY, "1").unwrap().with(IDENTITY_KEY, "me").unwrap();
        let full = added.without("7").with("7", &"v".repeat(3_500)).unwrap();
        assert!(full.with(IDENTITY_KEY, &"i".repeat(3_500)).is_ok());
        assert!(full.with(IDENTITY_KEY, &"i".repeat(CONTEXT_BYTES_MAX)).is_err());
        assert!(full.with(HINT_KEY, "x").is_err(), "a client may say that");
    }
}
