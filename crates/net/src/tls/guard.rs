//! The guard at the door: it encrypts the connections that are made and accepted, and tells what
//! their peers have shown.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use emmer_core::ClusterId;
use parking_lot::{Mutex, RwLock};
use rustls::pki_types::CertificateDer;
use rustls::{AlertDescription, CertificateError, Error, PeerIncompatible};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::files::{Anchor, Files, Own, place};
use super::names::{Names, Role, Shown};
use super::seals::Seals;
use super::sessions::{Sessions, is_outdated};
use super::{Means, Tls, TlsError, TlsRollout};
use crate::world::Secured;

const DAY: Duration = Duration::from_hours(24);

/// Encrypts the connections of one silo or client.
pub(crate) struct Guard {
    tls: Tls,
    cluster: ClusterId,
    names: Names,
    /// The role of this process.
    role: Role,
    now: RwLock<Arc<Sessions>>,
    read: Mutex<Read>,
    /// None for a client.
    seals: Option<Seals>,
}

/// The results of the last reading.
struct Read {
    files: Files,
    believed: Vec<Anchor>,
    /// Anchors that have left their file, each with the time until which it is believed.
    earlier: Vec<(Anchor, Instant)>,
    /// The proof that this process shows.
    shows: Option<Shown>,
}

impl Guard {
    /// Reads the files. `role`: what this process is.
    pub(crate) fn new(tls: Tls, cluster: &ClusterId, role: Role) -> Result<Self, TlsError> {
        let names = Names::new(cluster)?;
        let files = Files::read(&tls)?;
        let (believed, own) = files.contents(&tls, cluster, role)?;
        if role == Role::Silo && own.is_none() {
            return Err(TlsError::NoCertificate);
        }
        let (sessions, shows) = sessions(&tls, &names, role, &believed, own.as_ref())?;
        let read = Mutex::new(Read { files, believed, earlier: Vec::new(), shows });
        let now = RwLock::new(Arc::new(sessions));
        let drawn = match role {
            Role::Silo => Seals::new().map(Some),
            Role::Client => Ok(None),
        };
        let no_key = |_| TlsError::Unfit { file: place(&tls), why: "no key can be drawn".into() };
        let seals = drawn.map_err(no_key)?;
        Ok(Self { tls, cluster: cluster.clone(), names, role, now, read, seals })
    }

    /// This process is a silo that tells others this address.
    ///
    /// # Errors
    /// Returns an error if the certificate names addresses, and not this one: no peer would believe
    /// it.
    pub(crate) fn check_address(&self, address: IpAddr) -> Result<(), TlsError> {
        let shows = &self.read.lock().shows;
        match shows.as_ref().and_then(|shows| shows.is_elsewhere(address)) {
            None => Ok(()),
            Some(named) => Err(TlsError::Address { file: place(&self.tls), named, address }),
        }
    }

    /// The error about an own certificate of the wrong age.
    pub(crate) fn outdated(&self) -> TlsError {
        TlsError::Outdated { file: place(&self.tls) }
    }

    /// Returns true if peers refuse this process's own certificate at `at`, because of its age. A
    /// key has none.
    pub(crate) fn is_outdated(&self, at: SystemTime) -> bool {
        let read = self.read.lock();
        let all = read.believed.iter().chain(read.earlier.iter().map(|(old, _)| old)).cloned();
        let Ok((_, Some(Own::Certificate(chain, _)))) =
            read.files.contents(&self.tls, &self.cluster, self.role)
        else {
            return false;
        };
        is_outdated(&all.collect::<Vec<_>>(), &chain, &self.names, self.role, at)
    }

    /// Returns a warning for the log if the own certificate ends within a day of `now` or has
    /// ended. A short-lived one is replaced in its last hours, so the warning comes only then.
    pub(crate) fn age_warning(&self, now: SystemTime) -> Option<&'static str> {
        if self.is_outdated(now) {
            return Some("the certificate of this process has expired: peers refuse it");
        }
        let is_short_lived = self.is_outdated(now - 2 * DAY);
        let ends = !is_short_lived && self.is_outdated(now + DAY);
        ends.then_some("the certificate of this process expires within a day")
    }

    /// Reads the files again. Returns true if their meaning has changed.
    ///
    /// # Errors
    /// The new files cannot be used. The earlier ones stay in use, an old authority for its time.
    pub(crate) fn look(&self, now: Instant) -> Result<bool, TlsError> {
        // Before the lock: a disk may be slow, and handshakes continue meanwhile.
        let files = Files::read(&self.tls);
        let mut read = self.read.lock();
        let ended = read.earlier.iter().any(|(_, until)| *until <= now);
        if !ended && files.as_ref().is_ok_and(|files| *files == read.files) {
            return Ok(false);
        }
        let taken = files.and_then(|files| self.take(&mut read, files, now));
        if taken.is_err() && ended {
            let before = read.files.clone();
            self.take(&mut read, before, now)?;
        }
        taken.map(|()| true)
    }

    /// Takes `files`: their contents count from now on. Anchors that were in the files before, and
    /// are not now, count for the overlap longer.
    fn take(&self, read: &mut Read, files: Files, now: Instant) -> Result<(), TlsError> {
        let (believed, own) = files.contents(&self.tls, &self.cluster, self.role)?;
        let gone = read.believed.iter().map(|old| (old, now + self.tls.overlap));
        let earlier = read.earlier.iter().map(|(old, until)| (old, *until));
        // Nothing is forgotten before the new sessions exist.
        let earlier: Vec<_> = gone
            .chain(earlier.filter(|(_, until)| *until > now))
            .filter(|(old, _)| !believed.contains(old))
            .map(|(old, until)| (old.clone(), until))
            .collect();
        let all: Vec<_> =
            believed.iter().chain(earlier.iter().map(|(old, _)| old)).cloned().collect();
        let (sessions, shows) = sessions(&self.tls, &self.names, self.role, &all, own.as_ref())?;
        *read = Read { files, believed, earlier, shows };
        *self.now.write() = Arc::new(sessions);
        Ok(())
    }

    /// Returns true if the connections that this process makes are encrypted.
    pub(crate) fn encrypts(&self) -> bool {
        self.tls.rollout != TlsRollout::Accept
    }

    /// Returns true if a plain connection is accepted.
    pub(crate) fn accepts_plain(&self) -> bool {
        self.tls.rollout != TlsRollout::Require
    }

    /// Encrypts a connection that was made to the silo at `address`.
    ///
    /// # Errors
    /// In words, without the silo's address.
    pub(crate) async fn dialed(
        &self,
        stream: TcpStream,
        address: IpAddr,
    ) -> Result<Arc<Secured>, String> {
        let dialing = self.now.read().dialing.clone();
        let connecting = TlsConnector::from(dialing).connect(self.names.silo(), stream);
        let (stream, session) = connecting.await.map_err(|e| words(&e))?.into_inner();
        // A client may be told another address than the silo has.
        if self.role == Role::Silo
            && let Some(certificate) = self.certificate(session.peer_certificates())
        {
            let shown = self.names.shown(certificate).map_err(|e| in_words(&e))?;
            if let Some(named) = shown.is_elsewhere(address) {
                return Err(format!("its certificate is for a silo at {named}"));
            }
        }
        Ok(Secured::new(stream, session))
    }

    /// Encrypts an accepted connection, at the port for silos or for clients. Returns what the peer
    /// has shown: None for nothing, and words for something of another cluster, which the peer can
    /// be told over the connection.
    ///
    /// # Errors
    /// In words, without the peer's address.
    pub(crate) async fn accepted(
        &self,
        stream: TcpStream,
        at_silos_port: bool,
    ) -> Result<(Arc<Secured>, Result<Option<Shown>, String>), String> {
        let ports = self.now.read().accepting.clone();
        let (silos, clients) = ports.ok_or("a client accepts no connections")?;
        let accepting = TlsAcceptor::from(if at_silos_port { silos } else { clients });
        let (stream, session) = accepting.accept(stream).await.map_err(|e| words(&e))?.into_inner();
        let shown = match (session.peer_certificates(), self.has_keys()) {
            (Some([key, ..]), true) => {
                let read = self.read.lock();
                let all = read.believed.iter().chain(read.earlier.iter().map(|(old, _)| old));
                // The session has believed it a moment ago.
                let role = all.filter_map(|anchor| match anchor {
                    Anchor::Keys(keys) => keys.role(key),
                    Anchor::Authority(_) => None,
                });
                let role = role.into_iter().next();
                role.map(|role| Some(Shown::key(role))).ok_or_else(|| OTHER_SECRET.to_owned())
            }
            (Some([certificate, ..]), false) => {
                self.names.shown(certificate).map(Some).map_err(|e| in_words(&e))
            }
            _ => Ok(None),
        };
        Ok((Secured::new(stream, session), shown))
    }

    /// The seals of this silo; none for a client.
    pub(crate) const fn seals(&self) -> Option<&Seals> {
        self.seals.as_ref()
    }

    /// The seals, if peers have to show theirs. None where plain connections are accepted, on which
    /// any process may claim any identity.
    pub(crate) fn seals_of_peers(&self) -> Option<&Seals> {
        self.seals().filter(|_| !self.accepts_plain())
    }

    /// Returns true if peers show keys, and no certificates.
    const fn has_keys(&self) -> bool {
        !matches!(self.tls.means, Means::Certificates { .. })
    }

    fn certificate<'a>(
        &self,
        shown: Option<&'a [CertificateDer<'static>]>,
    ) -> Option<&'a CertificateDer<'static>> {
        if self.has_keys() { None } else { shown?.first() }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("tls", &self.tls).finish_non_exhaustive()
    }
}

/// The sessions, and what this process shows in them.
fn sessions(
    tls: &Tls,
    names: &Names,
    role: Role,
    believed: &[Anchor],
    own: Option<&Own>,
) -> Result<(Sessions, Option<Shown>), TlsError> {
    let unfit = |why: String| TlsError::Unfit { file: place(tls), why };
    let shows = match own {
        Some(Own::Certificate(chain, _)) => {
            let certificate = chain.first().ok_or_else(|| unfit("it is empty".to_owned()))?;
            let shows = names.shown(certificate).map_err(|e| match e {
                Error::InvalidCertificate(
                    CertificateError::NotValidForName
                    | CertificateError::NotValidForNameContext { .. },
                ) => unfit(format!("it names none of this cluster: {}", names.expected(role))),
                e => unfit(in_words(&e)),
            })?;
            if shows.role != role {
                let why = format!("it is a {}'s certificate, and this is a {role}", shows.role);
                return Err(unfit(why));
            }
            Some(shows)
        }
        Some(Own::Key(_)) | None => None,
    };
    let sessions = Sessions::new(believed, own, tls.anonymous_clients);
    Ok((sessions.map_err(|e| unfit(in_words(&e)))?, shows))
}

/// The words for a key that is not of a believed secret.
const OTHER_SECRET: &str = "the peer has another secret, or is of another cluster";

/// The failure of an encrypted connection, for people.
pub(crate) fn words(error: &io::Error) -> String {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(error) => in_words(error),
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            "the peer closed the connection during the TLS handshake".to_owned()
        }
        None => error.to_string(),
    }
}

fn in_words(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(why) => not_accepted(why),
        Error::NoCertificatesPresented => "the peer shows no certificate".to_owned(),
        Error::DecryptError => {
            "the peer's part of the TLS handshake belongs to another connection, or was changed on \
             the way"
                .to_owned()
        }
        Error::InvalidMessage(_) => "the peer does not speak TLS".to_owned(),
        Error::PeerIncompatible(
            PeerIncompatible::IncorrectCertificateTypeExtension
            | PeerIncompatible::UnsolicitedCertificateTypeExtension,
        ) => "one of both has a secret, and the other one certificates".to_owned(),
        Error::InconsistentKeys(_) => "the key belongs to another certificate".to_owned(),
        Error::AlertReceived(alert) => match alert {
            AlertDescription::CertificateExpired => {
                "the peer finds that this certificate has expired".to_owned()
            }
            AlertDescription::UnknownCA | AlertDescription::DecryptError => {
                "the peer does not know the authority of this certificate".to_owned()
            }
            AlertDescription::AccessDenied => OTHER_SECRET.to_owned(),
            AlertDescription::CertificateRequired => {
                "the peer wants to be shown a certificate".to_owned()
            }
            AlertDescription::NoApplicationProtocol => {
                "the peer speaks TLS, and something else than Emmer in it".to_owned()
            }
            AlertDescription::HandshakeFailure => {
                "the peer has nothing in common with this end: has one of both a secret, and the \
                 other one certificates?"
                    .to_owned()
            }
            AlertDescription::BadCertificate => {
                "the peer does not accept this certificate".to_owned()
            }
            other => format!("the peer ended the TLS handshake with alert {}", u8::from(*other)),
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
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "the certificate is of an authority that is not believed".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the certificate names no silo or client of this cluster".to_owned()
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "the certificate is not for this use".to_owned()
        }
        CertificateError::ApplicationVerificationFailure => OTHER_SECRET.to_owned(),
        other => format!("the certificate is not accepted: {other}"),
    }
}
