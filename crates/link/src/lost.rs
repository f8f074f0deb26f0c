//! Why connections end and calls are not sent.

use emmer_wire::GoodbyeCode;

use crate::pending::Full;

/// Why a connection ended; every call that waits on it learns this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The peer's kernel ended the stream in good order (FIN), without a goodbye of the peer.
    Ended,
    /// The stream broke.
    Broken(String),
    /// The membership view says that the peer is dead.
    PeerDead,
    /// The peer serves no further calls, and has answered every call that it has begun: calls
    /// without an answer did not run. The connection itself stays.
    Drained,
    /// Another connection to the same peer has taken its place.
    Replaced,
    /// Something was sent and no byte came back; a silo answers a new connection.
    Silent,
    /// The peer said goodbye.
    Goodbye(GoodbyeCode),
    /// The peer sent bytes that are not Emmer's protocol.
    Protocol(String),
    /// This side closed it.
    Closed,
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ended => f.write_str("the peer's host closed the connection"),
            Self::Broken(why) => write!(f, "the connection broke: {why}"),
            Self::PeerDead => f.write_str("the silo was declared dead"),
            Self::Drained => f.write_str("the peer has stopped serving calls"),
            Self::Replaced => f.write_str("another connection has taken its place"),
            Self::Silent => f.write_str("the connection fell silent"),
            Self::Goodbye(code) => write!(f, "the peer closed the connection: {code:?}"),
            Self::Protocol(why) => write!(f, "the peer broke the protocol: {why}"),
            Self::Closed => f.write_str("the connection was closed on this side"),
        }
    }
}

/// Why a message was not even queued. Nothing was sent.
#[derive(Debug)]
pub enum SendError {
    /// The connection has ended.
    Lost(Lost),
    /// A limit was reached; the text says which.
    Overloaded(&'static str),
    /// As many calls wait as may.
    Full(Full),
    /// The frame would be larger than the peer reads.
    TooLarge(usize),
    /// The body does not encode.
    Codec(String),
}
