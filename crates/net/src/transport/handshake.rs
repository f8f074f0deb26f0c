//! The first two frames of a connection.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::BytesMut;
use emmer_core::limits::Limits;
use emmer_core::{ClusterId, SiloAddress};
use emmer_membership::DialOutcome;
use emmer_wire::{
    ConnectionLimits, FrameKind, HANDSHAKE_BYTES_MAX, Hello, PeerKind, Refuse, RefuseCode, Token,
    Welcome, decode_frame, encode_hello, encode_refuse, encode_welcome,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::listener::Port;
use super::security::{Barred, Security, in_words, is_tls};
use super::traffic::Gone;
use super::{Budget, Connection, FrameRooms, HeldBytes, Ticking};
use crate::credentials::{Admit, Admitted, Credentials, TokenError, TokenSource};
use crate::log::Plain;
use crate::world::{Spawner, TcpListener, TcpStream};
use crate::{clock, warn_seldom};

/// Number of bytes that a peer may send ahead of those that have been processed.
const CREDIT_BYTES: u64 = 64 << 20;

/// The pause before a probing dial that broke is made again; doubles each time.
const REDIAL_PAUSE_MIN: Duration = Duration::from_millis(1);

/// Identity and limits of one side of a handshake.
#[derive(Clone, Debug)]
pub struct Greeting {
    /// The cluster of this side.
    pub cluster: ClusterId,
    /// This side.
    pub me: PeerKind,
    /// Limits of this side, which the other side keeps.
    pub limits: Limits,
    /// Budget for all connections together.
    pub budget: Arc<Budget>,
    /// The connections that each tick checks.
    pub ticking: Arc<Ticking>,
    /// The counts of connections that are gone.
    pub gone: Arc<Gone>,
    /// Room for large frames under way.
    pub frame_rooms: Arc<FrameRooms>,
    /// The bytes that all clients hold together.
    pub held: Arc<HeldBytes>,
    /// After this the handshake has failed.
    pub timeout: Duration,
    /// The digest of the options that must be the same on every silo; 0 for peers that are not
    /// silos.
    pub options: u64,
    /// The security of connections.
    pub security: Security,
    /// Hook for the credentials of clients. None accepts every client, without an identity.
    pub admit: Option<Admit>,
    /// The source of the tokens that a client shows.
    pub token: Option<TokenSource>,
    /// The thread of connections of the membership ([`PeerKind::Pulse`]).
    pub pulse: Option<Spawner>,
}

impl Greeting {
    pub(super) const fn connection_limits(&self) -> ConnectionLimits {
        ConnectionLimits::new(&self.limits, CREDIT_BYTES)
    }
}

/// Why a connection was not made.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DialError {
    /// No connection was made.
    #[error("{0} cannot be reached: {1}")]
    Connect(SocketAddr, Arc<std::io::Error>),
    /// No answer came in time.
    #[error("{0} did not answer within {1:?}")]
    TimedOut(SocketAddr, Duration),
    /// The other side refused, in words of its own.
    #[error("{peer} refused the connection: {reason}", peer = .0, reason = Plain(&.1.reason))]
    Refused(SocketAddr, Refuse),
    /// The other side does not speak the protocol.
    #[error("{} does not speak Emmer's protocol: {}", .0, Plain(.1))]
    Protocol(SocketAddr, String),
    /// The connection broke during the handshake.
    #[error("{0} closed the connection during the handshake: {1}")]
    Broken(SocketAddr, String),
    /// The security of the two sides does not fit.
    #[error("{0} and this process do not agree on the security of their connection: {1}")]
    Insecure(SocketAddr, String),
    /// The client has no token to show.
    #[error("{0} was not connected to: {1}")]
    NoToken(SocketAddr, TokenError),
    /// The silo is dead.
    #[error("{0} was declared dead")]
    Dead(SiloAddress),
    /// The limit on connections being made was reached.
    #[error("too many connections are being made")]
    TooMany,
}

impl DialError {
    /// Returns true if the two ends do not agree on the security of their connection, or on the
    /// cluster.
    fn is_of_security(&self) -> bool {
        self.is_insecure()
            || matches!(self, Self::Refused(_, refuse) if refuse.code == RefuseCode::ClusterMismatch)
    }

    /// Returns true if the two ends do not agree on the security of their connection.
    pub fn is_insecure(&self) -> bool {
        match self {
            Self::Insecure(..) => true,
            Self::Refused(_, refuse) => refuse.code == RefuseCode::Insecure,
            _ => false,
        }
    }
}

/// Connects to `endpoint`, and to the incarnation `expects` if one is named.
pub async fn dial(
    endpoint: SocketAddr,
    expects: Option<SiloAddress>,
    greeting: &Greeting,
) -> Result<(Connection, SiloAddress, BytesMut), DialError> {
    let (stream, welcome, input) = greet(endpoint, expects, greeting).await?;
    let peer = PeerKind::Silo(welcome.silo);
    let connection = Connection::new(peer, welcome.options, stream, welcome.limits, greeting);
    Ok((connection, welcome.silo, input))
}

/// Like [`dial`], with the raw stream, the acceptor's answer, and the bytes behind it.
pub(super) async fn greet(
    endpoint: SocketAddr,
    expects: Option<SiloAddress>,
    greeting: &Greeting,
) -> Result<(TcpStream, Welcome, BytesMut), DialError> {
    let attempt = async {
        let stream = TcpStream::connect(endpoint)
            .await
            .map_err(|e| DialError::Connect(endpoint, Arc::new(e)))?;
        // Small frames must not wait for more to come.
        stream.set_nodelay().map_err(|e| DialError::Broken(endpoint, e.to_string()))?;
        stream.keep_alive();
        let secured = greeting.security.dialed(stream, endpoint.ip()).await;
        let mut stream = secured.map_err(|why| DialError::Insecure(endpoint, why))?;
        let hello = Hello::new(
            greeting.cluster.clone(),
            greeting.me,
            expects,
            greeting.connection_limits(),
        );
        let token = show_token(&stream, endpoint, greeting).await?;
        // A probe is believed nothing.
        let seal = match greeting.me {
            PeerKind::Silo(me) | PeerKind::Watch(me) | PeerKind::Pulse(me) => {
                greeting.security.seal(&stream, me, true)
            }
            PeerKind::Client(_) | PeerKind::Probe(_) => None,
        };
        let hello = Hello { options: greeting.options, token, seal, ..hello };
        let mut out = BytesMut::new();
        encode_hello(&mut out, &hello);
        let broken = |e: std::io::Error| DialError::Broken(endpoint, e.to_string());
        stream.write_all(&out).await.map_err(broken)?;
        stream.flush().await.map_err(broken)?;
        let mut input = BytesMut::new();
        let (kind, payload) =
            first_frame(&mut stream, &mut input).await.map_err(|bad| match bad {
                Unread::Broken(why) => DialError::Broken(endpoint, why),
                Unread::Garbage(why) => DialError::Protocol(endpoint, why),
                Unread::Insecure(why) => DialError::Insecure(endpoint, why),
            })?;
        match kind {
            FrameKind::Welcome => {
                let welcome = Welcome::decode(&payload)
                    .map_err(|e| DialError::Protocol(endpoint, e.to_string()))?;
                let there = SiloAddress::new(endpoint, welcome.silo.epoch()) == welcome.silo;
                let seal = welcome.seal.as_ref();
                greeting
                    .security
                    .judge_acceptor(&stream, welcome.silo, there, seal)
                    .map_err(|why| DialError::Insecure(endpoint, why))?;
                Ok((stream, welcome, input))
            }
            FrameKind::Refuse => {
                let refuse = Refuse::decode(&payload)
                    .map_err(|e| DialError::Protocol(endpoint, e.to_string()))?;
                Err(DialError::Refused(endpoint, refuse))
            }
            other => Err(DialError::Protocol(endpoint, format!("its first frame is {other:?}"))),
        }
    };
    let dialed = tokio::time::timeout(greeting.timeout, attempt)
        .await
        .unwrap_or(Err(DialError::TimedOut(endpoint, greeting.timeout)));
    // A client without TLS that is refused gets it as the error of `connect`.
    if let Err(error) = &dialed
        && error.is_of_security()
        && (greeting.security.is_set_up() || !matches!(greeting.me, PeerKind::Client(_)))
    {
        warn_seldom!(%error, "a silo was not connected to");
    }
    dialed
}

/// The token for this connection, if tokens are shown: never where others may read it.
async fn show_token(
    stream: &TcpStream,
    endpoint: SocketAddr,
    greeting: &Greeting,
) -> Result<Option<Token>, DialError> {
    let Some(source) = &greeting.token else { return Ok(None) };
    if !stream.is_private() && !endpoint.ip().is_loopback() {
        let why = "a token is shown over encrypted connections only (TLS)";
        return Err(DialError::Insecure(endpoint, why.to_owned()));
    }
    let token = source.token().await;
    token.map(Some).map_err(|error| DialError::NoToken(endpoint, error))
}

/// Asks who lives at the endpoint of `silo`, on a fresh connection, and hangs up.
///
/// A process that is being killed loses its connections before its listening socket. The operating
/// system still accepts a dial then, and breaks it. Such a dial is made again, at growing
/// intervals, until it is answered or refused.
pub async fn dial_probe(silo: SiloAddress, greeting: &Greeting, timeout: Duration) -> DialOutcome {
    let greeting = Greeting { timeout, ..greeting.clone() };
    let attempts = async {
        let mut pause = REDIAL_PAUSE_MIN;
        loop {
            match dial(silo.endpoint(), Some(silo), &greeting).await {
                Err(DialError::Broken(..)) => tokio::time::sleep(pause).await,
                other => return other,
            }
            pause *= 2;
        }
    };
    let Ok(dialed) = tokio::time::timeout(timeout, attempts).await else {
        return DialOutcome::NoAnswer;
    };
    match dialed {
        Ok((_, found, _)) if found == silo => DialOutcome::Answered,
        Ok((_, found, _)) => DialOutcome::OtherEpoch(found),
        Err(DialError::Refused(_, refuse)) => match (refuse.code, refuse.silo) {
            (RefuseCode::WrongSilo, Some(found)) => DialOutcome::OtherEpoch(found),
            // The silo answers, so it lives, even if it refuses.
            (_, Some(found)) if found == silo => DialOutcome::Answered,
            _ => DialOutcome::NoAnswer,
        },
        Err(DialError::Connect(_, e)) if e.kind() == std::io::ErrorKind::ConnectionRefused => {
            if is_of_this_machine(silo.endpoint().ip()).await {
                DialOutcome::Vacant
            } else {
                DialOutcome::Refused
            }
        }
        Err(_) => DialOutcome::NoAnswer,
    }
}

/// Returns true if this machine has the address `ip`: a socket can be bound to it.
async fn is_of_this_machine(ip: IpAddr) -> bool {
    TcpListener::bind((ip, 0).into()).await.is_ok()
}

/// Decision of an acceptor about a Hello.
pub(crate) enum Verdict {
    Accept,
    Refuse(RefuseCode, String),
}

/// Answers the Hello on an accepted stream. `judge` decides; a refused or garbled stream gets the
/// reason and is closed.
pub(crate) async fn accept(
    (stream, from): (TcpStream, SocketAddr),
    port: Port,
    me: SiloAddress,
    greeting: &Greeting,
    judge: impl Fn(&Hello) -> Verdict,
) -> Result<(Connection, BytesMut), String> {
    let attempt = async {
        stream.set_nodelay().map_err(|e| e.to_string())?;
        stream.keep_alive();
        let (mut stream, proof) = match greeting.security.accepted(stream, port).await {
            Ok(secured) => secured,
            Err(Barred::Failed(why)) => {
                tell_refused(port, from, &why);
                return Err(why);
            }
            Err(Barred::Plain(mut stream)) => {
                let why = "this port accepts encrypted connections only (TLS)".to_owned();
                tell_refused(port, from, &why);
                refuse(&mut stream, RefuseCode::Insecure, None, why.clone()).await;
                return Err(why);
            }
        };
        let mut input = BytesMut::new();
        let mut out = BytesMut::new();
        let hello = match first_frame(&mut stream, &mut input).await {
            Ok((FrameKind::Hello, payload)) => {
                Hello::decode(&payload).map_err(|e| (e.refuse_code(), e.to_string()))
            }
            Ok((kind, _)) => Err((RefuseCode::BadHello, format!("expected Hello, got {kind:?}"))),
            Err(Unread::Insecure(why)) => return Err(why),
            Err(Unread::Garbage(_)) if is_tls(&input) => {
                let why = "this port accepts plain connections only, and the dialer speaks TLS";
                Err((RefuseCode::Insecure, why.to_owned()))
            }
            Err(Unread::Broken(why) | Unread::Garbage(why)) => Err((RefuseCode::BadHello, why)),
        };
        let verdict = match &hello {
            Ok(hello) => match proof.allows(hello.peer) {
                Ok(()) => judge(hello),
                Err(why) => Verdict::Refuse(RefuseCode::Insecure, why),
            },
            Err((code, reason)) => Verdict::Refuse(*code, reason.clone()),
        };
        let verdict = match (&hello, verdict) {
            (Ok(hello), Verdict::Accept) => match vouch(greeting, me, &stream, hello).await {
                Ok(()) => Verdict::Accept,
                Err(why) => Verdict::Refuse(RefuseCode::Insecure, why),
            },
            (_, verdict) => verdict,
        };
        let (verdict, admitted) = match (&hello, verdict) {
            (Ok(hello), Verdict::Accept) => {
                let is_private = stream.is_private();
                let shown =
                    || Credentials::new(hello.token.clone(), proof.names(), from, is_private);
                match admit_client(greeting, hello.peer, shown).await {
                    Ok(client) => (Verdict::Accept, client),
                    Err(why) => (Verdict::Refuse(RefuseCode::Denied, why), None),
                }
            }
            (_, verdict) => (verdict, None),
        };
        match (hello, verdict) {
            (Ok(hello), Verdict::Accept) => {
                let limits = greeting.connection_limits();
                let version = hello.negotiated().unwrap_or(emmer_wire::PROTOCOL_VERSION);
                let seal = match hello.peer {
                    PeerKind::Client(_) => None,
                    _ => greeting.security.seal(&stream, me, false),
                };
                let options = greeting.options;
                encode_welcome(&mut out, &Welcome { version, silo: me, limits, options, seal });
                stream.write_all(&out).await.map_err(|e| e.to_string())?;
                stream.flush().await.map_err(|e| e.to_string())?;
                if let (PeerKind::Pulse(_), Some(thread)) = (hello.peer, &greeting.pulse) {
                    stream = stream.move_to(thread).map_err(|e| e.to_string())?;
                }
                let mut connection =
                    Connection::new(hello.peer, hello.options, stream, hello.limits, greeting);
                connection.admitted = admitted;
                connection.from = Some(from);
                Ok((connection, input))
            }
            (_, Verdict::Refuse(code, reason)) => {
                if code == RefuseCode::Insecure {
                    tell_refused(port, from, &reason);
                }
                // Another cluster's dialer is not told who is here.
                let silo = (code != RefuseCode::ClusterMismatch && code != RefuseCode::BadHello)
                    .then_some(me);
                refuse(&mut stream, code, silo, reason.clone()).await;
                Err(reason)
            }
            (Err((_, reason)), Verdict::Accept) => Err(reason),
        }
    };
    tokio::time::timeout(greeting.timeout, attempt)
        .await
        .unwrap_or_else(|_| Err(format!("no Hello within {:?}", greeting.timeout)))
}

/// Checks that a dialer over TLS that says it is a silo is the process at that silo's address. If
/// its key is not known yet, that address is dialled and asked for it. A dialer without TLS is
/// dialled back with TLS, if this side dials so: both kinds exist on the way from plain to
/// encrypted connections.
///
/// # Errors
/// It is not that process, it accepts no TLS, or could not be asked: for people.
async fn vouch(
    greeting: &Greeting,
    me: SiloAddress,
    stream: &TcpStream,
    hello: &Hello,
) -> Result<(), String> {
    let (PeerKind::Silo(silo) | PeerKind::Watch(silo) | PeerKind::Pulse(silo)) = hello.peer else {
        return Ok(());
    };
    let probes_plain = greeting.security.encrypts() && !stream.is_private();
    let is_known = || greeting.security.judge_dialer(stream, me, silo, hello.seal.as_ref());
    if is_known()? && !probes_plain {
        return Ok(());
    }
    let asking = Greeting {
        me: PeerKind::Probe(me),
        options: 0,
        // Ends before the handshake does, so that the dialer can be told.
        timeout: greeting.timeout / 5 * 4,
        ..greeting.clone()
    };
    // The answer makes its key known.
    let asked = Box::pin(greet(silo.endpoint(), Some(silo), &asking)).await;
    if probes_plain {
        return match asked {
            Err(error) if error.is_insecure() => Err(format!(
                "this silo encrypts the connections that it makes, and {silo} accepts none: {error}"
            )),
            _ => Ok(()),
        };
    }
    asked.map_err(|e| format!("{silo} could not be asked if this connection is its own: {e}"))?;
    if is_known()? { Ok(()) } else { Err(format!("{silo} does not answer at its address")) }
}

async fn admit_client(
    greeting: &Greeting,
    peer: PeerKind,
    shown: impl FnOnce() -> Credentials,
) -> Result<Option<Admitted>, String> {
    let PeerKind::Client(_) = peer else { return Ok(None) };
    let Some(admit) = &greeting.admit else { return Ok(None) };
    // Ends before the handshake does, so that the client can be told.
    let asked = tokio::time::timeout(greeting.timeout / 5 * 4, admit.ask(shown()));
    let late = |_| Err("the silo could not check in time who this is".to_owned());
    let admitted = asked.await.unwrap_or_else(late)?;
    match admitted.as_ref().and_then(|admitted| admitted.until) {
        Some(end) if until(end).is_zero() => {
            Err("the identity of this client has ended".to_owned())
        }
        _ => Ok(admitted),
    }
}

/// The time from now until `end`, by the wall clock; zero if it is over.
pub(super) fn until(end: SystemTime) -> Duration {
    let since = end.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(clock::wall().as_millis()).unwrap_or_default();
    since.saturating_sub(Duration::from_millis(now))
}

/// Says in the log that something came to the port of silos and was not let in for its security:
/// its own log may be elsewhere.
fn tell_refused(port: Port, from: SocketAddr, why: &str) {
    if port == Port::Silo {
        warn_seldom!(%from, why, "a connection of a silo was refused");
    }
}

/// Tells a dialer why it is not let in, and hangs up. Best effort.
async fn refuse(
    stream: &mut TcpStream,
    code: RefuseCode,
    silo: Option<SiloAddress>,
    reason: String,
) {
    let mut out = BytesMut::new();
    encode_refuse(&mut out, &Refuse { code, silo, reason });
    let _ = stream.write_all(&out).await;
    let _ = stream.shutdown().await;
}

/// Why there is no first frame.
enum Unread {
    /// The security of the stream is not the expected one.
    Insecure(String),
    /// The stream ended or broke.
    Broken(String),
    /// The bytes are no frame.
    Garbage(String),
}

async fn first_frame(
    stream: &mut TcpStream,
    input: &mut BytesMut,
) -> Result<(FrameKind, bytes::Bytes), Unread> {
    loop {
        match decode_frame(input, HANDSHAKE_BYTES_MAX) {
            Ok(Some(frame)) => return Ok((frame.kind, frame.payload)),
            Ok(None) => {}
            Err(e) => return Err(Unread::Garbage(e.to_string())),
        }
        match stream.read_buf(input).await {
            Ok(0) => {
                return Err(Unread::Broken("the stream ended during the handshake".to_owned()));
            }
            Ok(_) => {}
            Err(e) => {
                return Err(match in_words(&e) {
                    (why, true) => Unread::Insecure(why),
                    (why, false) => Unread::Broken(why),
                });
            }
        }
    }
}
