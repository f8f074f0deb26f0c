//! Credentials that a client shows, and the proof that its connection keeps.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use emmer_wire::{TOKEN_BYTES_MAX, Token};
use futures_util::future::BoxFuture;

use crate::contain::contained;

/// The credentials that a client shows when it connects.
#[derive(Clone)]
pub struct Credentials {
    token: Option<Token>,
    names: Vec<String>,
    address: SocketAddr,
    is_encrypted: bool,
}

impl Credentials {
    /// The credentials of a client that connects from `address`.
    pub const fn new(
        token: Option<Token>,
        names: Vec<String>,
        address: SocketAddr,
        is_encrypted: bool,
    ) -> Self {
        Self { token, names, address, is_encrypted }
    }

    /// The client's token (`ClientBuilder::token`), if it shows one.
    pub fn token(&self) -> Option<&str> {
        self.token.as_ref().map(Token::text)
    }

    /// DNS names and URIs in the client's certificate, without `client.CLUSTER.emmer`. Empty
    /// without a certificate.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The address that the connection comes from, which may be that of a proxy.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// True if the connection is encrypted and cannot be changed on the way.
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

/// A client that was let in, as its connection keeps it.
#[derive(Clone)]
pub struct Admitted {
    /// Expiry of the proof. The silo then asks the client to reconnect.
    pub until: Option<SystemTime>,
    /// Identity of the client. Its type belongs to the code above connections.
    pub proof: Arc<dyn Any + Send + Sync>,
}

impl fmt::Debug for Admitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admitted").field("until", &self.until).finish_non_exhaustive()
    }
}

type Answer = BoxFuture<'static, Result<Option<Admitted>, String>>;

/// Hook that turns a client's credentials into its identity.
#[derive(Clone)]
pub struct Admit(Arc<dyn Fn(Credentials) -> Answer + Send + Sync>);

impl Admit {
    /// Wraps `admit`, which returns None for a client without an identity, and an error text for a
    /// refused client.
    pub fn new(admit: impl Fn(Credentials) -> Answer + Send + Sync + 'static) -> Self {
        Self(Arc::new(admit))
    }

    pub(crate) fn ask(&self, shown: Credentials) -> Answer {
        (self.0)(shown)
    }
}

impl fmt::Debug for Admit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Admit")
    }
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
pub struct TokenSource(Arc<Source>);

impl TokenSource {
    /// The source that calls `source` for each connection.
    pub fn new<F, W>(source: F) -> Self
    where
        F: Fn() -> W + Send + Sync + 'static,
        W: Future<Output = Result<String, TokenError>> + Send + 'static,
    {
        Self(Arc::new(move || Box::pin(source())))
    }

    /// A token for one connection.
    pub async fn token(&self) -> Result<Token, TokenError> {
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
