//! Encrypted connections.

use emmer_store::StoreErrorKind;
use rustls::pki_types::ServerName;
use zookeeper_client::TlsOptions;

use crate::fault::Fault;
use crate::place::Place;

/// What the driver needs for TLS: the certificates to trust.
pub(crate) fn options(place: &Place) -> Result<TlsOptions, Fault> {
    // The driver takes the process's provider, and two are compiled in where other stores are. Somebody who set one
    // already keeps it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let invalid = |detail: String| Fault::new(StoreErrorKind::Invalid, detail);
    // The driver takes it for granted that a certificate can be for such a name.
    if let Some((host, _)) = place.hosts.iter().find(|(host, _)| ServerName::try_from(host.as_str()).is_err())
    {
        return Err(invalid(format!("{host:?} is no name that a certificate can be for")));
    }
    let Some(path) = &place.tls_ca else {
        let why =
            "tls=true needs tls_ca=FILE, the certificates (PEM) of whoever signed the servers' certificates";
        return Err(invalid(why.to_owned()));
    };
    let failed = |detail: String| invalid(format!("tls_ca {}: {detail}", path.display()));
    let pem = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    TlsOptions::default().with_pem_ca(&pem).map_err(|error| failed(error.to_string()))
}
