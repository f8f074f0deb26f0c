//! Emmer's frames, handshake and message headers. Sans-IO.
//!
//! `docs/wire.md` specifies every byte and holds the test vectors that this crate is checked
//! against. Nothing here reads a socket, waits or looks at a clock: bytes go in, values come out,
//! and the other way round. Two rules shape the code:
//!
//! * **Outside bytes are hostile.** Whatever arrives decodes to a value or to an error; it never
//!   panics, and it never allocates more than a small multiple of what has really arrived.
//! * **A header is written and read where it lies.** Whoever sends gives the buffer that a frame is
//!   appended to; headers and bodies that arrive are read in the buffer they arrived in. What has
//!   to live longer its owner copies.
//!
//! | module | subject |
//! |---|---|
//! | [`frame`] | the length prefix and the kinds of frame |
//! | [`handshake`] | Hello, Welcome, Refuse; version negotiation |
//! | [`request`] | the header of a call, its call chain, its trace |
//! | [`response`] | the header of an answer, failures |
//! | [`control`] | system messages, credit, goodbye |
//! | [`codec`] | user values as MessagePack with named fields |
//! | [`error`] | what can be wrong with bytes |

pub mod codec;
mod context;
pub mod control;
pub mod error;
pub mod frame;
pub mod handshake;
mod ident;
mod read;
pub mod request;
pub mod response;
pub mod seal;
mod staged;
mod trace;

pub use codec::{Codec, CodecError, MessagePack};
pub use context::{
    CLAIM_PREFIX, CONTEXT_BYTES_MAX, CONTEXT_ENTRIES_MAX, CONTEXT_KEY_BYTES_MAX, ContextError,
    HINT_KEY, IDENTITY_KEY, OUTSIDE_KEY, RESERVED_PREFIX, RequestContext,
};
pub use control::{
    CANCELS_MAX, Goodbye, GoodbyeCode, channel, decode_cancel, decode_credit,
    decode_system_channel, encode_cancel, encode_credit, encode_goodbye, encode_system,
    extend_cancel,
};
pub use error::{FrameError, HeaderError};
pub use frame::{
    FRAME_PREFIX_BYTES, Frame, FrameKind, FrameRef, decode_frame, frame_fits, peek_frame,
};
pub use handshake::{
    ConnectionLimits, HANDSHAKE_BYTES_MAX, Hello, PROTOCOL_VERSION, PROTOCOL_VERSION_MIN, PeerKind,
    Refuse, RefuseCode, TOKEN_BYTES_MAX, Token, Welcome, encode_hello, encode_refuse,
    encode_welcome, negotiate,
};
pub use request::{
    CallChain, ChainLink, ChainTooLong, RequestFlags, RequestHead, RequestHeader, decode_request,
    encode_request, encode_request_head, read_request, set_correlation,
};
pub use response::{
    Failure, FailureCode, ResponseHeader, ResponseStatus, decode_failure, decode_response,
    encode_failure, encode_response, put_failure, read_response,
};
pub use seal::{SEAL_EXPORTER, Seal};
pub use trace::TraceContext;

/// The longest free text in a frame (a refusal's reason, a failure's detail, a goodbye's text), in
/// bytes. Longer text is cut at a character boundary before it is sent, and refused when it
/// arrives.
pub const TEXT_BYTES_MAX: usize = 1024;
