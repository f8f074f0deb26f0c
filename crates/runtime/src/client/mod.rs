//! A client outside the cluster, as its application sees it.

mod looking;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use emmer_core::backoff::Backoff;
use emmer_core::rng::SeededRng;
use emmer_core::{ClusterId, SiloAddress};
use emmer_net::credentials::{TokenError, TokenSource};
use emmer_net::transport::Security;
use emmer_net::world;
use emmer_store::BoxFuture;
use emmer_store::silos::SiloTable;
use emmer_stores::{CredentialError, CredentialSource, StoreCredentials};

pub use self::looking::{PortSecurity, port_security};
use crate::admin::{Admin, GrainName, MethodLook};
use crate::filters::{Filter, Filters};
use crate::gateways::{ClientCore, Listing, Settled, backoff};
pub use crate::gateways::{ClientState, ClientWatch, ConnectError};
use crate::grain::{CallError, GrainFactory, Interface, NoError, call_named};
use crate::metrics::SiloStatistics;
use crate::options::{ClientOptions, Setting, Wrong};
use crate::stores::StoreSource;
use crate::turn::{Failure, IntoKey};

/// Describes a client until it connects.
///
/// ```no_run
/// # use emmer::prelude::*;
/// # async fn f() -> emmer::Result<()> {
/// let client = Client::builder()
///     .cluster_id("shop")
///     .gateways(["gateways.shop.svc:30000"])
///     .wait_for_gateway("2m")
///     .connect()
///     .await?;
/// # drop(client);
/// # Ok(())
/// # }
/// ```
pub struct ClientBuilder {
    options: ClientOptions,
    wrong: Wrong,
    store: Option<StoreSource>,
    credentials: Option<CredentialSource>,
    gateways: Option<Vec<String>>,
    filters: Filters,
    discovers: bool,
    token: Option<TokenSource>,
    #[cfg(feature = "tls")]
    tls: Option<emmer_net::tls::Tls>,
}

impl ClientBuilder {
    /// Takes all settings at once; call it before the single ones.
    #[must_use]
    pub fn options(mut self, options: ClientOptions) -> Self {
        self.options = options;
        self
    }

    /// Changes some settings.
    #[must_use]
    pub fn configure(mut self, change: impl FnOnce(&mut ClientOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// The cluster's system store: a URL or an opened store. Without it the environment's
    /// `EMMER_STORE` is used.
    #[must_use]
    pub fn store(mut self, store: impl Into<StoreSource>) -> Self {
        self.store = Some(store.into());
        self.gateways = None;
        self
    }

    /// Gives the credentials of the system store instead of those in its URL, like
    /// [`SiloBuilder::store_credentials`](crate::SiloBuilder::store_credentials).
    #[must_use]
    pub fn store_credentials<F>(mut self, ask: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<StoreCredentials, CredentialError>> + Send + 'static,
    {
        self.credentials = Some(CredentialSource::new(ask));
        self
    }

    /// Gateways to connect to, each as `ip:port` or `name:port`, instead of those in the store.
    /// Such a client needs no store. A name may stand for several gateways; it is resolved again
    /// each time the list is read.
    #[must_use]
    pub fn gateways<T: Into<String>>(mut self, gateways: impl IntoIterator<Item = T>) -> Self {
        self.gateways = Some(gateways.into_iter().map(Into::into).collect());
        self.store = None;
        self
    }

    /// Asks connected gateways for gateways that the [list](Self::gateways) does not have: one that
    /// is reached tells the way to all. For networks in which a client reaches the addresses that
    /// silos tell each other.
    #[must_use]
    pub const fn discover(mut self) -> Self {
        self.discovers = true;
        self
    }

    /// The cluster to call.
    #[must_use]
    pub fn cluster_id(mut self, cluster: impl Setting<ClusterId>) -> Self {
        if let Some(cluster) = self.wrong.read("cluster_id", cluster) {
            self.options.cluster_id = cluster;
        }
        self
    }

    /// Sets the time after which [`connect`](Self::connect) begins no further try to reach a
    /// gateway, or a store that is away: a service and its cluster may start at the same time. A
    /// try under way is brought to its end, and takes at most `connect_timeout` for each gateway.
    /// Without this 30 s; zero tries once.
    #[must_use]
    pub fn wait_for_gateway(mut self, longest: impl Setting<Duration>) -> Self {
        if let Some(longest) = self.wrong.read("gateway_wait", longest) {
            self.options.gateway_wait = longest;
        }
        self
    }

    /// Encrypts the connections to gateways, and talks to silos of the cluster only.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: emmer_net::tls::Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    #[cfg(feature = "tls")]
    fn security(&self) -> Result<Security, ConnectError> {
        let cluster = &self.options.cluster_id;
        Ok(Security::new(self.tls.clone(), cluster, emmer_net::tls::Role::Client)?)
    }

    #[cfg(not(feature = "tls"))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "with TLS files are read")]
    fn security(&self) -> Result<Security, ConnectError> {
        Ok(Security::default())
    }

    /// Shows a token to each gateway that is connected to, for the silos'
    /// [`authenticate`](crate::SiloBuilder::authenticate): text of 1 to 8,192 bytes. The source is
    /// asked again for each connection, and shares the time of making it, `connect_timeout`. A
    /// token goes over encrypted connections, and to gateways on the client's own host, and nowhere
    /// else.
    ///
    /// ```no_run
    /// use emmer::prelude::*;
    ///
    /// let client = Client::builder().token(|| async { Ok("a token".to_owned()) });
    /// ```
    #[must_use]
    pub fn token<F, W>(mut self, source: F) -> Self
    where
        F: Fn() -> W + Send + Sync + 'static,
        W: Future<Output = Result<String, TokenError>> + Send + 'static,
    {
        self.token = Some(TokenSource::new(source));
        self
    }

    /// A [`Filter`] around each call of this client. The first one is outermost.
    #[must_use]
    pub fn filter(mut self, filter: impl Filter) -> Self {
        self.filters.add(filter);
        self
    }

    /// Reads the list of gateways and connects to at least one of them, waiting for one as
    /// [`wait_for_gateway`](Self::wait_for_gateway) says.
    ///
    /// # Errors
    /// [`ConnectError`]: what the last try came to.
    pub async fn connect(self) -> Result<Client, ConnectError> {
        self.boxed_connect().await
    }

    /// In a box that is made here: compiled in this crate, and not once for each program.
    fn boxed_connect(self) -> BoxFuture<'static, Result<Client, ConnectError>> {
        Box::pin(self.connect_here())
    }

    async fn connect_here(self) -> Result<Client, ConnectError> {
        let security = self.security();
        self.wrong.check()?;
        self.options.check()?;
        let security = security?;
        let mut patience = Patience::new(self.options.gateway_wait);
        let listing = match (self.store, self.gateways) {
            (_, Some(gateways)) if self.discovers => Listing::of(gateways)?.asking(),
            (_, Some(gateways)) => Listing::of(gateways)?,
            (store, None) => {
                let source = StoreSource::or_environment(store).ok_or(ConnectError::NoStore)?;
                loop {
                    let credentials = self.credentials.clone();
                    match open(source.clone(), credentials, &self.options).await {
                        Ok(table) => break Listing::Table(table),
                        Err(error) => patience.after(error).await?,
                    }
                }
            }
        };
        let core = Arc::new(ClientCore::new(
            self.options,
            self.filters,
            listing,
            security.clone(),
            self.token,
        ));
        loop {
            // Dials that are under way when the time is over have theirs.
            if !(core.is_dialling() && patience.is_over())
                && let Err(error) = core.refresh().await
            {
                patience.after(error).await?;
                continue;
            }
            match core.settled().await {
                Settled::Connected => break,
                Settled::ReadAgain => {}
                Settled::Failed(detail) => {
                    let detail = detail.unwrap_or_else(|| "no dial has ended".to_owned());
                    let cluster = core.options.cluster_id.clone();
                    patience.after(ConnectError::Unreachable { cluster, detail }).await?;
                }
            }
        }
        world::spawn(core.clone().keep_connected());
        world::spawn(core.clone().tick());
        world::spawn(core.clone().turn_wheel());
        core.send_streams();
        security.keep_current(core.closed.clone());
        let records = &core.options.records;
        if !records.metrics_period.is_zero() || !records.statistics_period.is_zero() {
            world::spawn(core.clone().record());
        }
        Ok(Client { core })
    }
}

async fn open(
    store: StoreSource,
    credentials: Option<CredentialSource>,
    options: &ClientOptions,
) -> Result<SiloTable, ConnectError> {
    // A client only reads: it may lack other rights, and makes nothing where its address is wrong.
    let store = store.open_to_read(credentials).await?;
    let table = SiloTable::new(store, options.cluster_id.clone());
    Ok(table.with_rows_max(options.limits.membership_rows_max))
}

/// Time that is left to connect.
struct Patience {
    until: tokio::time::Instant,
    backoff: Backoff,
    rng: SeededRng,
    is_told: bool,
}

impl Patience {
    fn new(longest: Duration) -> Self {
        let backoff = backoff();
        let rng = SeededRng::new(world::random_bits());
        Self { until: tokio::time::Instant::now() + longest, backoff, rng, is_told: false }
    }

    fn is_over(&self) -> bool {
        tokio::time::Instant::now() >= self.until
    }

    /// Pauses before another try.
    ///
    /// # Errors
    /// The error of the last one: it does not pass, or there is no time left.
    async fn after(&mut self, error: ConnectError) -> Result<(), ConnectError> {
        let next = tokio::time::Instant::now() + self.backoff.next_delay(&mut self.rng);
        if !error.may_pass() || next > self.until {
            return Err(error);
        }
        if !std::mem::replace(&mut self.is_told, true) {
            tracing::info!(%error, "a client waits for a gateway");
        }
        tokio::time::sleep_until(next).await;
        Ok(())
    }
}

/// A connected client. Cheap to clone, for any number of tasks. Dropping the last clone of it and
/// of its references ends its connections.
///
/// ```no_run
/// use emmer::prelude::*;
/// # #[grain_interface(key = String)]
/// # pub trait Cart {
/// #     async fn put(&mut self, item: String) -> usize;
/// # }
/// # async fn f() -> emmer::Result<()> {
/// let client = Client::connect("sqlite://cluster.db", "shop").await?;
/// let items = client.grain::<dyn Cart>("ann").put("tea".to_owned()).timeout(secs(2)).await?;
/// client.close().await;
/// # drop(items);
/// # Ok(())
/// # }
/// ```
pub struct Client {
    core: Arc<ClientCore>,
}

impl Client {
    /// A client of a cluster, whose gateways the store names:
    /// `Client::connect("sqlite://cluster.db", "shop")`.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect(
        store: impl Into<StoreSource>,
        cluster: impl Setting<ClusterId>,
    ) -> Result<Self, ConnectError> {
        Self::builder().store(store).cluster_id(cluster).connect().await
    }

    /// Begins to describe a client.
    pub fn builder() -> ClientBuilder {
        ClientBuilder {
            options: ClientOptions::default(),
            wrong: Wrong::default(),
            store: None,
            credentials: None,
            gateways: None,
            filters: Filters::default(),
            discovers: false,
            token: None,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// A reference to the grain `key` behind interface `I`, as in
    /// `client.grain::<dyn Counter>("home")`.
    pub fn grain<I: Interface + ?Sized>(&self, key: impl IntoKey<I::Key>) -> I::Ref {
        self.grains().grain::<I>(key)
    }

    /// The way to make references, for passing on.
    pub fn grains(&self) -> GrainFactory {
        GrainFactory::of_client(self.core.clone())
    }

    /// The gateways this client is connected to now.
    pub fn gateways(&self) -> Vec<SiloAddress> {
        self.core.connected()
    }

    /// Tells which gateways are connected, and when that changes.
    pub fn gateway_watch(&self) -> ClientWatch {
        ClientWatch::new(self.core.clone())
    }

    /// The counters of every connected gateway that answers within two seconds.
    pub async fn statistics(&self) -> Vec<(SiloAddress, SiloStatistics)> {
        self.core.statistics(Duration::from_secs(2)).await
    }

    /// Calls a method by the names that the admin interface gives it
    /// ([`TypeLook`](crate::admin::TypeLook)). `arguments` are a MessagePack map by the names of
    /// the arguments. The answer is the return value in MessagePack: of a method that returns a
    /// `Result` a map with `Ok` or `Err`. Without a timeout the client's `response_timeout` counts.
    /// Methods with streams cannot be called so.
    ///
    /// # Errors
    /// As any call.
    pub async fn call_by_name(
        &self,
        grain: &GrainName,
        method: &MethodLook,
        arguments: Bytes,
        timeout: Option<Duration>,
    ) -> Result<Bytes, CallError<NoError>> {
        if method.is_stream {
            let why = "a method with streams cannot be called by name";
            return Err(Failure::refused(why));
        }
        call_named(&self.grains(), grain, method, arguments, timeout).await
    }

    /// Questions about the cluster, and orders to it, as far as the gateways' rules let this client
    /// ([`SiloBuilder::authorize_admin`](crate::SiloBuilder::authorize_admin)).
    pub fn admin(&self) -> Admin {
        Admin::new(self.core.clone())
    }

    /// Tells every connected gateway that the membership table has changed, so that they read it
    /// now and not within a minute: for a program that has written there
    /// ([`SiloTable::change_duty`]).
    pub fn table_has_changed(&self) {
        self.core.table_has_changed();
    }

    /// Ends the connections. Calls under way fail with `ShuttingDown` or `Unreachable`.
    pub async fn close(&self) {
        self.core.close();
        tokio::task::yield_now().await;
    }
}

impl Clone for Client {
    fn clone(&self) -> Self {
        Self { core: self.core.clone() }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("gateways", &self.gateways()).finish_non_exhaustive()
    }
}
