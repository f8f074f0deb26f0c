//! The beginnings of sessions: configurations of rustls, made from the contents of the files.

use std::sync::Arc;

use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::CertificateDer;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, Error, RootCertStore, ServerConfig};

use super::files::Own;

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
        authorities: impl IntoIterator<Item = CertificateDer<'static>>,
        own: Option<&Own>,
        anonymous_clients: bool,
    ) -> Result<Self, Error> {
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots.add(authority)?;
        }
        let roots = Arc::new(roots);
        let dialing = Arc::new(dialing(roots.clone(), own)?);
        let accepting = match own {
            None => None,
            Some(own) => {
                let port = |anonymous| accepting(&roots, own, anonymous).map(Arc::new);
                Some((port(false)?, port(anonymous_clients)?))
            }
        };
        Ok(Self { dialing, accepting })
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn dialing(roots: Arc<RootCertStore>, own: Option<&Own>) -> Result<ClientConfig, Error> {
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider())
        .build()
        .map_err(|e| Error::General(e.to_string()))?;
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_webpki_verifier(verifier);
    let mut config = match own {
        Some((chain, key)) => builder.with_client_auth_cert(chain.clone(), key.clone_key())?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(config)
}

fn accepting(
    roots: &Arc<RootCertStore>,
    (chain, key): &Own,
    anonymous: bool,
) -> Result<ServerConfig, Error> {
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider());
    let verifier = if anonymous { verifier.allow_unauthenticated() } else { verifier };
    let verifier: Arc<dyn ClientCertVerifier> =
        verifier.build().map_err(|e| Error::General(e.to_string()))?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain.clone(), key.clone_key())?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}
