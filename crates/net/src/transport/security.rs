//! The security of connections, before the first frame: encryption, and the proofs of their peers.

use std::net::IpAddr;
#[cfg(feature = "tls")]
use std::sync::Arc;

use emmer_core::SiloAddress;
use emmer_wire::{PeerKind, Seal};
use tokio_util::sync::CancellationToken;

use super::listener::Port;
#[cfg(feature = "tls")]
use crate::tls::{Role, Shown};
use crate::world::TcpStream;

/// The proof that a peer has shown when its connection was made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "nothing is shown without TLS"))]
pub(crate) enum Proof {
    /// The connection is plain: the peer's identity is not proven.
    Plain,
    /// The connection is encrypted, and its peer has shown nothing.
    Anonymous,
    /// The connection is encrypted, and its peer's proof does not count here, for this reason.
    Unfit(String),
    /// A silo or client of this cluster.
    #[cfg(feature = "tls")]
    Shown(Shown),
}

impl Proof {
    /// The names in the peer's certificate, without that of its role.
    pub(super) fn names(&self) -> Vec<String> {
        match self {
            Self::Plain | Self::Anonymous | Self::Unfit(_) => Vec::new(),
            #[cfg(feature = "tls")]
            Self::Shown(shown) => shown.names.clone(),
        }
    }

    /// A peer that has shown this says that it is `peer`.
    ///
    /// # Errors
    /// It may not, for people.
    pub(super) fn allows(&self, peer: PeerKind) -> Result<(), String> {
        if let Self::Unfit(why) = self {
            return Err(why.clone());
        }
        let (PeerKind::Silo(silo)
        | PeerKind::Probe(silo)
        | PeerKind::Watch(silo)
        | PeerKind::Pulse(silo)) = peer
        else {
            return Ok(());
        };
        match self {
            Self::Plain => Ok(()),
            #[cfg(feature = "tls")]
            Self::Shown(shown) if shown.role == Role::Silo => {
                let elsewhere = shown.is_elsewhere(silo.ip());
                let named = elsewhere.map(|at| {
                    format!("its certificate is for a silo at {at}, and it says that it is {silo}")
                });
                named.map_or(Ok(()), Err)
            }
            _ => Err(format!("no certificate or key of a silo was shown for {silo}")),
        }
    }
}

/// Returns true if a connection begins as TLS does: with a record of a handshake. A frame begins
/// with its length, whose third byte is 0: a Hello is shorter than 64 KB.
pub(super) fn is_tls(first: &[u8]) -> bool {
    matches!(first, [0x16, 0x03, third, ..] if *third != 0)
}

/// Says for people how a connection failed, and tells if its security was what failed.
pub(super) fn in_words(error: &std::io::Error) -> (String, bool) {
    #[cfg(feature = "tls")]
    if error.kind() == std::io::ErrorKind::InvalidData {
        return (crate::tls::words(error), true);
    }
    (error.to_string(), false)
}

/// Why an accepted connection goes no further.
#[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "nothing is barred without TLS"))]
pub(super) enum Barred {
    /// The connection is plain, where only encrypted ones are accepted. The peer can be told.
    Plain(TcpStream),
    /// Its handshake failed.
    Failed(String),
}

/// The security of the connections of one silo or client; none by default.
#[derive(Clone, Debug, Default)]
pub struct Security {
    #[cfg(feature = "tls")]
    guard: Option<Arc<crate::tls::Guard>>,
}

#[cfg(not(feature = "tls"))]
#[expect(clippy::unused_async, clippy::unused_self, reason = "with TLS they wait")]
impl Security {
    /// Returns true if connections are encrypted: never, in a build without TLS.
    pub const fn is_set_up(&self) -> bool {
        false
    }

    pub(super) const fn encrypts(&self) -> bool {
        false
    }

    pub(super) async fn dialed(&self, stream: TcpStream, _: IpAddr) -> Result<TcpStream, String> {
        Ok(stream)
    }

    /// Reads files again when they change: none, in a build without TLS.
    pub fn keep_current(self, _: CancellationToken) {}

    pub(super) const fn seal(&self, _: &TcpStream, _: SiloAddress, _: bool) -> Option<Seal> {
        None
    }

    pub(super) const fn judge_dialer(
        &self,
        _: &TcpStream,
        _: SiloAddress,
        _: SiloAddress,
        _: Option<&Seal>,
    ) -> Result<bool, String> {
        Ok(true)
    }

    pub(super) const fn judge_acceptor(
        &self,
        _: &TcpStream,
        _: SiloAddress,
        _: bool,
        _: Option<&Seal>,
    ) -> Result<(), String> {
        Ok(())
    }

    pub(super) async fn accepted(
        &self,
        stream: TcpStream,
        _: Port,
    ) -> Result<(TcpStream, Proof), Barred> {
        Ok((stream, Proof::Plain))
    }
}

#[cfg(feature = "tls")]
mod secured {
    use std::time::Duration;

    use emmer_core::ClusterId;

    use super::{
        Arc, Barred, CancellationToken, IpAddr, Port, Proof, Seal, Security, SiloAddress,
        TcpStream, is_tls,
    };
    use crate::tls::{Exported, Guard, Role, Seals, Tls, TlsError};
    use crate::world;

    /// Pause before too few bytes are checked again; it doubles each time.
    const PEEK_PAUSE_MIN: Duration = Duration::from_millis(1);

    /// Number of rounds after which the age of the own certificate is checked: once an hour.
    const AGE_EVERY: u64 = 720;

    /// Interval of the checks of the files.
    const LOOK_EVERY: Duration = Duration::from_secs(5);

    impl Security {
        /// As `tls` says, for a process that is a `role` of `cluster`.
        pub fn new(tls: Option<Tls>, cluster: &ClusterId, role: Role) -> Result<Self, TlsError> {
            let guard = tls.map(|tls| Guard::new(tls, cluster, role)).transpose()?;
            if let Some(guard) = &guard
                && guard.is_outdated(crate::tls::now())
            {
                return Err(guard.outdated());
            }
            Ok(Self { guard: guard.map(Arc::new) })
        }

        /// Reads the files again and again until `end`. New contents count for the next connection.
        pub fn keep_current(self, end: CancellationToken) {
            if let Some(guard) = self.guard {
                world::spawn(async move {
                    tokio::select! {
                        biased;
                        () = end.cancelled() => {}
                        () = look_again(guard) => {}
                    }
                });
            }
        }

        /// Returns true if there is TLS.
        pub const fn is_set_up(&self) -> bool {
            self.guard.is_some()
        }

        /// Returns true if the connections that this process makes are encrypted.
        pub(in super::super) fn encrypts(&self) -> bool {
            self.guard.as_ref().is_some_and(|guard| guard.encrypts())
        }

        /// This process is a silo that tells others this address.
        pub fn check_address(&self, address: IpAddr) -> Result<(), TlsError> {
            self.guard.as_ref().map_or(Ok(()), |guard| guard.check_address(address))
        }

        /// Encrypts a connection that was made to this address, if that is wanted.
        pub(in super::super) async fn dialed(
            &self,
            stream: TcpStream,
            address: IpAddr,
        ) -> Result<TcpStream, String> {
            match (&self.guard, stream) {
                (Some(guard), TcpStream::Kernel(stream)) if guard.encrypts() => {
                    guard.dialed(stream, address).await.map(TcpStream::Secured)
                }
                (_, stream) => Ok(stream),
            }
        }

        /// Encrypts a connection that was accepted, if its peer does.
        pub(in super::super) async fn accepted(
            &self,
            stream: TcpStream,
            port: Port,
        ) -> Result<(TcpStream, Proof), Barred> {
            let (guard, stream) = match (&self.guard, stream) {
                (Some(guard), TcpStream::Kernel(stream)) => (guard, stream),
                (_, stream) => return Ok((stream, Proof::Plain)),
            };
            if !is_encrypted(&stream).await.map_err(|e| Barred::Failed(e.to_string()))? {
                let stream = TcpStream::Kernel(stream);
                return if guard.accepts_plain() {
                    Ok((stream, Proof::Plain))
                } else {
                    Err(Barred::Plain(stream))
                };
            }
            let accepted = guard.accepted(stream, port == Port::Silo).await;
            let (stream, shown) = accepted.map_err(Barred::Failed)?;
            let proof = match shown {
                Ok(Some(shown)) => Proof::Shown(shown),
                Ok(None) => Proof::Anonymous,
                Err(why) => Proof::Unfit(why),
            };
            Ok((TcpStream::Secured(stream), proof))
        }
    }

    impl Security {
        /// The seal of this process on an encrypted connection, if it is silo `me`.
        pub(in super::super) fn seal(
            &self,
            stream: &TcpStream,
            me: SiloAddress,
            dials: bool,
        ) -> Option<Seal> {
            self.guard.as_ref()?.seals()?.seal(me, dials, &exported(stream).ok()??)
        }

        /// Judges the seal of a peer that has dialled silo `me` and says that it is `silo`. True:
        /// it is. False: the process at that silo's address has to be asked first.
        ///
        /// # Errors
        /// It is not, for people.
        pub(in super::super) fn judge_dialer(
            &self,
            stream: &TcpStream,
            me: SiloAddress,
            silo: SiloAddress,
            seal: Option<&Seal>,
        ) -> Result<bool, String> {
            match (self.seals_of_peers(), exported(stream)?) {
                (Some(seals), Some(exported)) => seals.judge(me, silo, seal, &exported),
                _ => Ok(true),
            }
        }

        /// Judges the seal of a peer that answers as `silo`, and remembers it if it is the process
        /// `at_its_address`.
        ///
        /// # Errors
        /// It is not that silo, for people.
        pub(in super::super) fn judge_acceptor(
            &self,
            stream: &TcpStream,
            silo: SiloAddress,
            at_its_address: bool,
            seal: Option<&Seal>,
        ) -> Result<(), String> {
            match (self.seals_of_peers(), exported(stream)?) {
                (Some(seals), Some(exported)) => seals.learn(silo, at_its_address, seal, &exported),
                _ => Ok(()),
            }
        }

        fn seals_of_peers(&self) -> Option<&Seals> {
            self.guard.as_ref()?.seals_of_peers()
        }
    }

    /// None for a plain connection.
    fn exported(stream: &TcpStream) -> Result<Option<Exported>, String> {
        match stream {
            TcpStream::Secured(stream) => {
                stream.exported().map(Some).map_err(|error| error.to_string())
            }
            _ => Ok(None),
        }
    }

    async fn look_again(guard: Arc<Guard>) {
        let mut was_wrong = false;
        for round in 0_u64.. {
            tokio::time::sleep(LOOK_EVERY).await;
            let now = tokio::time::Instant::now();
            let guard = guard.clone();
            // No thread of the runtime waits for a disk.
            let looking = tokio::task::spawn_blocking(move || {
                if round % AGE_EVERY == 0
                    && let Some(warning) = guard.age_warning(crate::tls::now())
                {
                    tracing::warn!("{warning}");
                }
                guard.look(now)
            });
            let Ok(looked) = looking.await else { continue };
            match &looked {
                Ok(false) => {}
                Ok(true) => tracing::info!("certificates were read again"),
                Err(error) if !was_wrong => {
                    tracing::warn!(%error, "certificates cannot be used; those of before stay");
                }
                Err(_) => {}
            }
            was_wrong = looked.is_err();
        }
    }

    /// Returns true if the first bytes are those of TLS. It consumes none of them.
    async fn is_encrypted(stream: &tokio::net::TcpStream) -> std::io::Result<bool> {
        let mut first = [0; 3];
        let mut pause = PEEK_PAUSE_MIN;
        loop {
            match stream.peek(&mut first).await? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                3 => return Ok(is_tls(&first)),
                // More is on its way. The handshake has its limit of time.
                _ => tokio::time::sleep(pause).await,
            }
            pause *= 2;
        }
    }
}

#[cfg(feature = "tls")]
#[cfg(test)]
mod tests {
    use std::time::Duration;

    use emmer_core::{ClusterId, SiloAddress};
    use emmer_wire::{Hello, RefuseCode};
    use tokio::net::TcpListener;

    use super::*;
    use crate::tls::tests::Authority;
    use crate::tls::{Role, Tls, TlsRollout};
    use crate::transport::handshake::{DialError, Greeting, Verdict, accept, dial};
    use crate::transport::tests::{greeting, silo};

    /// A peer that says it is `me` comes to `port`: the results on both sides.
    async fn meet(
        me: PeerKind,
        dialing: Security,
        port: Port,
        accepting: Security,
    ) -> (Result<SiloAddress, DialError>, Result<PeerKind, String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let there = SiloAddress::new(listener.local_addr().unwrap(), 2);
        let dialing = Greeting { me, security: dialing, ..greeting(silo("127.0.0.1:9:1")) };
        let accepted = accept_one(&listener, there, port, accepting);
        let dialed =
            async { dial(there.endpoint(), None, &dialing).await.map(|(_, silo, _)| silo) };
        tokio::join!(dialed, accepted)
    }

    /// Accepts one connection as silo `me`.
    async fn accept_one(
        listener: &TcpListener,
        me: SiloAddress,
        port: Port,
        security: Security,
    ) -> Result<PeerKind, String> {
        // Shorter than the dialer's: what the acceptor cannot do in time it tells the dialer.
        let greeting = Greeting { security, timeout: Duration::from_secs(2), ..greeting(me) };
        let (stream, _) = listener.accept().await.unwrap();
        let judge = |hello: &Hello| match hello.expects {
            Some(wanted) if wanted != me => {
                Verdict::Refuse(RefuseCode::WrongSilo, format!("this is {me}, not {wanted}"))
            }
            _ => Verdict::Accept,
        };
        let accepted = accept((stream.into(), me.endpoint()), port, me, &greeting, judge);
        accepted.await.map(|(connection, _)| connection.peer)
    }

    /// A silo that answers at its address, until the test ends.
    async fn silo_with(security: &Security) -> SiloAddress {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let me = SiloAddress::new(listener.local_addr().unwrap(), 7);
        let security = security.clone();
        tokio::spawn(async move {
            loop {
                let _ = accept_one(&listener, me, Port::Silo, security.clone()).await;
            }
        });
        me
    }

    fn secured(authority: &Authority, role: Role) -> Security {
        let made = authority.make(&role.to_string(), &format!("{role}.test.emmer"));
        guarded(authority.tls(&made), role)
    }

    fn guarded(tls: Tls, role: Role) -> Security {
        Security::new(Some(tls), &ClusterId::new("test").unwrap(), role).unwrap()
    }

    #[tokio::test]
    async fn only_a_silo_says_that_it_is_one() {
        let authority = Authority::new();
        let client = || PeerKind::Client(5);
        let here = || secured(&authority, Role::Silo);
        let silo_b = here();
        let address = silo_with(&silo_b).await;
        let b = PeerKind::Silo(address);
        let (dialed, accepted) = meet(b, silo_b, Port::Silo, here()).await;
        assert!(dialed.is_ok());
        assert_eq!(accepted, Ok(b));
        let (_, accepted) =
            meet(client(), secured(&authority, Role::Client), Port::Gateway, here()).await;
        assert_eq!(accepted, Ok(client()));
        // One with a client's certificate says that it is a silo, a look-out or a probe.
        let (watch, probe) = (PeerKind::Watch(address), PeerKind::Probe(address));
        for (me, port) in [(b, Port::Silo), (watch, Port::Silo), (probe, Port::Gateway)] {
            let (dialed, accepted) =
                meet(me, secured(&authority, Role::Client), port, here()).await;
            let Err(DialError::Refused(_, refuse)) = dialed else { panic!("{dialed:?}") };
            assert_eq!(refuse.code, RefuseCode::Insecure);
            let why = format!("no certificate or key of a silo was shown for {address}");
            assert_eq!(accepted, Err(why));
        }
    }

    #[tokio::test]
    async fn plain_and_encrypted_ends_tell_each_other() {
        let authority = Authority::new();
        let me = PeerKind::Silo(silo("127.0.0.1:9:1"));
        let tls = || secured(&authority, Role::Silo);
        let (dialed, accepted) = meet(me, Security::default(), Port::Silo, tls()).await;
        let Err(DialError::Refused(_, refuse)) = dialed else { panic!("{dialed:?}") };
        assert_eq!(refuse.code, RefuseCode::Insecure);
        let why = "this port accepts encrypted connections only (TLS)";
        assert_eq!((refuse.reason.as_str(), accepted), (why, Err(why.to_owned())));

        let (dialed, accepted) = meet(me, tls(), Port::Silo, Security::default()).await;
        let told = dialed.unwrap_err().to_string();
        assert!(told.ends_with("the peer does not speak TLS"), "{told}");
        let why = "this port accepts plain connections only, and the dialer speaks TLS";
        assert_eq!(accepted, Err(why.to_owned()));
    }

    /// All have the same certificate, or the same secret: the process at the address of a silo is
    /// that silo.
    #[tokio::test]
    async fn one_of_two_that_show_the_same_is_the_silo_at_its_address() {
        let authority = Authority::new();
        let made = authority.make("silo", "silo.test.emmer");
        let file = authority.file().with_file_name("secret");
        std::fs::write(&file, crate::tls::certs::secret().unwrap()).unwrap();
        for tls in [authority.tls(&made), Tls::secret(file)] {
            check_imposters(&tls).await;
        }
    }

    async fn check_imposters(tls: &Tls) {
        let here = || guarded(tls.clone(), Role::Silo);
        let (b, imposter) = (here(), here());
        let address = silo_with(&b).await;
        let says = |kind: fn(SiloAddress) -> PeerKind| kind(address);
        for kind in [PeerKind::Silo, PeerKind::Watch] {
            let me = says(kind);
            // A silo that has not heard of `b`, and asks; then the same silo, which knows it.
            for order in [[&imposter, &b], [&b, &imposter]] {
                let a = here();
                for dialing in order {
                    let (dialed, accepted) = meet(me, dialing.clone(), Port::Silo, a.clone()).await;
                    if std::ptr::eq(dialing, &b) {
                        assert_eq!(accepted, Ok(me));
                        assert!(dialed.is_ok());
                        continue;
                    }
                    let Err(DialError::Refused(_, refuse)) = dialed else { panic!("{dialed:?}") };
                    assert_eq!(refuse.code, RefuseCode::Insecure);
                    let why = format!("another process is {address}");
                    assert_eq!((refuse.reason, accepted), (why.clone(), Err(why)));
                }
            }
        }
        // The address is vacant, or another incarnation is there, or a process that takes
        // connections and says nothing.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mute = SiloAddress::new(silent.local_addr().unwrap(), 7);
        let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let later = SiloAddress::new(address.endpoint(), 8);
        for silo in [SiloAddress::new(gone, 7), later, mute] {
            let (dialed, accepted) =
                meet(PeerKind::Silo(silo), imposter.clone(), Port::Silo, here()).await;
            let told = accepted.unwrap_err();
            let Err(DialError::Refused(_, refuse)) = dialed else { panic!("{dialed:?}") };
            assert_eq!(refuse.reason, told);
            let asked = format!("{silo} could not be asked if this connection is its own: ");
            assert!(told.starts_with(&asked), "{told}");
        }
        // Where plain connections are accepted a peer is asked only for what those show.
        let prefer = guarded(tls.clone().rollout(TlsRollout::Prefer), Role::Silo);
        let (_, accepted) = meet(says(PeerKind::Silo), imposter, Port::Silo, prefer).await;
        assert!(accepted.is_ok());
    }

    /// A process takes the address of a silo that is gone, and says that it is that silo.
    #[tokio::test]
    async fn one_that_answers_in_the_place_of_a_silo_is_not_believed() {
        let authority = Authority::new();
        let here = || secured(&authority, Role::Silo);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let there = SiloAddress::new(listener.local_addr().unwrap(), 7);
        let a = Greeting { security: here(), ..greeting(silo("127.0.0.1:9:1")) };
        let a = Greeting { me: PeerKind::Probe(silo("127.0.0.1:9:1")), ..a };
        let answers = |security| accept_one(&listener, there, Port::Silo, security);
        let dials = || dial(there.endpoint(), Some(there), &a);
        let (dialed, _) = tokio::join!(dials(), answers(here()));
        assert!(dialed.is_ok());
        let (dialed, _) = tokio::join!(dials(), answers(here()));
        let told = dialed.err().unwrap().to_string();
        assert!(told.ends_with(&format!("another process is {there}")), "{told}");
    }
}
