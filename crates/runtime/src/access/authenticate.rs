//! Clients prove themselves when they connect.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use emmer_net::contain::contained;
use emmer_net::credentials::{Admit, Admitted, Credentials};
use emmer_store::BoxFuture;
use emmer_wire::{CallChain, RequestContext};

use super::Identity;

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

    /// Returns the hook that connections call.
    pub(crate) fn admission(self) -> Admit {
        Admit::new(move |shown| Box::pin(admit(self.clone(), shown)))
    }
}

impl fmt::Debug for Authenticate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Authenticate").field(&self.0.is_some()).finish()
    }
}

/// Client with an identity: the proof that its connection keeps.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) identity: Identity,
    /// A call that takes nothing else along.
    pub(crate) plain: CallChain,
}

/// Lets a client in, with the identity that it has; none if it has none.
///
/// # Errors
/// The application refuses it, in words for the client.
async fn admit(authenticate: Authenticate, shown: Credentials) -> Result<Option<Admitted>, String> {
    let identity = match &authenticate.0 {
        None => shown.names().first().map(|name| Identity::new(name.as_str())),
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
    let until = identity.end();
    let known = Known { identity, plain: CallChain::EMPTY.with_context(context) };
    Ok(Some(Admitted { until, proof: Arc::new(known) }))
}
