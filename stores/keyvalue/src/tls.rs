//! Certificates.

use emmer_store::StoreErrorKind;

use crate::fault::Fault;

/// The largest file of certificates, in bytes.
const CERTIFICATES_BYTES_MAX: u64 = 4 << 20;

/// Makes `ring` the cryptography of this process, unless one was chosen before. Several are
/// compiled in where several stores are, and then rustls takes none by itself.
pub fn install_provider() {
    // An error says that there is one: as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// The certificates of the authorities in a PEM file an operator named.
///
/// # Errors
/// `Invalid`: it cannot be read, or is far too large.
pub fn read_certificates(file: &str) -> Result<Vec<u8>, Fault> {
    let invalid =
        |detail: String| Fault::new(StoreErrorKind::Invalid, format!("ca_file {file}: {detail}"));
    let size = std::fs::metadata(file).map_err(|e| invalid(e.to_string()))?.len();
    if size > CERTIFICATES_BYTES_MAX {
        return Err(invalid(format!("{size} bytes, at most {CERTIFICATES_BYTES_MAX} are allowed")));
    }
    std::fs::read(file).map_err(|e| invalid(e.to_string()))
}
