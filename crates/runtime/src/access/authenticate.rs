//! Clients prove themselves when they connect.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use emmer_store::BoxFuture;
use emmer_wire::{CallChain, RequestContext, TOKEN_BYTES_MAX, Token};

use super::Identity;
use crate::turn::contained;

/// The credentials that a client shows when it connects.
#[derive(Clone)]
pub struct Credentials {
    token: Option<Token>,
    names: Vec<String>,
    address: SocketAddr,
    is_encrypted: bool,
}

impl Credentials {
    pub(crate) const fn new(
        token: Option<Token>,
        names: Vec<String>,
        address: SocketAddr,
        is_encrypted: bool,
    ) -> Self {
        Self { token, names, address, is_encrypted }
    }

    /// The client's token ([`ClientBuilder::token`](crate::ClientBuilder::token)), if it shows one.
    pub fn token(&self) -> Option<&str> {
        self.token.as_ref().map(Token::text)
    }

    /// The names in the client's certificate, DNS names and URIs, beside the one that says that it
    /// is a client of this cluster. None without a certificate.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The address that the connection comes from, which may be that of a proxy.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// True if nobody on the way can read or change what the connection carries.
    pub const fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("token", &self.token)
            .field("names", &self.names)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

type Hook =
    dyn Fn(Credentials) -> BoxFuture<'static, Result<Option<Identity>, String>> + Send + Sync;

/// The application's way from credentials to an identity.
#[derive(Clone, Default)]
pub(crate) struct Authenticate(Option<Arc<Hook>>);

impl Authenticate {
    pub(crate) fn new<F, W>(hook: F) -> Self
    where
        F: Fn(Credentials) -> W + Send + Sync + 'static,
        W: Future<Output = Result<Option<Identity>, String>> + Send + 'static,
    {
        Self(Some(Arc::new(move |shown| Box::pin(hook(shown)))))
    }
}

impl fmt::Debug for Authenticate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Authenticate").field(&self.0.is_some()).finish()
    }
}

/// A client with an identity, as its connection keeps it.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) identity: Identity,
    /// A call that takes nothing else along.
    pub(crate) plain: CallChain,
}

/// Lets a client in, with the identity that it has; none if it has none.
///
/// # Errors
/// The application refuses it, in words for the client.
pub(crate) async fn admit(
    authenticate: &Authenticate,
    shown: Credentials,
) -> Result<Option<Admitted>, String> {
    let identity = match &authenticate.0 {
        None => shown.names.first().map(|name| Identity::new(name.as_str())),
        Some(hook) => {
            // The hook may panic before it has a future.
            let answered = contained(async { hook(shown).await }).await.map_err(|panic| {
                tracing::error!(panic, "a client could not be authenticated");
                "the silo could not check who this is".to_owned()
            })?;
            answered?
        }
    };
    let Some(identity) = identity else { return Ok(None) };
    let context = identity.put(&RequestContext::EMPTY);
    let context =
        context.map_err(|why| format!("the identity cannot go along with calls: {why}"))?;
    Ok(Some(Admitted { identity, plain: CallChain::EMPTY.with_context(context) }))
}

/// Why a client has no token to show. It does not connect, and tries again as if the gateway were
/// away.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no token to show: {0}")]
pub struct TokenError(String);

impl TokenError {
    /// For this reason.
    pub fn new(why: impl fmt::Display) -> Self {
        Self(why.to_string())
    }
}

type Source = dyn Fn() -> BoxFuture<'static, Result<String, TokenError>> + Send + Sync;

/// The source of a client's tokens.
#[derive(Clone)]
pub(crate) struct TokenSource(Arc<Source>);

impl TokenSource {
    pub(crate) fn new<F, W>(source: F) -> Self
    where
        F: Fn() -> W + Send + Sync + 'static,
        W: Future<Output = Result<String, TokenError>> + Send + 'static,
    {
        Self(Arc::new(move || Box::pin(source())))
    }

    /// A token for one connection.
    pub(crate) async fn token(&self) -> Result<Token, TokenError> {
        let text = contained(async { (self.0)().await }).await.map_err(TokenError::new)??;
        let bytes = text.len();
        Token::new(text).ok_or_else(|| {
            TokenError::new(format!("expected 1 to {TOKEN_BYTES_MAX} bytes, it has {bytes}"))
        })
    }
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenSource")
    }
}
