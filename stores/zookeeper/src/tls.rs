//! Encrypted connections.

use std::io::ErrorKind;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use emmer_store::StoreErrorKind;
use emmer_store_keyvalue::tls;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use zookeeper_client::TlsOptions;

use crate::fault::Fault;
use crate::place::Place;

/// The driver's options for TLS: the certificates to trust.
pub(crate) fn options(place: &Place) -> Result<TlsOptions, Fault> {
    // The driver takes the process's provider; another part of the program may have chosen one.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let invalid = |detail: String| Fault::new(StoreErrorKind::Invalid, detail);
    // The driver takes it for granted that a certificate can be for such a name.
    if let Some((host, _)) = place.hosts().find(|(host, _)| ServerName::try_from(*host).is_err()) {
        return Err(invalid(format!("{host:?} is not a name that a certificate can have")));
    }
    let Some(path) = place.address.text("ca_file") else {
        let trusted = TlsOptions::default().with_pem_ca(&of_the_system());
        return trusted.map_err(|_| {
            let why = "the system trusts no authority that can be read: name a file by ca_file";
            invalid(why.to_owned())
        });
    };
    let failed = |detail: String| invalid(format!("ca_file {path}: {detail}"));
    let pem = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    TlsOptions::default().with_pem_ca(&pem).map_err(|error| failed(error.to_string()))
}

/// The authorities that the system trusts, as PEM: the driver takes no other form.
fn of_the_system() -> String {
    let found = rustls_native_certs::load_native_certs().certs;
    let pem = found.iter().map(|certificate| {
        let text = STANDARD.encode(certificate);
        let lines = text.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line) + "\n");
        let lines: String = lines.collect();
        format!("-----BEGIN CERTIFICATE-----\n{lines}-----END CERTIFICATE-----\n")
    });
    pem.collect()
}

/// Time in which a server has to show its certificate once more.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);

/// Reason why a server's certificate is not trusted, if that is the fault. The driver says only
/// that no host would do. Blocks for [`LOOK_TIMEOUT`] at most for each step.
pub(crate) fn distrust(place: &Place) -> Option<Fault> {
    let (host, port) = place.address.endpoint();
    let mut roots = RootCertStore::empty();
    match place.address.text("ca_file") {
        Some(file) => {
            for certificate in CertificateDer::pem_file_iter(file).ok()? {
                roots.add(certificate.ok()?).ok()?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).ok()?;
    let mut session = ClientConnection::new(Arc::new(config), name).ok()?;
    let address = (host, port).to_socket_addrs().ok()?.next()?;
    let mut stream = TcpStream::connect_timeout(&address, LOOK_TIMEOUT).ok()?;
    stream.set_read_timeout(Some(LOOK_TIMEOUT)).ok()?;
    stream.set_write_timeout(Some(LOOK_TIMEOUT)).ok()?;
    let error = session.complete_io(&mut stream).err()?;
    // Only the library's words about the peer are such an error. A connection that ends is not,
    // unless the server ends it because it wants no TLS.
    if error.kind() == ErrorKind::InvalidData {
        return Some(Fault::new(StoreErrorKind::Refused, format!("TLS: {host}:{port}: {error}")));
    }
    // The one word that every server answers by default, if only to say that it may not.
    tls::answers_plainly(host, port, b"srvr").then(|| {
        let detail = format!("tls=true, and {host}:{port} answers without TLS");
        Fault::new(StoreErrorKind::Refused, detail)
    })
}
