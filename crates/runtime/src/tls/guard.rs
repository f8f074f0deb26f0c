//! The guard at the door: it encrypts the connections that are made and accepted, and tells what
//! their peers have shown.

use std::fmt;
use std::io;
use std::sync::Arc;

use emmer_core::ClusterId;
use parking_lot::{Mutex, RwLock};
use rustls::pki_types::CertificateDer;
use rustls::{AlertDescription, CertificateError, Error};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::files::Files;
use super::names::{Names, Role};
use super::sessions::Sessions;
use super::{Tls, TlsError, TlsRollout};
use crate::world::Secured;

/// Encrypts the connections of one silo or client.
pub(crate) struct Guard {
    tls: Tls,
    names: Names,
    /// The role of this process.
    role: Role,
    now: RwLock<Arc<Sessions>>,
    read: Mutex<Read>,
}

/// The results of the last reading.
struct Read {
    files: Files,
    authorities: Vec<CertificateDer<'static>>,
    /// Those that have left their file, and until when they are believed.
    earlier: Vec<(CertificateDer<'static>, Instant)>,
}

impl Guard {
    /// Reads the files. `role`: what this process is.
    pub(crate) fn new(tls: Tls, cluster: &ClusterId, role: Role) -> Result<Self, TlsError> {
        if role == Role::Silo && tls.own.is_none() {
            return Err(TlsError::NoCertificate);
        }
        let names = Names::new(cluster)?;
        let files = Files::read(&tls)?;
        let authorities = files.authorities(&tls)?;
        let sessions = sessions(&tls, &names, &files, role, authorities.clone())?;
        let read = Mutex::new(Read { files, authorities, earlier: Vec::new() });
        Ok(Self { tls, names, role, now: RwLock::new(Arc::new(sessions)), read })
    }

    /// Reads the files again; true if anything counts now that did not before, or does no more.
    ///
    /// # Errors
    /// They cannot be used. What counted before goes on to count.
    pub(crate) fn look(&self, now: Instant) -> Result<bool, TlsError> {
        let mut read = self.read.lock();
        let files = Files::read(&self.tls)?;
        let is_over = |(_, until): &&(_, Instant)| *until <= now;
        if files == read.files && !read.earlier.iter().any(|old| is_over(&old)) {
            return Ok(false);
        }
        let authorities = files.authorities(&self.tls)?;
        let gone = read.authorities.iter().map(|old| (old, now + self.tls.overlap));
        let earlier =
            read.earlier.iter().filter(|old| !is_over(old)).map(|(old, until)| (old, *until));
        // Nothing is forgotten before the new sessions are there.
        let earlier: Vec<_> = gone
            .chain(earlier)
            .filter(|(old, _)| !authorities.contains(old))
            .map(|(old, until)| (old.clone(), until))
            .collect();
        let believed = authorities.iter().chain(earlier.iter().map(|(old, _)| old)).cloned();
        let sessions = sessions(&self.tls, &self.names, &files, self.role, believed.collect())?;
        *read = Read { files, authorities, earlier };
        *self.now.write() = Arc::new(sessions);
        Ok(true)
    }

    /// Returns true if the connections that this process makes are encrypted.
    pub(crate) fn encrypts(&self) -> bool {
        self.tls.rollout != TlsRollout::Accept
    }

    /// Returns true if a plain connection is accepted.
    pub(crate) fn accepts_plain(&self) -> bool {
        self.tls.rollout != TlsRollout::Require
    }

    /// Encrypts a connection that was made to a silo.
    ///
    /// # Errors
    /// In words, without the silo's address.
    pub(crate) async fn dialed(&self, stream: TcpStream) -> Result<Arc<Secured>, String> {
        let dialing = self.now.read().dialing.clone();
        let connecting = TlsConnector::from(dialing).connect(self.names.silo(), stream);
        let (stream, session) = connecting.await.map_err(|e| words(&e))?.into_inner();
        Ok(Secured::new(stream, session))
    }

    /// Encrypts a connection that was accepted, at the silos' port or at the clients'. Returns what
    /// the peer's certificate says that it is; none if it has shown no certificate.
    ///
    /// # Errors
    /// In words, without the peer's address.
    pub(crate) async fn accepted(
        &self,
        stream: TcpStream,
        at_silos_port: bool,
    ) -> Result<(Arc<Secured>, Option<Role>), String> {
        let ports = self.now.read().accepting.clone();
        let (silos, clients) = ports.ok_or("a client accepts no connections")?;
        let accepting = TlsAcceptor::from(if at_silos_port { silos } else { clients });
        let (stream, session) = accepting.accept(stream).await.map_err(|e| words(&e))?.into_inner();
        let shown = match session.peer_certificates() {
            Some([certificate, ..]) => {
                Some(self.names.role(certificate).map_err(|e| in_words(&e))?)
            }
            _ => None,
        };
        Ok((Secured::new(stream, session), shown))
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("tls", &self.tls).finish_non_exhaustive()
    }
}

fn sessions(
    tls: &Tls,
    names: &Names,
    files: &Files,
    role: Role,
    believed: Vec<CertificateDer<'static>>,
) -> Result<Sessions, TlsError> {
    let own = files.own(tls)?;
    let file = || {
        tls.own
            .as_ref()
            .map_or_else(String::new, |(certificate, _)| certificate.display().to_string())
    };
    let unfit = |why: String| TlsError::Unfit { file: file(), why };
    if let Some(([certificate, ..], _)) = own.as_ref().map(|(chain, key)| (&chain[..], key)) {
        let shows = names.role(certificate).map_err(|e| match e {
            Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            ) => unfit(format!("it names none of this cluster: {}", names.expected(role))),
            e => unfit(in_words(&e)),
        })?;
        if shows != role {
            return Err(unfit(format!("it is a {shows}'s certificate, and this is a {role}")));
        }
    }
    Sessions::new(believed, own.as_ref(), tls.anonymous_clients).map_err(|e| unfit(in_words(&e)))
}

/// The failure of an encrypted connection, for people.
pub(crate) fn words(error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    inner.map_or_else(|| error.to_string(), in_words)
}

fn in_words(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(why) => not_accepted(why),
        Error::NoCertificatesPresented => "the peer shows no certificate".to_owned(),
        Error::InvalidMessage(_) => "the peer does not speak TLS".to_owned(),
        Error::InconsistentKeys(_) => "the key belongs to another certificate".to_owned(),
        Error::AlertReceived(alert) => match alert {
            AlertDescription::CertificateExpired => {
                "the peer finds that this certificate has expired".to_owned()
            }
            AlertDescription::UnknownCA => {
                "the peer does not know the authority of this certificate".to_owned()
            }
            AlertDescription::CertificateRequired => {
                "the peer wants to be shown a certificate".to_owned()
            }
            AlertDescription::NoApplicationProtocol => {
                "the peer speaks TLS, and something else than Emmer in it".to_owned()
            }
            other => format!("the peer ended the TLS handshake: {other:?}"),
        },
        other => format!("the TLS handshake failed: {other}"),
    }
}

fn not_accepted(why: &CertificateError) -> String {
    match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the certificate has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the certificate is not valid yet".to_owned()
        }
        CertificateError::UnknownIssuer => {
            "the certificate is of an authority that is not believed".to_owned()
        }
        CertificateError::BadSignature => {
            "the certificate was not signed by the authority that it names".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the certificate names no silo or client of this cluster".to_owned()
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "the certificate is not for this use".to_owned()
        }
        other => format!("the certificate is not accepted: {other}"),
    }
}
