//! The identity of a caller.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use emmer_wire::{CLAIM_PREFIX, ContextError, IDENTITY_KEY, RequestContext};

/// The identity of a client: a name, and claims about its owner.
///
/// The client's calls and all that follow from them carry it, as they carry the [request
/// context](crate::turn::ContextKey). It shares the context's room: name and claims together have
/// some kilobytes. Clients cannot set it.
///
/// ```
/// use emmer::access::Identity;
///
/// let ann = Identity::new("ann").claim("role", "clerk");
/// assert_eq!((ann.name(), ann.get("role")), ("ann", Some("clerk")));
/// // In a method of a grain: None if the call comes from no client that has an identity.
/// assert_eq!(Identity::of_caller(), None);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    name: Arc<str>,
    claims: BTreeMap<Arc<str>, Arc<str>>,
    until: Option<SystemTime>,
}

impl Identity {
    /// One of this name.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), claims: BTreeMap::new(), until: None }
    }

    /// Says something about its owner: a role, a tenant. The last one of a key counts.
    #[must_use]
    pub fn claim(mut self, key: impl Into<Arc<str>>, value: impl Into<Arc<str>>) -> Self {
        self.claims.insert(key.into(), value.into());
        self
    }

    /// It ends then: the client is asked to connect again, and to show a fresh token. Calls that
    /// have begun are answered first, for half a minute at most.
    #[must_use]
    pub const fn until(mut self, end: SystemTime) -> Self {
        self.until = Some(end);
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value of a claim, if there is one.
    pub fn get(&self, claim: &str) -> Option<&str> {
        self.claims.get(claim).map(|value| &**value)
    }

    /// The claims, ordered by their keys.
    pub fn claims(&self) -> impl Iterator<Item = (&str, &str)> {
        self.claims.iter().map(|(key, value)| (&**key, &**value))
    }

    pub(crate) const fn end(&self) -> Option<SystemTime> {
        self.until
    }

    /// The identity in a context.
    pub(crate) fn read(context: &RequestContext) -> Option<Self> {
        let named = Self::new(context.get(IDENTITY_KEY)?);
        let claims = context.iter().filter_map(|(key, value)| {
            Some((Arc::from(key.strip_prefix(CLAIM_PREFIX)?), Arc::from(value)))
        });
        Some(Self { claims: claims.collect(), ..named })
    }

    /// A context in which this identity replaces another one.
    pub(crate) fn put(&self, context: &RequestContext) -> Result<RequestContext, ContextError> {
        let context = context.without_identity().with(IDENTITY_KEY, &self.name)?;
        self.claims().try_fold(context, |context, (key, value)| {
            context.with(&format!("{CLAIM_PREFIX}{key}"), value)
        })
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// The name, and the keys of the claims: their values may be private.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<_> = self.claims().map(|(key, _)| key).collect();
        write!(f, "Identity({:?}, claims: {keys:?})", &*self.name)
    }
}
