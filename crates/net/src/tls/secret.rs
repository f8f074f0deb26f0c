//! Keys that are made of a cluster's secret.
//!
//! HKDF-SHA256 makes two Ed25519 keys of a secret and the cluster's name: one that all silos share,
//! and one of the clients. Peers show them in TLS 1.3 as raw public keys (RFC 7250). Each signs the
//! handshake with its own, and compares the other's. So a connection has the key exchange, the
//! forward secrecy and the proof of TLS, as with certificates. The secret itself is never sent. A
//! pre-shared key of TLS would do the same, but rustls has none.
//!
//! A silo shows its public key before its peer has proved anything. A process that connects may
//! therefore try secrets at home: one of 32 random bytes cannot be found so, and a word can. That
//! is why a short one is refused.

use std::collections::HashSet;
use std::sync::Arc;

use aws_lc_rs::hkdf;
use emmer_core::ClusterId;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs as provider;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer,
    UnixTime,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use super::Role;

/// Minimum bytes of a secret: as many as its keys have.
pub(super) const SECRET_BYTES_MIN: usize = 32;

/// A secret with fewer different bytes is no random one.
const DIFFERENT_BYTES_MIN: usize = 8;

/// The most secrets that are believed at once.
const SECRETS_MAX: usize = 8;

/// An Ed25519 key in PKCS #8 (RFC 8410) begins so; its 32 bytes follow.
const PKCS8: [u8; 16] = *b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";

/// A public key as it is shown.
pub(super) type PublicKey = CertificateDer<'static>;

/// The public keys of one secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Keys {
    pub(super) silos: PublicKey,
    /// None in a client, unless it is the client's own.
    pub(super) clients: Option<PublicKey>,
}

impl Keys {
    /// Returns the role that has the key.
    pub(super) fn role(&self, key: &[u8]) -> Option<Role> {
        if self.silos.as_ref() == key {
            return Some(Role::Silo);
        }
        let is_clients = self.clients.as_ref().is_some_and(|clients| clients.as_ref() == key);
        is_clients.then_some(Role::Client)
    }
}

/// The private key of a role.
pub(super) fn own_key(
    secret: &[u8],
    cluster: &ClusterId,
    role: Role,
) -> Result<PrivateKeyDer<'static>, Error> {
    // The cluster's name is a part of it: two clusters that were given one secret by mistake do not
    // believe each other.
    let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"emmer cluster secret");
    let role = role.to_string();
    let info: [&[u8]; 3] = [role.as_bytes(), b" of ", cluster.as_str().as_bytes()];
    let mut key = [0; SECRET_BYTES_MIN];
    // Neither step fails: 32 bytes are one block of SHA-256. Else the key would be known to all.
    salt.extract(secret)
        .expand(&info, hkdf::HKDF_SHA256)
        .and_then(|expanded| expanded.fill(&mut key))
        .map_err(|_| Error::General("no key can be made of the secret".to_owned()))?;
    Ok(PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from([&PKCS8[..], &key].concat())))
}

/// The public key that belongs to a private one.
pub(super) fn public_key(private: &PrivateKeyDer<'_>) -> Result<PublicKey, Error> {
    let key = provider::sign::any_eddsa_type(match private {
        PrivateKeyDer::Pkcs8(key) => key,
        _ => return Err(Error::General("expected an Ed25519 key in PKCS #8".to_owned())),
    })?;
    let public = key.public_key().map(|public| CertificateDer::from(public.to_vec()));
    public.ok_or_else(|| Error::General("the key has no public part".to_owned()))
}

/// The public keys of a secret.
pub(super) fn keys(secret: &[u8], cluster: &ClusterId) -> Result<Keys, Error> {
    let of = |role| public_key(&own_key(secret, cluster, role)?);
    Ok(Keys { silos: of(Role::Silo)?, clients: Some(of(Role::Client)?) })
}

/// The secrets in a file or variable, one in each line.
///
/// # Errors
/// In words, without a byte of them.
pub(super) fn secrets(text: &[u8]) -> Result<Vec<&[u8]>, String> {
    let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let secrets: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
    if secrets.is_empty() {
        return Err(format!("expected a secret of at least {SECRET_BYTES_MIN} bytes, it is empty"));
    }
    if secrets.len() > SECRETS_MAX {
        let count = secrets.len();
        return Err(format!("expected at most {SECRETS_MAX} secrets, it has {count}"));
    }
    for secret in &secrets {
        let bytes = secret.len();
        if bytes < SECRET_BYTES_MIN {
            return Err(format!(
                "expected a secret of at least {SECRET_BYTES_MIN} bytes, one has {bytes}"
            ));
        }
        if secret.iter().collect::<HashSet<_>>().len() < DIFFERENT_BYTES_MIN {
            return Err("expected a random secret, one has hardly a byte unlike the others".into());
        }
    }
    Ok(secrets)
}

/// The keys in a client's file: those of silos, and its own if there is one.
pub(super) fn client_keys(
    text: &[u8],
) -> Result<(Vec<PublicKey>, Option<PrivateKeyDer<'static>>), pem::Error> {
    let silos = SubjectPublicKeyInfoDer::pem_slice_iter(text)
        .map(|key| key.map(|key| CertificateDer::from(key.as_ref().to_vec())))
        .collect::<Result<Vec<_>, _>>()?;
    match PrivateKeyDer::from_pem_slice(text) {
        Ok(key) => Ok((silos, Some(key))),
        Err(pem::Error::NoItemsFound) => Ok((silos, None)),
        Err(error) => Err(error),
    }
}

/// The public key and the private one, as a session shows them.
pub(super) fn shown(private: &PrivateKeyDer<'static>) -> Result<Arc<CertifiedKey>, Error> {
    let key = provider::sign::any_supported_type(private)?;
    Ok(Arc::new(CertifiedKey::new(vec![public_key(private)?], key)))
}

/// Accepts the keys of believed secrets.
#[derive(Debug)]
pub(super) struct Pinned {
    believed: Vec<Keys>,
    /// Clients may show nothing.
    anonymous: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Pinned {
    pub(super) fn new(believed: Vec<Keys>, anonymous: bool) -> Self {
        let algorithms = provider::default_provider().signature_verification_algorithms;
        Self { believed, anonymous, algorithms }
    }

    fn role(&self, key: &[u8]) -> Result<Role, Error> {
        let role = self.believed.iter().find_map(|keys| keys.role(key));
        role.ok_or(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
    }
}

/// TLS 1.2 is not spoken.
fn no_tls12() -> Result<HandshakeSignatureValid, Error> {
    Err(Error::General("TLS 1.2 is not spoken".to_owned()))
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        key: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.role(key.as_ref())? {
            Role::Silo => Ok(ServerCertVerified::assertion()),
            Role::Client => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, key, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Pinned {
    fn client_auth_mandatory(&self) -> bool {
        !self.anonymous
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        key: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        // The port judges what a role is good for.
        self.role(key.as_ref()).map(|_| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, key, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
