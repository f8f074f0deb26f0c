//! Encrypted connections.

use std::sync::Arc;

use emmer_store::StoreErrorKind;
use emmer_store_keyvalue::Fault;
use emmer_store_keyvalue::tls::{install_provider, read_certificates};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

/// Configuration for the driver: the trusted authorities in a PEM file or those of the system.
pub(crate) fn config(file: Option<&str>) -> Result<Arc<ClientConfig>, Fault> {
    install_provider();
    let mut roots = RootCertStore::empty();
    let invalid = |detail: String| Fault::new(StoreErrorKind::Invalid, detail);
    match file {
        Some(file) => {
            let pem = read_certificates(file)?;
            for certificate in CertificateDer::pem_slice_iter(&pem) {
                let certificate =
                    certificate.map_err(|e| invalid(format!("ca_file {file}: {e}")))?;
                roots.add(certificate).map_err(|e| invalid(format!("ca_file {file}: {e}")))?;
            }
        }
        // What cannot be read is not trusted.
        None => {
            let found = rustls_native_certs::load_native_certs().certs;
            let (_added, _unreadable) = roots.add_parsable_certificates(found);
        }
    }
    if roots.is_empty() {
        return Err(invalid("there is no certificate to trust: name a file by ca_file".to_owned()));
    }
    Ok(Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()))
}
