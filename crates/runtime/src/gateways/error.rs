//! The failure of a client that did not connect.

use std::fmt;

use emmer_core::ClusterId;
use emmer_store::{StoreError, StoreErrorKind};

use crate::options::OptionError;
use crate::stores::STORE_VARIABLE;

/// The failure of a client that did not connect.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The system store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No store was given.
    #[error("no store is configured: call .store(...) or .gateways(...), or set {STORE_VARIABLE}")]
    NoStore,
    /// An option cannot be worked with.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// TLS cannot be used as it was asked for.
    #[cfg(feature = "tls")]
    #[error("TLS: {0}")]
    Tls(#[from] emmer_net::tls::TlsError),
    /// No name of the list of gateways is known.
    #[error("no gateway of the list has an address: {0}")]
    Unresolved(String),
    /// The table names no Active silo with a gateway.
    #[error("cluster {cluster:?} has no Active silo with a gateway in this store: {found}")]
    NoGateway {
        /// The cluster.
        cluster: ClusterId,
        /// Text about the clusters that the store has instead.
        found: String,
    },
    /// No gateway could be connected to.
    #[error("no gateway of cluster {cluster:?} can be connected to: {detail}")]
    Unreachable {
        /// The cluster.
        cluster: ClusterId,
        /// Words of the last gateway that was tried.
        detail: String,
    },
}

impl ConnectError {
    /// Returns true if another try may go better.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            // Its cluster may not have made the store yet.
            Self::Store(error) => {
                matches!(error.kind, StoreErrorKind::Unavailable | StoreErrorKind::NotFound)
            }
            Self::NoGateway { .. } | Self::Unreachable { .. } | Self::Unresolved(_) => true,
            _ => false,
        }
    }
}

/// The sentence, which a `main` or an `unwrap` shows.
impl fmt::Debug for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
