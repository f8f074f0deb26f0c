//! Certificates and secrets for a development cluster, and for tests (feature `certs`).
//!
//! A cluster that serves others gets its certificates from the authority of its organisation: these
//! are for a laptop, a test, a first try.
//!
//! ```
//! use std::time::Duration;
//!
//! use emmer::certs::{Authority, Wanted};
//!
//! # fn f() -> Result<(), emmer::certs::CertsError> {
//! let authority = Authority::new("development")?;
//! let silo = authority.issue(&Wanted::silo("shop").address([10, 0, 0, 7]))?;
//! let client = authority.issue(&Wanted::client("shop").name("billing").days(30))?;
//! // Written to files they are what `Tls::new` reads.
//! let files = [authority.certificate(), silo.certificate, silo.key];
//! # drop((client, files));
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use aws_lc_rs::rand::SecureRandom as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use emmer_core::ClusterId;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PublicKeyData as _, SanType, SerialNumber,
};

use super::{Role, secret};

/// A certificate is good for a year if nothing else is said.
const DAYS: u32 = 365;

/// Clocks of other machines may be behind by so much.
const EARLIER: Duration = Duration::from_hours(1);

/// Why a certificate was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}")]
pub struct CertsError {
    what: String,
    why: String,
}

impl CertsError {
    fn new(what: impl Into<String>, why: impl fmt::Display) -> Self {
        Self { what: what.into(), why: why.to_string() }
    }
}

/// The contents of a certificate.
#[derive(Clone, Debug)]
pub struct Wanted {
    names: Vec<String>,
    addresses: Vec<IpAddr>,
    from: SystemTime,
    until: SystemTime,
}

impl Wanted {
    /// A silo of this cluster.
    pub fn silo(cluster: &str) -> Self {
        Self::named(format!("silo.{cluster}.emmer"))
    }

    /// A client of this cluster.
    pub fn client(cluster: &str) -> Self {
        Self::named(format!("client.{cluster}.emmer"))
    }

    /// An owner of this DNS name, and nothing else.
    pub fn named(name: impl Into<String>) -> Self {
        let now = super::now();
        let made = Self {
            names: vec![name.into()],
            addresses: Vec::new(),
            from: now - EARLIER,
            until: now,
        };
        made.days(DAYS)
    }

    /// One more name: a DNS name, or a URI if there is a `:` in it (`spiffe://shop/billing`). With
    /// it the silos' `authorize` tells clients from each other.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.names.push(name.into());
        self
    }

    /// An address of a silo. One whose certificate names addresses may say to be at these only.
    #[must_use]
    pub fn address(mut self, address: impl Into<IpAddr>) -> Self {
        self.addresses.push(address.into());
        self
    }

    /// Good for this number of days from now.
    #[must_use]
    pub fn days(self, days: u32) -> Self {
        let until = super::now() + Duration::from_hours(24) * days;
        self.until(until)
    }

    /// Good until then, which may be over.
    #[must_use]
    pub fn until(mut self, until: SystemTime) -> Self {
        self.from = self.from.min(until - EARLIER);
        self.until = until;
        self
    }
}

/// An authority, which signs certificates.
pub struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// A new one. Its name is for people.
    ///
    /// # Errors
    /// The name cannot be written in a certificate, or there is no randomness.
    pub fn new(name: &str) -> Result<Self, CertsError> {
        let failed = |why| CertsError::new("an authority", why);
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let now = super::now();
        params.not_before = (now - EARLIER).into();
        params.not_after = (now + Duration::from_hours(24) * 10 * DAYS).into();
        let key = KeyPair::generate().map_err(failed)?;
        // A number tells two authorities of one name apart, for people and for the search for a
        // certificate's authority.
        let number = fingerprint(&key);
        let unit: String = number.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        params.distinguished_name.push(DnType::OrganizationalUnitName, unit);
        params.serial_number = Some(SerialNumber::from(number));
        let signed = CertifiedIssuer::self_signed(params, key).map_err(failed)?;
        let certificate = signed.pem();
        let key = signed.key().serialize_pem();
        Self::of(&certificate, &key)
    }

    /// The authority of this certificate and key, both in PEM.
    ///
    /// # Errors
    /// One of the two files is not PEM of its kind.
    pub fn of(certificate: &str, key: &str) -> Result<Self, CertsError> {
        let key = KeyPair::from_pem(key)
            .map_err(|why| CertsError::new("the key of the authority", why))?;
        let issuer = Issuer::from_ca_cert_pem(certificate, key)
            .map_err(|why| CertsError::new("the certificate of the authority", why))?;
        Ok(Self { certificate: certificate.to_owned(), issuer })
    }

    /// Its certificate, in PEM.
    pub fn certificate(&self) -> String {
        self.certificate.clone()
    }

    /// Its key, in PEM: with it a silo can be made.
    pub fn key(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// Makes a certificate with a key of its own.
    ///
    /// # Errors
    /// One of its names is not valid, or there is no randomness.
    pub fn issue(&self, wanted: &Wanted) -> Result<Issued, CertsError> {
        let what = || format!("a certificate for {}", wanted.names.join(", "));
        let failed = |why| CertsError::new(what(), why);
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        let first = wanted.names.first().map_or("", String::as_str);
        params.distinguished_name.push(DnType::CommonName, first);
        for name in &wanted.names {
            let text = name.as_str().try_into().map_err(failed)?;
            let is_uri = name.contains(':');
            let name = if is_uri { SanType::URI(text) } else { SanType::DnsName(text) };
            params.subject_alt_names.push(name);
        }
        let addresses = wanted.addresses.iter().map(|address| SanType::IpAddress(*address));
        params.subject_alt_names.extend(addresses);
        params.not_before = wanted.from.into();
        params.not_after = wanted.until.into();
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().map_err(failed)?;
        let signed = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Ok(Issued { certificate: signed.pem(), key: key.serialize_pem() })
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

fn fingerprint(key: &KeyPair) -> Vec<u8> {
    // Positive, and of a length that every reader takes.
    let bytes = key.der_bytes().iter().rev().take(16);
    bytes.enumerate().map(|(n, byte)| if n == 0 { byte & 0x7f | 1 } else { *byte }).collect()
}

/// A new secret of a cluster, for the file of [`Tls::secret`](super::Tls::secret): 32 random bytes
/// in base64.
///
/// # Errors
/// There is no randomness.
pub fn secret() -> Result<String, CertsError> {
    let mut bytes = [0; 32];
    let filled = aws_lc_rs::rand::SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| CertsError::new("a secret", "there is no randomness"))?;
    Ok(BASE64.encode(bytes))
}

/// The file of [`Tls::client_key`](super::Tls::client_key), made of the text of the secret's file:
/// the public keys of silos with each of its secrets, and the first one's private key of clients.
///
/// # Errors
/// The secret or the cluster's name is not valid.
pub fn client_key(secret: &str, cluster: &str) -> Result<String, CertsError> {
    let failed = |why| CertsError::new("the secret", why);
    let cluster = ClusterId::new(cluster).map_err(|why| CertsError::new("the cluster", why))?;
    let secrets = secret::secrets(secret.as_bytes()).map_err(failed)?;
    let mut file = String::new();
    for secret in &secrets {
        let keys = secret::keys(secret, &cluster).map_err(|e| failed(e.to_string()))?;
        file += &section("PUBLIC KEY", keys.silos.as_ref());
    }
    if let Some(first) = secrets.first() {
        let own = secret::own_key(first, &cluster, Role::Client);
        let own = own.map_err(|e| failed(e.to_string()))?;
        file += &section("PRIVATE KEY", own.secret_der());
    }
    Ok(file)
}

fn section(name: &str, bytes: &[u8]) -> String {
    // Short enough for one line of 64 characters, or two.
    let text = BASE64.encode(bytes);
    let (line, rest) = text.split_at(text.len().min(64));
    let rest = if rest.is_empty() { String::new() } else { format!("\n{rest}") };
    format!("-----BEGIN {name}-----\n{line}{rest}\n-----END {name}-----\n")
}

/// A certificate and its key, both in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// The private key, a secret.
    pub key: String,
}

impl fmt::Debug for Issued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issued").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}
