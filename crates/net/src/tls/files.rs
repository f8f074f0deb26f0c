//! The files of TLS, and their contents.

use std::fs;
use std::path::{Path, PathBuf};

use emmer_core::ClusterId;
use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::secret::{self, Keys};
use super::{Means, Role, Source, Tls, TlsError};

/// The largest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The contents of the files, byte for byte. Without `Debug`, because one of them is a key.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Files {
    Certificates { authority: Vec<u8>, own: Option<(Vec<u8>, Vec<u8>)> },
    Secret(Vec<u8>),
    ClientKey(Vec<u8>),
}

/// A peer is believed because of this: the certificate of an authority, or the keys of a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Authority(CertificateDer<'static>),
    Keys(Keys),
}

/// The proof of this process.
pub(super) enum Own {
    /// A certificate with the chain up to its authority, and its key.
    Certificate(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>),
    /// A key that is made of the secret.
    Key(PrivateKeyDer<'static>),
}

impl Files {
    pub(super) fn read(tls: &Tls) -> Result<Self, TlsError> {
        Ok(match &tls.means {
            Means::Certificates { authority, own } => {
                let own = match own {
                    Some((certificate, key)) => Some((read(certificate)?, read(key)?)),
                    None => None,
                };
                Self::Certificates { authority: read(authority)?, own }
            }
            Means::Secret(Source::File(file)) => Self::Secret(read(file).map_err(|error| {
                if file.exists() {
                    return error;
                }
                // Its name may be the secret itself, put there by mistake.
                TlsError::Secret {
                    place: "the secret".to_owned(),
                    why: "there is no such file: expected its path, or env:NAME".to_owned(),
                }
            })?),
            Means::Secret(Source::Variable(name)) => {
                let text = std::env::var_os(name).ok_or_else(|| TlsError::Secret {
                    place: place(tls),
                    why: "it is not set".to_owned(),
                })?;
                Self::Secret(text.into_encoded_bytes())
            }
            Means::ClientKey(file) => Self::ClientKey(read(file)?),
        })
    }

    /// This process's certificate and key, if it has one.
    pub(super) fn certificate(&self, tls: &Tls) -> Result<Option<Own>, TlsError> {
        match (self, &tls.means) {
            (
                Self::Certificates { own: Some((chain, key)), .. },
                Means::Certificates { own: Some(files), .. },
            ) => certified(files, chain, key).map(Some),
            _ => Ok(None),
        }
    }

    /// Returns the peers that are believed, and the proof of this process, a `role` of the cluster.
    pub(super) fn contents(
        &self,
        tls: &Tls,
        cluster: &ClusterId,
        role: Role,
    ) -> Result<(Vec<Anchor>, Option<Own>), TlsError> {
        match (self, &tls.means) {
            (Self::Certificates { authority, .. }, Means::Certificates { authority: file, .. }) => {
                Ok((authorities(file, authority)?, self.certificate(tls)?))
            }
            (Self::ClientKey(text), _) => {
                let malformed = |why| TlsError::Malformed {
                    file: place(tls),
                    expected: "the keys of a client in PEM, as `emmer certs --secret` makes them",
                    why,
                };
                let (silos, own) = secret::client_keys(text).map_err(|e| malformed(words(&e)))?;
                if role == Role::Silo {
                    let why = "it is a client's key, and this is a silo".to_owned();
                    return Err(TlsError::Unfit { file: place(tls), why });
                }
                if silos.is_empty() {
                    return Err(malformed("it has no public key of silos".to_owned()));
                }
                let keys = |silos| Anchor::Keys(Keys { silos, clients: None });
                Ok((silos.into_iter().map(keys).collect(), own.map(Own::Key)))
            }
            (Self::Secret(text), _) => {
                let unfit = |why| TlsError::Secret { place: place(tls), why };
                let secrets = secret::secrets(text).map_err(unfit)?;
                let keys = secrets.iter().map(|secret| secret::keys(secret, cluster));
                let anchors = keys
                    .map(|keys| keys.map(Anchor::Keys).map_err(|e| unfit(e.to_string())))
                    .collect::<Result<_, _>>()?;
                let own = secrets.first().map(|first| secret::own_key(first, cluster, role));
                let own = own.transpose().map_err(|e| unfit(e.to_string()))?;
                Ok((anchors, own.map(Own::Key)))
            }
            (Self::Certificates { .. }, _) => Ok((Vec::new(), None)),
        }
    }
}

/// The file or variable that this process's own proof comes from, for people.
pub(super) fn place(tls: &Tls) -> String {
    match &tls.means {
        Means::Certificates { own: Some((certificate, _)), .. } => shown(certificate),
        Means::Certificates { authority: file, .. }
        | Means::Secret(Source::File(file))
        | Means::ClientKey(file) => shown(file),
        Means::Secret(Source::Variable(name)) => format!("environment variable {name}"),
    }
}

/// The certificates that are believed.
fn authorities(file: &Path, text: &[u8]) -> Result<Vec<Anchor>, TlsError> {
    let authorities = certificates(file, text)?;
    let mut roots = RootCertStore::empty();
    for authority in &authorities {
        roots.add(authority.clone()).map_err(|e| TlsError::Malformed {
            file: shown(file),
            expected: "certificates of authorities",
            why: e.to_string(),
        })?;
    }
    Ok(authorities.into_iter().map(Anchor::Authority).collect())
}

/// The certificate of this process, and its key.
fn certified(
    (certificate, key): &(PathBuf, PathBuf),
    chain: &[u8],
    private: &[u8],
) -> Result<Own, TlsError> {
    let chain = certificates(certificate, chain)?;
    let private = PrivateKeyDer::from_pem_slice(private).map_err(|why| TlsError::Malformed {
        file: shown(key),
        expected: "a private key in PEM",
        why: words(&why),
    })?;
    Ok(Own::Certificate(chain, private))
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

/// Describes a mistake in PEM without quoting it: it may be a key.
fn words(why: &pem::Error) -> String {
    match why {
        pem::Error::MissingSectionEnd { .. } => "its last section has no end".to_owned(),
        pem::Error::IllegalSectionStart { .. } => "a section begins with no proper line".to_owned(),
        pem::Error::Base64Decode(_) => "a section is not base64".to_owned(),
        pem::Error::NoItemsFound => "it has none".to_owned(),
        _ => "it cannot be read".to_owned(),
    }
}

fn shown(file: &Path) -> String {
    file.display().to_string()
}
