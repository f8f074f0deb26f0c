//! TLS between silos, and between clients and silos (feature `tls`): its proofs, and their checks.
//!
//! Always TLS 1.3, and always in full: no session is taken up again, so a certificate that was
//! replaced is not believed for longer than the connection it made.
//!
//! A silo proves itself to silos and clients by a certificate with the name of its cluster
//! (`names.rs`); silos check each other's. A client checks the silo's, and shows one of its own
//! unless the silo lets clients in without. Or silos and clients have keys that are made of the
//! cluster's secret (`secret.rs`), and check those. A seal says which silo a peer is (`seals.rs`).

#[cfg(any(feature = "certs", test))]
#[cfg_attr(
    not(feature = "certs"),
    allow(unreachable_pub, dead_code, reason = "for the tests alone")
)]
pub mod certs;
mod files;
mod guard;
mod names;
mod seals;
mod secret;
mod sessions;
#[cfg(test)]
pub(crate) mod tests;
mod web;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use self::guard::{Guard, words};
pub use self::names::Role;
pub(crate) use self::names::Shown;
pub(crate) use self::seals::{Exported, Seals};
pub use self::web::WebTls;

/// The encryption of connections, and the proofs of their peers: for
/// `SiloBuilder::tls` and
/// `ClientBuilder::tls`.
///
/// The files hold PEM. They are read again when they change, without a restart. New contents count
/// for the next connection; open connections stay. An authority that has left its file is believed
/// for [`overlap`](Self::overlap) longer.
#[derive(Clone, PartialEq, Eq)]
pub struct Tls {
    means: Means,
    pub(crate) rollout: TlsRollout,
    pub(crate) overlap: Duration,
    pub(crate) anonymous_clients: bool,
}

/// The means by which peers prove themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Means {
    /// The certificates of an authority.
    Certificates {
        authority: PathBuf,
        /// Certificate and key of this process.
        own: Option<(PathBuf, PathBuf)>,
    },
    /// Keys that are made of a secret.
    Secret(Source),
    /// The key of a client, and those of the silos.
    ClientKey(PathBuf),
}

/// The place of a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    File(PathBuf),
    /// An environment variable.
    Variable(String),
}

/// A step of a cluster on its way from plain connections to encrypted ones. Every silo takes a step
/// before any silo takes the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsRollout {
    /// Plain connections are made; encrypted ones are accepted as well.
    Accept,
    /// Encrypted connections are made; plain ones are still accepted.
    Prefer,
    /// Plain connections are refused. The default.
    #[default]
    Require,
}

impl Tls {
    /// An authority that has left its file is believed for this long, if nothing else is said: an
    /// hour.
    pub const OVERLAP: Duration = Duration::from_hours(1);

    /// For a silo, and for a client that shows a certificate. `authority` names the file of the
    /// trusted certificates, `certificate` the file of this process's certificate with its chain,
    /// `key` the file of its private key.
    pub fn new(
        authority: impl Into<PathBuf>,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        let own = Some((certificate.into(), key.into()));
        Self::by(Means::Certificates { authority: authority.into(), own })
    }

    /// For a client that shows nothing: silos have to [let such clients
    /// in](Self::anonymous_clients).
    pub fn anonymous(authority: impl Into<PathBuf>) -> Self {
        Self::by(Means::Certificates { authority: authority.into(), own: None })
    }

    /// For a cluster without certificates: silos and clients that have the same secret believe each
    /// other. `file` holds a secret of at least 32 bytes in each line; the first is this process's
    /// own, and every one is believed. So a new one is first added on every process, then put
    /// first, and then the old one is taken out.
    ///
    /// Whoever has it can be a silo. A client that shall not gets a [client
    /// key](Self::client_key).
    pub fn secret(file: impl Into<PathBuf>) -> Self {
        Self::by(Means::Secret(Source::File(file.into())))
    }

    /// As [`secret`](Self::secret), from an environment variable, which is read once.
    pub fn secret_in_variable(name: impl Into<String>) -> Self {
        Self::by(Means::Secret(Source::Variable(name.into())))
    }

    /// For a client of a cluster that has a [secret](Self::secret): the file is made of the secret
    /// by `emmer certs --secret`, and opens gateways, no silo's port.
    pub fn client_key(file: impl Into<PathBuf>) -> Self {
        Self::by(Means::ClientKey(file.into()))
    }

    fn by(means: Means) -> Self {
        Self {
            means,
            rollout: TlsRollout::default(),
            overlap: Self::OVERLAP,
            anonymous_clients: false,
        }
    }

    /// Takes one step of the way from plain connections to encrypted ones.
    #[must_use]
    pub const fn rollout(mut self, step: TlsRollout) -> Self {
        self.rollout = step;
        self
    }

    /// Believes an authority for this time after it has left its file. Default: an
    /// [hour](Self::OVERLAP).
    #[must_use]
    pub const fn overlap(mut self, overlap: Duration) -> Self {
        self.overlap = overlap;
        self
    }

    /// A silo lets clients in that show no certificate.
    #[must_use]
    pub const fn anonymous_clients(mut self) -> Self {
        self.anonymous_clients = true;
        self
    }
}

/// The time by which certificates are judged: that of the world outside, also in tests.
#[allow(clippy::disallowed_methods, reason = "rustls and those who sign know no virtual time")]
pub fn now() -> std::time::SystemTime {
    std::time::SystemTime::now()
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Paths, no secrets.
        f.debug_struct("Tls")
            .field("means", &self.means)
            .field("rollout", &self.rollout)
            .finish_non_exhaustive()
    }
}

/// Why TLS cannot be used as it was asked for. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{file}: {why}")]
    Unreadable {
        /// The file.
        file: String,
        /// The operating system's words.
        why: String,
    },
    /// A file holds something else than it should.
    #[error("{file}: expected {expected}: {why}")]
    Malformed {
        /// The file.
        file: String,
        /// The contents that it should have.
        expected: &'static str,
        /// The mistake in it.
        why: String,
    },
    /// The certificate is not one that peers would accept.
    #[error("{file}: {why}")]
    Unfit {
        /// The certificate's file.
        file: String,
        /// Why not.
        why: String,
    },
    /// Certificates cannot have the cluster's name.
    #[error(
        "cluster {cluster:?} cannot be named in a certificate: with TLS a cluster id has letters, \
         digits and `-`, in parts of at most 63 characters between dots"
    )]
    Name {
        /// Its id.
        cluster: String,
    },
    /// A silo has to show a certificate.
    #[error("a silo needs a certificate and a key (`Tls::new`), or a secret, for TLS")]
    NoCertificate,
    /// The HTTP endpoint of a silo has to show a certificate.
    #[error("the telemetry port needs a certificate and a key for TLS: clients have no secret")]
    NoWebCertificate,
    /// The secret cannot be used. It is in none of these words.
    #[error("{place}: {why}")]
    Secret {
        /// Its file or variable.
        place: String,
        /// Why not.
        why: String,
    },
    /// The certificate's time is over, or has not come.
    #[error("{file}: the certificate has expired, or is not valid yet by this host's clock")]
    Outdated {
        /// The certificate's file.
        file: String,
    },
    /// The certificate names addresses, and the silo is at none of them.
    #[error("{file}: it is for a silo at {named}, and this one is at {address}")]
    Address {
        /// The certificate's file.
        file: String,
        /// The addresses in it.
        named: String,
        /// The address of the silo.
        address: std::net::IpAddr,
    },
}
