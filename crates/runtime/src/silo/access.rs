//! The rules of the application about clients, as the builder takes them.

use std::future::Future;

use super::builder::SiloBuilder;
use crate::access::{
    Access, AdminRules, AdminVisit, Authenticate, Authorize, ClientCall, Credentials, Identity,
};

/// The application's rules, before the silo starts.
#[derive(Default)]
pub(super) struct SiloAccess {
    pub(super) authenticate: Authenticate,
    pub(super) authorize: Option<Authorize>,
    pub(super) admin: AdminRules,
}

impl SiloBuilder {
    /// Asks `hook` about each client that connects. The hook sees the token and the certificate's
    /// names. It returns the client's identity, `None` for a client without one, or the words of a
    /// refusal, which the client gets. It shares the time of the handshake, `connect_timeout`.
    /// Without a hook the first name in a client's certificate is its identity, and tokens are
    /// ignored.
    ///
    /// ```no_run
    /// use emmer::prelude::*;
    /// use emmer::access::{Credentials, Identity};
    ///
    /// # async fn claims_of(token: String) -> Result<(String, String), String> {
    /// #     Ok((token, String::new()))
    /// # }
    /// let silo = Silo::builder().authenticate(|shown: Credentials| async move {
    ///     let token = shown.token().ok_or("no token")?;
    ///     let (subject, tenant) = claims_of(token.to_owned()).await?;
    ///     Ok(Some(Identity::new(subject).claim("tenant", tenant)))
    /// });
    /// ```
    #[must_use]
    pub fn authenticate<F, W>(mut self, hook: F) -> Self
    where
        F: Fn(Credentials) -> W + Send + Sync + 'static,
        W: Future<Output = Result<Option<Identity>, String>> + Send + 'static,
    {
        self.access.authenticate = Authenticate::new(hook);
        self
    }

    /// Asks `rules` about each call that a client makes, before anything is done for it. Grains and
    /// the silos' own callers are not asked about. The rules run in place and must not block; those
    /// that have to wait belong in a [filter](Self::filter_incoming), which sees the identity too.
    ///
    /// The gateway asks if it hosts the grain type, otherwise the silo that hosts it. Give all
    /// silos the same rules.
    ///
    /// ```no_run
    /// use emmer::access::Access;
    /// use emmer::prelude::*;
    ///
    /// let silo = Silo::builder().authorize(|call| {
    ///     let role = call.identity().and_then(|client| client.get("role"));
    ///     match (call.interface(), call.method()) {
    ///         ("Cart", _) => Access::Allow,
    ///         ("Ledger", "read") => Access::when(role == Some("auditor"), "auditors only"),
    ///         _ => Access::Refuse("not for clients".to_owned()),
    ///     }
    /// });
    /// ```
    #[must_use]
    pub fn authorize(
        mut self,
        rules: impl Fn(&ClientCall<'_>) -> Access + Send + Sync + 'static,
    ) -> Self {
        self.access.authorize = Some(Authorize::new(rules));
        self
    }

    /// Asks `rules` whether a client may look at the cluster by the admin interface, or act on it.
    /// Without rules programs on the gateway's own host may, and no others. The rules run in place
    /// and must not block. Give all gateways the same rules.
    ///
    /// ```no_run
    /// use emmer::access::{Access, Right};
    /// use emmer::prelude::*;
    ///
    /// let silo = Silo::builder().authorize_admin(|visit| {
    ///     let team = visit.identity().and_then(|client| client.get("team"));
    ///     let may = match visit.right() {
    ///         Right::Look => team.is_some() || visit.is_local(),
    ///         Right::Act => team == Some("ops"),
    ///     };
    ///     Access::when(may, "not for this team")
    /// });
    /// ```
    #[must_use]
    pub fn authorize_admin(
        mut self,
        rules: impl Fn(&AdminVisit<'_>) -> Access + Send + Sync + 'static,
    ) -> Self {
        self.access.admin = AdminRules::new(rules);
        self
    }
}
