//! The names in certificates.
//!
//! A silo of cluster `shop` has the DNS name `silo.shop.emmer`, a client `client.shop.emmer`. So
//! one authority may serve several clusters, and a client's certificate opens no silo's port.

use std::fmt;

use emmer_core::ClusterId;
use rustls::Error;
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;

use super::TlsError;

/// The role of an owner, as the certificate says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Silo,
    Client,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Silo => "silo",
            Self::Client => "client",
        })
    }
}

/// The names of one cluster.
#[derive(Clone, Debug)]
pub(super) struct Names {
    silo: ServerName<'static>,
    client: ServerName<'static>,
}

impl Names {
    pub(super) fn new(cluster: &ClusterId) -> Result<Self, TlsError> {
        let name = |role: &str| {
            let name = format!("{role}.{cluster}.emmer");
            match ServerName::try_from(name) {
                Ok(name @ ServerName::DnsName(_)) => Ok(name),
                _ => Err(TlsError::Name { cluster: cluster.to_string() }),
            }
        };
        Ok(Self { silo: name("silo")?, client: name("client")? })
    }

    /// The name that a process has to show, for people.
    pub(super) fn expected(&self, role: Role) -> String {
        let name = match role {
            Role::Silo => &self.silo,
            Role::Client => &self.client,
        };
        format!("expected the DNS name `{}`", name.to_str())
    }

    /// The name that silos show.
    pub(super) fn silo(&self) -> ServerName<'static> {
        self.silo.clone()
    }

    /// The role that a certificate gives its owner in this cluster.
    pub(super) fn role(&self, certificate: &CertificateDer<'_>) -> Result<Role, Error> {
        let parsed = ParsedCertificate::try_from(certificate)?;
        if verify_server_name(&parsed, &self.silo).is_ok() {
            return Ok(Role::Silo);
        }
        verify_server_name(&parsed, &self.client).map(|()| Role::Client)
    }
}
