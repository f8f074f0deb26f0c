//! The rules of the application about calls of clients.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use emmer_core::GrainKey;
use emmer_wire::RequestContext;

use super::Identity;
use crate::turn::{ContextKey, Failure, contain};

/// A call from outside the cluster, about which the application is asked.
pub struct ClientCall<'a> {
    identity: Option<&'a Identity>,
    grain_type: &'a str,
    key: &'a GrainKey,
    /// `Interface.method`.
    method: &'a str,
    context: &'a RequestContext,
}

impl<'a> ClientCall<'a> {
    pub(crate) const fn new(
        identity: Option<&'a Identity>,
        grain_type: &'a str,
        key: &'a GrainKey,
        method: &'a str,
        context: &'a RequestContext,
    ) -> Self {
        Self { identity, grain_type, key, method, context }
    }

    /// The client's identity; none if it has none.
    pub const fn identity(&self) -> Option<&Identity> {
        self.identity
    }

    /// The name of the grain type; empty if no silo hosts such a grain.
    pub const fn grain_type(&self) -> &str {
        self.grain_type
    }

    /// The key of the grain.
    pub const fn key(&self) -> &GrainKey {
        self.key
    }

    /// The name of the interface's trait; empty if no silo has the method.
    pub fn interface(&self) -> &str {
        self.method.split_once('.').map_or(self.method, |(interface, _)| interface)
    }

    /// The name of the method; empty if no silo has it.
    pub fn method(&self) -> &str {
        self.method.split_once('.').map_or(self.method, |(_, method)| method)
    }

    /// A value that the client sends along under this key, if it is a `T`. The value was not
    /// checked.
    pub fn get<T: FromStr>(&self, key: &ContextKey<T>) -> Option<T> {
        key.read(self.context)
    }
}

impl fmt::Debug for ClientCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { identity, grain_type, key, method, .. } = self;
        write!(f, "ClientCall({method} of {grain_type}/{key} by {identity:?})")
    }
}

/// The application's answer about a call from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// The call proceeds.
    Allow,
    /// The call proceeds, and carries this identity instead of the client's.
    AllowAs(Identity),
    /// It is refused: the client gets [`CallError::Rejected`](crate::turn::CallError) with these
    /// words, and nothing was executed.
    Refuse(String),
}

impl Access {
    /// Allows the call if `is_allowed`, and refuses it with these words else.
    pub fn when(is_allowed: bool, else_why: impl Into<String>) -> Self {
        if is_allowed { Self::Allow } else { Self::Refuse(else_why.into()) }
    }
}

type Hook = dyn Fn(&ClientCall<'_>) -> Access + Send + Sync;

/// The application's rules about calls from outside.
#[derive(Clone)]
pub(crate) struct Authorize(Arc<Hook>);

impl Authorize {
    pub(crate) fn new(rules: impl Fn(&ClientCall<'_>) -> Access + Send + Sync + 'static) -> Self {
        Self(Arc::new(rules))
    }

    /// Returns the identity that goes along instead of the client's, if there is one.
    ///
    /// # Errors
    /// The call is refused. Rules that panic allow nothing.
    pub(crate) fn ask(&self, call: &ClientCall<'_>) -> Result<Option<Identity>, Failure> {
        match contain(|| (self.0)(call)) {
            Ok(Access::Allow) => Ok(None),
            Ok(Access::AllowAs(identity)) => Ok(Some(identity)),
            Ok(Access::Refuse(why)) => Err(Failure::refused(why)),
            Err(panic) => {
                tracing::error!(panic, ?call, "the rules of authorisation panicked");
                Err(Failure::refused("the silo could not check whether this may be called"))
            }
        }
    }
}

impl fmt::Debug for Authorize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authorize")
    }
}
