//! The files that TLS reads, and what is in them.

use std::fs;
use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::{Tls, TlsError};

/// The largest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The contents of the files, byte for byte. It has no `Debug`: one of them is a key.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Files {
    authority: Vec<u8>,
    own: Option<(Vec<u8>, Vec<u8>)>,
}

/// A certificate, those between it and its authority, and its key.
pub(super) type Own = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl Files {
    pub(super) fn read(tls: &Tls) -> Result<Self, TlsError> {
        let own = match &tls.own {
            Some((certificate, key)) => Some((read(certificate)?, read(key)?)),
            None => None,
        };
        Ok(Self { authority: read(&tls.authority)?, own })
    }

    /// The certificates that are believed.
    pub(super) fn authorities(&self, tls: &Tls) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let authorities = certificates(&tls.authority, &self.authority)?;
        let mut roots = RootCertStore::empty();
        for authority in &authorities {
            roots.add(authority.clone()).map_err(|e| TlsError::Malformed {
                file: shown(&tls.authority),
                expected: "certificates of authorities",
                why: e.to_string(),
            })?;
        }
        Ok(authorities)
    }

    /// The certificate of this process, and its key.
    pub(super) fn own(&self, tls: &Tls) -> Result<Option<Own>, TlsError> {
        let (Some((certificate, key)), Some((chain, private))) = (&tls.own, &self.own) else {
            return Ok(None);
        };
        let chain = certificates(certificate, chain)?;
        let private =
            PrivateKeyDer::from_pem_slice(private).map_err(|why| TlsError::Malformed {
                file: shown(key),
                expected: "a private key in PEM",
                why: words(&why),
            })?;
        Ok(Some((chain, private)))
    }
}

fn read(file: &Path) -> Result<Vec<u8>, TlsError> {
    let unreadable = |why: String| TlsError::Unreadable { file: shown(file), why };
    let bytes = fs::metadata(file).map_err(|e| unreadable(e.to_string()))?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(unreadable(format!("{bytes} bytes are more than {FILE_BYTES_MAX}")));
    }
    fs::read(file).map_err(|e| unreadable(e.to_string()))
}

fn certificates(file: &Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let malformed = |why: String| TlsError::Malformed {
        file: shown(file),
        expected: "certificates in PEM",
        why,
    };
    let found = CertificateDer::pem_slice_iter(text).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|why| malformed(words(&why)))?;
    if found.is_empty() {
        return Err(malformed("it has none".to_owned()));
    }
    Ok(found)
}

/// Says what is wrong with PEM, without a byte of it: it may be a key.
fn words(why: &pem::Error) -> String {
    match why {
        pem::Error::MissingSectionEnd { .. } => "its last section has no end".to_owned(),
        pem::Error::IllegalSectionStart { .. } => "a section begins with no proper line".to_owned(),
        pem::Error::Base64Decode(_) => "a section is no base64".to_owned(),
        pem::Error::NoItemsFound => "it has none".to_owned(),
        _ => "it cannot be read".to_owned(),
    }
}

fn shown(file: &Path) -> String {
    file.display().to_string()
}
