//! The names in certificates.
//!
//! A silo of cluster `shop` has the DNS name `silo.shop.emmer`, a client `client.shop.emmer`. So
//! one authority may serve several clusters, and a client's certificate opens no silo's port. If a
//! silo's certificate also names addresses, its owner is at one of them.

use std::fmt;
use std::net::IpAddr;

use emmer_core::ClusterId;
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error};

use super::TlsError;

/// The role of an owner, as the certificate says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A silo.
    Silo,
    /// A client.
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

    /// The role of a certificate's owner in this cluster, and the certificate's other names.
    pub(super) fn shown(&self, certificate: &CertificateDer<'_>) -> Result<Shown, Error> {
        let parsed = ParsedCertificate::try_from(certificate)?;
        let role = match verify_server_name(&parsed, &self.silo) {
            Ok(()) => Role::Silo,
            Err(_) => verify_server_name(&parsed, &self.client).map(|()| Role::Client)?,
        };
        let (silo, client) = (self.silo.to_str(), self.client.to_str());
        let is_role =
            |name: &&str| name.eq_ignore_ascii_case(&silo) || name.eq_ignore_ascii_case(&client);
        let entity = webpki::EndEntityCert::try_from(certificate)
            .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
        let names = entity.valid_dns_names().chain(entity.valid_uri_names());
        let names = names.filter(|name| !is_role(name)).map(str::to_owned).collect();
        Ok(Shown { role, names, certificate: Some(certificate.clone().into_owned()) })
    }
}

/// The proof that a peer has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub role: Role,
    /// The names in its certificate, without that of its role.
    pub names: Vec<String>,
    /// None if it has shown a key.
    certificate: Option<CertificateDer<'static>>,
}

impl Shown {
    /// The owner of a key, which has no names.
    pub(super) fn key(role: Role) -> Self {
        Self { role, names: Vec::new(), certificate: None }
    }

    /// Returns the addresses in the certificate, for people, if there are some and `address` is not
    /// among them: its owner is not the silo there.
    pub(crate) fn is_elsewhere(&self, address: IpAddr) -> Option<String> {
        let parsed = ParsedCertificate::try_from(self.certificate.as_ref()?).ok()?;
        match verify_server_name(&parsed, &ServerName::from(address)) {
            Err(Error::InvalidCertificate(CertificateError::NotValidForNameContext {
                presented,
                ..
            })) => {
                let of_address = |name: &String| {
                    Some(name.strip_prefix("IpAddress(")?.strip_suffix(')')?.to_owned())
                };
                let named: Vec<_> = presented.iter().filter_map(of_address).collect();
                (!named.is_empty()).then(|| named.join(", "))
            }
            _ => None,
        }
    }
}
