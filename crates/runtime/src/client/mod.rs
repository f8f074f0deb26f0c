//! A client outside the cluster: finds gateways through the system store, keeps connections to some
//! of them, and calls grains through them.

mod gateways;
mod message;
mod records;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use emmer_core::{ClusterId, SiloAddress};
use emmer_store::StoreError;
use emmer_store::silos::SiloTable;

pub(crate) use self::gateways::ClientCore;
pub(crate) use self::message::{ClientFigures, GatewayMessage};
use crate::filters::{Filter, Filters};
use crate::grain::{ClusterClient, Interface, IntoKey};
use crate::metrics::SiloStatistics;
use crate::options::{ClientOptions, OptionError};
use crate::stores::{NoStores, STORE_VARIABLE, StoreOpener, StoreSource};
use crate::world;

/// Why a client did not connect.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The system store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No store was given.
    #[error("no store is configured: call .store(...) or set {STORE_VARIABLE}")]
    NoStore,
    /// An option cannot be worked with.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// The table names no Active silo with a gateway.
    #[error("cluster {0:?} has no Active silo with a gateway in this store")]
    NoGateway(ClusterId),
    /// No gateway could be connected to.
    #[error("no gateway of cluster {cluster:?} can be connected to: {detail}")]
    Unreachable {
        /// The cluster.
        cluster: ClusterId,
        /// What the last gateway tried said.
        detail: String,
    },
}

/// The sentence, which a `main` or an `unwrap` shows.
impl fmt::Debug for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Describes a client until it connects.
pub struct ClientBuilder<S: StoreOpener> {
    options: ClientOptions,
    store: Option<StoreSource>,
    filters: Filters,
    stores: PhantomData<fn() -> S>,
}

impl<S: StoreOpener> ClientBuilder<S> {
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
        self
    }

    /// The cluster to call.
    #[must_use]
    pub fn cluster_id(mut self, cluster: ClusterId) -> Self {
        self.options.cluster_id = cluster;
        self
    }

    /// A [`Filter`] around each call of this client. The first one is outermost.
    #[must_use]
    pub fn filter(mut self, filter: impl Filter) -> Self {
        self.filters.add(filter);
        self
    }

    /// Reads the list of gateways and connects to at least one of them.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect(self) -> Result<Client<S>, ConnectError> {
        self.options.check()?;
        let store = StoreSource::or_environment(self.store).ok_or(ConnectError::NoStore)?;
        let store = store.open::<S>().await?;
        let table = SiloTable::new(store, self.options.cluster_id.clone());
        table.ensure().await?;
        let core = Arc::new(ClientCore::new(self.options, self.filters, table));
        core.refresh().await?;
        world::spawn(core.clone().keep_connected());
        world::spawn(core.clone().tick());
        let records = &core.options.records;
        if !records.metrics_period.is_zero() || !records.statistics_period.is_zero() {
            world::spawn(core.clone().record());
        }
        Ok(Client { core, stores: PhantomData })
    }
}

/// A connected client. Dropping the last clone of it and of its references ends its connections.
pub struct Client<S: StoreOpener = NoStores> {
    core: Arc<ClientCore>,
    stores: PhantomData<fn() -> S>,
}

impl<S: StoreOpener> Client<S> {
    /// Begins to describe a client.
    pub fn builder() -> ClientBuilder<S> {
        ClientBuilder {
            options: ClientOptions::default(),
            store: None,
            filters: Filters::default(),
            stores: PhantomData,
        }
    }

    /// A reference to the grain `key` behind interface `I`, as in
    /// `client.grain::<dyn Counter>("home")`.
    pub fn grain<I: Interface + ?Sized>(&self, key: impl IntoKey<I::Key>) -> I::Ref {
        self.grains().grain::<I>(key)
    }

    /// The way to make references, for passing on.
    pub fn grains(&self) -> ClusterClient {
        ClusterClient::of_client(self.core.clone())
    }

    /// The gateways this client is connected to now.
    pub fn gateways(&self) -> Vec<SiloAddress> {
        self.core.connected()
    }

    /// The counters of every connected gateway that answers within two seconds.
    pub async fn statistics(&self) -> Vec<(SiloAddress, SiloStatistics)> {
        self.core.statistics(Duration::from_secs(2)).await
    }

    /// Ends the connections. Calls under way fail with `ShuttingDown` or `Unreachable`.
    pub async fn close(&self) {
        self.core.close();
        tokio::task::yield_now().await;
    }
}

impl<S: StoreOpener> Clone for Client<S> {
    fn clone(&self) -> Self {
        Self { core: self.core.clone(), stores: PhantomData }
    }
}

impl<S: StoreOpener> fmt::Debug for Client<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("gateways", &self.gateways()).finish_non_exhaustive()
    }
}
