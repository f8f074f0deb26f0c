//! The source of the system store of silos and clients.

mod apart;
mod line;

use std::sync::Arc;

use emmer_net::world::Spawner;
use emmer_store::{StoreError, SystemStore};
use emmer_stores::CredentialSource;

pub(crate) use self::apart::Apart;

/// A system store: by URL, or opened already.
#[derive(Clone)]
pub enum StoreSource {
    /// As in `sqlite://cluster.db`.
    Url(String),
    /// An opened store, possibly shared with others in this process.
    Opened(Arc<dyn SystemStore>),
}

impl From<&str> for StoreSource {
    fn from(url: &str) -> Self {
        Self::Url(url.to_owned())
    }
}

impl From<&String> for StoreSource {
    fn from(url: &String) -> Self {
        Self::Url(url.clone())
    }
}

impl From<String> for StoreSource {
    fn from(url: String) -> Self {
        Self::Url(url)
    }
}

impl From<Arc<dyn SystemStore>> for StoreSource {
    fn from(store: Arc<dyn SystemStore>) -> Self {
        Self::Opened(store)
    }
}

/// The variable of the environment that names the store of a silo or client whose program does not.
pub(crate) const STORE_VARIABLE: &str = "EMMER_STORE";

impl StoreSource {
    /// The store that the program names, or the environment.
    pub(crate) fn or_environment(named: Option<Self>) -> Option<Self> {
        let of_environment = || std::env::var(STORE_VARIABLE).ok().filter(|url| !url.is_empty());
        named.or_else(|| of_environment().map(Self::Url))
    }

    /// Opens it for a program that only reads.
    pub(crate) async fn open_to_read(
        self,
        credentials: Option<CredentialSource>,
    ) -> Result<Arc<dyn SystemStore>, StoreError> {
        match self {
            Self::Url(url) => emmer_stores::open_to_read_with(&url, credentials).await,
            Self::Opened(store) => Ok(store),
        }
    }

    /// Returns true if the application has opened it.
    pub(crate) const fn is_opened(&self) -> bool {
        matches!(self, Self::Opened(_))
    }

    /// Opens it a second time, for what keeps a silo alive: connections that no grain uses, driven
    /// by `own`. None where the store has no connections to share, or is open already and cannot be
    /// opened again.
    pub(crate) async fn open_reserve(
        self,
        credentials: Option<CredentialSource>,
        own: &Spawner,
    ) -> Result<Option<Arc<dyn SystemStore>>, StoreError> {
        match self {
            Self::Url(url) if emmer_stores::has_connections(&url) => {
                let open = async move { emmer_stores::open_with(&url, credentials).await };
                own.run(open).await.transpose()
            }
            Self::Url(_) | Self::Opened(_) => Ok(None),
        }
    }

    pub(crate) async fn open(
        self,
        credentials: Option<CredentialSource>,
    ) -> Result<Arc<dyn SystemStore>, StoreError> {
        match self {
            Self::Url(url) => emmer_stores::open_with(&url, credentials).await,
            Self::Opened(store) => Ok(store),
        }
    }
}
