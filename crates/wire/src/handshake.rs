//! The handshake: who is there, which version is spoken, what each side accepts.
//!
//! The dialer sends [`Hello`], the acceptor answers [`Welcome`] or [`Refuse`]. The start of Hello
//! and all of Refuse keep their layout in every future version, so that two versions with nothing
//! in common can still say so.

use std::fmt;
use std::sync::Arc;

use bytes::BytesMut;
use emmer_core::limits::Limits;
use emmer_core::{ClusterId, SiloAddress};

use crate::TEXT_BYTES_MAX;
use crate::codec::CODEC_MESSAGE_PACK;
use crate::error::HeaderError;
use crate::frame::{FrameKind, append_plain};
use crate::ident::{put_optional_silo, put_silo, read_optional_silo, read_silo};
use crate::read::{Reader, cut};
use crate::seal::Seal;
use crate::staged::Staged;

/// The oldest protocol version this side speaks.
pub const PROTOCOL_VERSION_MIN: u16 = 1;

/// The newest protocol version this side speaks.
pub const PROTOCOL_VERSION: u16 = 1;

/// The largest handshake frame (Hello, Welcome, Refuse): the `frame_bytes_max` to use before the
/// peer has introduced itself, so that strangers cannot make a silo buffer anything.
pub const HANDSHAKE_BYTES_MAX: u32 = 16_384;

/// The longest token of a client, in bytes.
pub const TOKEN_BYTES_MAX: usize = 8_192;

/// Beginning of every Hello.
const MAGIC: [u8; 4] = *b"EMMR";

const PEER_SILO: u8 = 1;
const PEER_CLIENT: u8 = 2;
const PEER_PROBE: u8 = 3;
const PEER_WATCH: u8 = 4;
const PEER_PULSE: u8 = 5;

/// The version two sides speak: the highest that both know, when the peer speaks `min` to `max`.
pub const fn negotiate(min: u16, max: u16) -> Option<u16> {
    let common = if max < PROTOCOL_VERSION { max } else { PROTOCOL_VERSION };
    if common >= min && common >= PROTOCOL_VERSION_MIN && min <= max { Some(common) } else { None }
}

/// Dialer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerKind {
    /// A silo of the cluster: the connection carries everything.
    Silo(SiloAddress),
    /// A client outside the cluster, by the random number it chose for this run.
    Client(u64),
    /// A silo that only wants to know who answers here: the acceptor answers and closes.
    Probe(SiloAddress),
    /// A silo that wants to see when the acceptor's process ends. The dialer sends nothing after
    /// its Hello, and the acceptor only a goodbye. So nothing is ever unread in the connection, and
    /// the acceptor's kernel ends it in good order.
    Watch(SiloAddress),
    /// A silo whose membership talks here with that of the acceptor, apart from all calls.
    Pulse(SiloAddress),
}

/// Limits of the sender of this on the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionLimits {
    /// The most calls it keeps open; one more is answered `Overloaded`.
    pub calls_in_flight_max: u32,
    /// The largest frame it reads, as announced in the prefix; a larger one closes the connection.
    pub frame_bytes_max: u32,
    /// Number of bytes that the other side may send ahead of those that have been processed (flow
    /// control by credit).
    pub credit_bytes: u64,
}

impl ConnectionLimits {
    /// The limits as configured, with credit for `credit_bytes`.
    pub const fn new(limits: &Limits, credit_bytes: u64) -> Self {
        Self {
            calls_in_flight_max: limits.calls_in_flight_max,
            frame_bytes_max: limits.frame_bytes_max,
            credit_bytes,
        }
    }

    fn put(&self, out: &mut Staged<'_>) {
        out.put_u32_le(self.calls_in_flight_max);
        out.put_u32_le(self.frame_bytes_max);
        out.put_u64_le(self.credit_bytes);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, HeaderError> {
        Ok(Self {
            calls_in_flight_max: input.u32("calls_in_flight_max")?,
            frame_bytes_max: input.u32("frame_bytes_max")?,
            credit_bytes: input.u64("credit_bytes")?,
        })
    }
}

/// A client's token, as its application has it: 1 to 8,192 bytes of text. It is in no log and no
/// error.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Arc<str>);

impl Token {
    /// None if it is empty or longer than [`TOKEN_BYTES_MAX`].
    pub fn new(text: impl Into<Arc<str>>) -> Option<Self> {
        let text = text.into();
        (1..=TOKEN_BYTES_MAX).contains(&text.len()).then_some(Self(text))
    }

    /// The secret itself.
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({} bytes)", self.0.len())
    }
}

/// The dialer's first frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The oldest protocol version the dialer speaks.
    pub version_min: u16,
    /// The newest protocol version the dialer speaks.
    pub version_max: u16,
    /// The cluster the dialer belongs to or wants to talk to.
    pub cluster: ClusterId,
    /// Dialer.
    pub peer: PeerKind,
    /// The incarnation that the dialer wants, if any. Another one answers [`RefuseCode::WrongSilo`]
    /// and says who it is.
    pub expects: Option<SiloAddress>,
    /// Encoding of bodies: [`CODEC_MESSAGE_PACK`].
    pub codec: u8,
    /// Limits of the dialer.
    pub limits: ConnectionLimits,
    /// A digest of the options that must be the same on every silo of a cluster; 0: not said.
    pub options: u64,
    /// The token that a client shows, if it shows one.
    pub token: Option<Token>,
    /// The seal of the silo that dials over TLS.
    pub seal: Option<Seal>,
}

impl Hello {
    /// A Hello in this side's versions and codec, which does not say its options.
    pub const fn new(
        cluster: ClusterId,
        peer: PeerKind,
        expects: Option<SiloAddress>,
        limits: ConnectionLimits,
    ) -> Self {
        Self {
            version_min: PROTOCOL_VERSION_MIN,
            version_max: PROTOCOL_VERSION,
            cluster,
            peer,
            expects,
            codec: CODEC_MESSAGE_PACK,
            limits,
            options: 0,
            token: None,
            seal: None,
        }
    }

    /// The version both sides speak. Always there for a decoded Hello.
    pub const fn negotiated(&self) -> Option<u16> {
        negotiate(self.version_min, self.version_max)
    }

    /// Reads the payload of a Hello frame. Bytes after the last field are left to later versions.
    ///
    /// # Errors
    /// [`HeaderError::NotEmmer`] for a foreign protocol, [`HeaderError::Version`] when no version
    /// is shared (the rest is not read), others for a broken Hello; [`HeaderError::refuse_code`] is
    /// the answer.
    pub fn decode(payload: &[u8]) -> Result<Self, HeaderError> {
        let mut input = Reader::new(payload);
        let magic = input.array("the magic number")?;
        if magic != MAGIC {
            return Err(HeaderError::NotEmmer(magic));
        }
        let version_min = input.u16("version_min")?;
        let version_max = input.u16("version_max")?;
        if negotiate(version_min, version_max).is_none() {
            return Err(HeaderError::Version { min: version_min, max: version_max });
        }
        let cluster = {
            let n = input.u8("the cluster id")?;
            let text = input.text(usize::from(n), "the cluster id")?;
            ClusterId::new(text).map_err(|_| HeaderError::Text("the cluster id"))?
        };
        let peer = match input.u8("the peer's kind")? {
            PEER_SILO => PeerKind::Silo(read_silo(&mut input)?),
            PEER_CLIENT => PeerKind::Client(input.u64("the client's number")?),
            PEER_PROBE => PeerKind::Probe(read_silo(&mut input)?),
            PEER_WATCH => PeerKind::Watch(read_silo(&mut input)?),
            PEER_PULSE => PeerKind::Pulse(read_silo(&mut input)?),
            value => {
                return Err(HeaderError::Value {
                    field: "the peer's kind",
                    value: u64::from(value),
                });
            }
        };
        let expects = read_optional_silo(&mut input, "the expected silo")?;
        let codec = match input.u8("the codec")? {
            0 => return Err(HeaderError::Value { field: "the codec", value: 0 }),
            codec => codec,
        };
        Ok(Self {
            version_min,
            version_max,
            cluster,
            peer,
            expects,
            codec,
            limits: ConnectionLimits::read(&mut input)?,
            options: read_options(&mut input)?,
            token: read_token(&mut input)?,
            seal: Seal::read(&mut input)?,
        })
    }
}

/// Appends a Hello frame and returns its length in bytes, prefix included.
pub fn encode_hello(out: &mut BytesMut, hello: &Hello) -> usize {
    append_plain(out, FrameKind::Hello, |out| {
        out.put_slice(&MAGIC);
        out.put_u16_le(hello.version_min);
        out.put_u16_le(hello.version_max);
        let cluster = hello.cluster.as_str();
        // A cluster id has at most 64 bytes.
        out.put_u8(cluster.len() as u8);
        out.put_slice(cluster.as_bytes());
        match &hello.peer {
            PeerKind::Silo(silo) => {
                out.put_u8(PEER_SILO);
                put_silo(out, silo);
            }
            PeerKind::Client(number) => {
                out.put_u8(PEER_CLIENT);
                out.put_u64_le(*number);
            }
            PeerKind::Probe(silo) => {
                out.put_u8(PEER_PROBE);
                put_silo(out, silo);
            }
            PeerKind::Watch(silo) => {
                out.put_u8(PEER_WATCH);
                put_silo(out, silo);
            }
            PeerKind::Pulse(silo) => {
                out.put_u8(PEER_PULSE);
                put_silo(out, silo);
            }
        }
        put_optional_silo(out, hello.expects.as_ref());
        out.put_u8(hello.codec);
        hello.limits.put(out);
        out.put_u64_le(hello.options);
        if hello.token.is_some() || hello.seal.is_some() {
            let token = hello.token.as_ref().map_or("", Token::text);
            // At most 8,192 bytes.
            out.put_u16_le(token.len() as u16);
            out.put_slice(token.as_bytes());
        }
        if let Some(seal) = &hello.seal {
            seal.put(out);
        }
    })
}

/// The token, from a peer that shows one.
fn read_token(input: &mut Reader<'_>) -> Result<Option<Token>, HeaderError> {
    const FIELD: &str = "the token";
    if input.remaining() == 0 {
        return Ok(None);
    }
    let bytes = input.u16(FIELD)?;
    let text = input.text(usize::from(bytes), FIELD)?;
    if bytes == 0 {
        return Ok(None);
    }
    let wrong = HeaderError::Value { field: FIELD, value: u64::from(bytes) };
    Token::new(text).map(Some).ok_or(wrong)
}

/// The digest of the options, from a peer that knows the field.
fn read_options(input: &mut Reader<'_>) -> Result<u64, HeaderError> {
    if input.remaining() == 0 { Ok(0) } else { input.u64("the digest of the options") }
}

/// The acceptor's first frame when it agrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The version spoken from here on.
    pub version: u16,
    /// Silo that answers.
    pub silo: SiloAddress,
    /// Limits of the acceptor.
    pub limits: ConnectionLimits,
    /// As in [`Hello`].
    pub options: u64,
    /// The seal of the acceptor, for a silo that has dialled over TLS.
    pub seal: Option<Seal>,
}

impl Welcome {
    /// Reads the payload of a Welcome frame. Bytes after the last field are left to later versions.
    ///
    /// # Errors
    /// [`HeaderError`] when it is broken or chooses a version this side does not speak.
    pub fn decode(payload: &[u8]) -> Result<Self, HeaderError> {
        let mut input = Reader::new(payload);
        let version = input.u16("the version")?;
        if negotiate(version, version).is_none() {
            return Err(HeaderError::Version { min: version, max: version });
        }
        Ok(Self {
            version,
            silo: read_silo(&mut input)?,
            limits: ConnectionLimits::read(&mut input)?,
            options: read_options(&mut input)?,
            seal: Seal::read(&mut input)?,
        })
    }
}

/// Appends a Welcome frame and returns its length in bytes, prefix included.
pub fn encode_welcome(out: &mut BytesMut, welcome: &Welcome) -> usize {
    append_plain(out, FrameKind::Welcome, |out| {
        out.put_u16_le(welcome.version);
        put_silo(out, &welcome.silo);
        welcome.limits.put(out);
        out.put_u64_le(welcome.options);
        if let Some(seal) = &welcome.seal {
            seal.put(out);
        }
    })
}

/// Why an acceptor declines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefuseCode {
    /// 1: the dialer belongs to another cluster.
    ClusterMismatch,
    /// 2: no protocol version is spoken by both.
    VersionMismatch,
    /// 3: another incarnation or another silo lives here than the dialer expects.
    WrongSilo,
    /// 4: a client dialed a port that is not a gateway, or a silo dialed a gateway.
    NotAGateway,
    /// 5: too many connections; try another silo.
    Overloaded,
    /// 6: the silo is on its way out.
    Stopping,
    /// 7: the Hello made no sense.
    BadHello,
    /// 8: the connection is not encrypted, or its dialer has not shown that it may say this.
    Insecure,
    /// 9: the application lets no such client in.
    Denied,
    /// Another number, from a later version: the reason says more.
    Other(u8),
}

impl From<u8> for RefuseCode {
    fn from(number: u8) -> Self {
        match number {
            1 => Self::ClusterMismatch,
            2 => Self::VersionMismatch,
            3 => Self::WrongSilo,
            4 => Self::NotAGateway,
            5 => Self::Overloaded,
            6 => Self::Stopping,
            7 => Self::BadHello,
            8 => Self::Insecure,
            9 => Self::Denied,
            other => Self::Other(other),
        }
    }
}

impl From<RefuseCode> for u8 {
    fn from(code: RefuseCode) -> Self {
        match code {
            RefuseCode::ClusterMismatch => 1,
            RefuseCode::VersionMismatch => 2,
            RefuseCode::WrongSilo => 3,
            RefuseCode::NotAGateway => 4,
            RefuseCode::Overloaded => 5,
            RefuseCode::Stopping => 6,
            RefuseCode::BadHello => 7,
            RefuseCode::Insecure => 8,
            RefuseCode::Denied => 9,
            RefuseCode::Other(number) => number,
        }
    }
}

/// The acceptor's only frame when it declines. It then closes the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refuse {
    /// Why, for programs.
    pub code: RefuseCode,
    /// Silo that really is here. `None` when the acceptor does not say (another cluster's dialer).
    pub silo: Option<SiloAddress>,
    /// Why, for people; at most [`TEXT_BYTES_MAX`] bytes travel.
    pub reason: String,
}

impl Refuse {
    /// Reads the payload of a Refuse frame. The layout is the same in every version, and bytes
    /// after the last field are left to later ones.
    ///
    /// # Errors
    /// [`HeaderError`] when it is broken.
    pub fn decode(payload: &[u8]) -> Result<Self, HeaderError> {
        let mut input = Reader::new(payload);
        let code = RefuseCode::from(input.u8("the refusal's code")?);
        let silo = read_optional_silo(&mut input, "the refusing silo")?;
        let n = usize::from(input.u16("the refusal's reason")?);
        if n > TEXT_BYTES_MAX {
            return Err(HeaderError::TextTooLong(n));
        }
        let reason = input.text(n, "the refusal's reason")?.to_owned();
        Ok(Self { code, silo, reason })
    }
}

/// Appends a Refuse frame and returns its length in bytes, prefix included. A long reason is cut.
pub fn encode_refuse(out: &mut BytesMut, refuse: &Refuse) -> usize {
    append_plain(out, FrameKind::Refuse, |out| {
        out.put_u8(refuse.code.into());
        put_optional_silo(out, refuse.silo.as_ref());
        let reason = cut(&refuse.reason, TEXT_BYTES_MAX);
        out.put_u16_le(reason.len() as u16);
        out.put_slice(reason.as_bytes());
    })
}
