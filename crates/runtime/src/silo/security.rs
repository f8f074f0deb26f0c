//! The security of a silo's connections.

use super::{SiloBuilder, StartError};
use crate::net::Security;
#[cfg(feature = "tls")]
use crate::tls::{Role, Tls};

#[cfg(feature = "tls")]
impl SiloBuilder {
    /// Encrypts the connections to other silos and to clients, and lets nobody in that shows no
    /// certificate of this cluster.
    ///
    /// In the virtual time of tests nothing is encrypted.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    pub(super) fn security(&self) -> Result<Security, StartError> {
        let cluster = &self.options.cluster_id;
        Ok(Security::new(self.tls.clone(), cluster, Role::Silo)?)
    }
}

#[cfg(not(feature = "tls"))]
impl SiloBuilder {
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "with TLS files are read")]
    pub(super) fn security(&self) -> Result<Security, StartError> {
        Ok(Security::default())
    }
}
