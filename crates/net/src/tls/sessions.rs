//! The beginnings of sessions: configurations of rustls, made from the contents of the files.

use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::danger::ServerCertVerifier;
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, kx_group};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage, WebPkiClientVerifier,
};
use rustls::version::TLS13;
use rustls::{CertificateError, ClientConfig, Error, RootCertStore, ServerConfig};

use super::Role;
use super::files::{Anchor, Own};
use super::names::Names;
use super::secret::{self, Keys, Pinned};

/// The protocol inside the session: no other protocol's peer gets in by mistake.
const ALPN: &[u8] = b"emmer/1";

/// The ways in which this process begins sessions.
#[derive(Debug)]
pub(super) struct Sessions {
    /// Of the dialer.
    pub(super) dialing: Arc<ClientConfig>,
    /// Of the acceptor, at the silos' port and at the clients'; none for a client.
    pub(super) accepting: Option<(Arc<ServerConfig>, Arc<ServerConfig>)>,
}

impl Sessions {
    pub(super) fn new(
        believed: &[Anchor],
        own: Option<&Own>,
        anonymous_clients: bool,
    ) -> Result<Self, Error> {
        let checks = Checks::new(believed)?;
        let dialing = Arc::new(dialing(&checks, own)?);
        let accepting = match own {
            None => None,
            Some(own) => {
                let port = |anonymous| accepting(&checks, own, anonymous).map(Arc::new);
                Some((port(false)?, port(anonymous_clients)?))
            }
        };
        Ok(Self { dialing, accepting })
    }
}

/// The checks of peers.
enum Checks {
    Authorities(Arc<RootCertStore>),
    Keys(Vec<Keys>),
}

impl Checks {
    fn new(believed: &[Anchor]) -> Result<Self, Error> {
        let (mut roots, mut pinned) = (RootCertStore::empty(), Vec::new());
        for anchor in believed {
            match anchor {
                Anchor::Authority(certificate) => roots.add(certificate.clone())?,
                Anchor::Keys(keys) => pinned.push(keys.clone()),
            }
        }
        // There is one kind only.
        Ok(if pinned.is_empty() { Self::Authorities(Arc::new(roots)) } else { Self::Keys(pinned) })
    }

    fn of_silos(&self) -> Result<Arc<dyn ServerCertVerifier>, Error> {
        Ok(match self {
            Self::Authorities(roots) => {
                WebPkiServerVerifier::builder_with_provider(roots.clone(), provider())
                    .build()
                    .map_err(|e| Error::General(e.to_string()))?
            }
            Self::Keys(keys) => Arc::new(Pinned::new(keys.clone(), false)),
        })
    }

    fn of_dialers(&self, anonymous: bool) -> Result<Arc<dyn ClientCertVerifier>, Error> {
        Ok(match self {
            Self::Authorities(roots) => {
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(roots.clone(), provider());
                let verifier = if anonymous { verifier.allow_unauthenticated() } else { verifier };
                verifier.build().map_err(|e| Error::General(e.to_string()))?
            }
            Self::Keys(keys) => Arc::new(Pinned::new(keys.clone(), anonymous)),
        })
    }
}

/// The algorithms. The first key exchange holds against quantum computers as well: a later one
/// cannot read recorded bytes. A peer that does not know it takes the second.
fn provider() -> Arc<CryptoProvider> {
    let kx_groups =
        vec![kx_group::X25519MLKEM768, kx_group::X25519, kx_group::SECP256R1, kx_group::SECP384R1];
    Arc::new(CryptoProvider { kx_groups, ..aws_lc_rs::default_provider() })
}

fn dialing(checks: &Checks, own: Option<&Own>) -> Result<ClientConfig, Error> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(checks.of_silos()?);
    let mut config = match own {
        Some(Own::Certificate(chain, key)) => {
            builder.with_client_auth_cert(chain.clone(), key.clone_key())?
        }
        Some(Own::Key(key)) => {
            let shown = AlwaysResolvesClientRawPublicKeys::new(secret::shown(key)?);
            builder.with_client_cert_resolver(Arc::new(shown))
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(config)
}

fn accepting(checks: &Checks, own: &Own, anonymous: bool) -> Result<ServerConfig, Error> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(checks.of_dialers(anonymous)?);
    let mut config = match own {
        Own::Certificate(chain, key) => builder.with_single_cert(chain.clone(), key.clone_key())?,
        Own::Key(key) => {
            let shown = AlwaysResolvesServerRawPublicKeys::new(secret::shown(key)?);
            builder.with_cert_resolver(Arc::new(shown))
        }
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// An HTTP server that shows this certificate to every client. With `asked` clients may show one
/// of these authorities.
pub(super) fn serving(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    asked: Option<&[Anchor]>,
) -> Result<ServerConfig, Error> {
    let config =
        ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13])?;
    let config = match asked {
        Some(believed) => {
            config.with_client_cert_verifier(Checks::new(believed)?.of_dialers(true)?)
        }
        None => config.with_no_client_auth(),
    };
    let mut config = config.with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Returns true if a certificate is too old, or too young, for those that believe the same as this
/// process.
pub(super) fn is_outdated(
    believed: &[Anchor],
    chain: &[CertificateDer<'static>],
    names: &Names,
    role: Role,
    at: SystemTime,
) -> bool {
    let (Ok(checks), [own, between @ ..]) = (Checks::new(believed), chain) else { return false };
    let at =
        UnixTime::since_unix_epoch(at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default());
    let checked = match role {
        Role::Silo => checks
            .of_silos()
            .and_then(|silos| silos.verify_server_cert(own, between, &names.silo(), &[], at))
            .map(drop),
        Role::Client => checks
            .of_dialers(false)
            .and_then(|dialers| dialers.verify_client_cert(own, between, at))
            .map(drop),
    };
    use CertificateError as E;
    matches!(
        checked,
        Err(Error::InvalidCertificate(
            E::Expired | E::ExpiredContext { .. } | E::NotValidYet | E::NotValidYetContext { .. }
        ))
    )
}
