//! The defects of bytes from outside.

use emmer_core::grain::GrainKey;
use emmer_core::limits::{CALL_CHAIN_MAX, GRAIN_KEY_BYTES_MAX};

use crate::{PROTOCOL_VERSION, PROTOCOL_VERSION_MIN, RefuseCode, TEXT_BYTES_MAX};

/// The bytes are not a sequence of frames. There is no way to find the next frame: the connection
/// must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The prefix announced a frame without even a kind.
    #[error("a frame of length 0")]
    Empty,
    /// The prefix announced more than this side accepts. Nothing was allocated for it.
    #[error("a frame of {bytes} bytes where at most {max} are accepted (prefix \
        {:02x?})", bytes.to_le_bytes())]
    TooLong {
        /// The announced length.
        bytes: u32,
        /// The most this side accepts.
        max: u32,
    },
    /// A kind of frame that this version of the protocol does not have.
    #[error("a frame of unknown kind {0}")]
    UnknownKind(u8),
}

/// The payload of a frame is not what its kind promises. The peer speaks another protocol or is
/// broken: the connection must be closed, and nothing else is harmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The payload ends inside the named field.
    #[error("the payload ends inside {0}")]
    Truncated(&'static str),
    /// Bytes are left over after the last field.
    #[error("{0} bytes too many after the last field")]
    Trailing(usize),
    /// The Hello does not start with Emmer's magic number.
    #[error("not Emmer's protocol: a handshake that starts with {0:02x?} instead of \"EMMR\"")]
    NotEmmer([u8; 4]),
    /// No version is spoken by both sides.
    #[error(
        "the peer speaks protocol versions {min} to {max}, this side {PROTOCOL_VERSION_MIN} to \
         {PROTOCOL_VERSION}"
    )]
    Version {
        /// The oldest version the peer speaks.
        min: u16,
        /// The newest version the peer speaks.
        max: u16,
    },
    /// The named field holds a value that means nothing.
    #[error("{field} is {value}, which means nothing in this version")]
    Value {
        /// The field.
        field: &'static str,
        /// Value of the field.
        value: u64,
    },
    /// The named text is not UTF-8, or not a legal name where a name is expected.
    #[error("{0} is not legal text")]
    Text(&'static str),
    /// A text key beyond [`GRAIN_KEY_BYTES_MAX`].
    #[error("a grain key of {0} bytes where at most {GRAIN_KEY_BYTES_MAX} are accepted")]
    KeyTooLong(u64),
    /// A free text beyond [`TEXT_BYTES_MAX`].
    #[error("a text of {0} bytes where at most {TEXT_BYTES_MAX} are accepted")]
    TextTooLong(usize),
    /// A call chain beyond [`CALL_CHAIN_MAX`].
    #[error("a call chain of {0} links where at most {CALL_CHAIN_MAX} are accepted")]
    ChainTooLong(u8),
}

impl HeaderError {
    /// Code with which a silo refuses a Hello that failed to decode with this error.
    pub const fn refuse_code(&self) -> RefuseCode {
        match self {
            Self::Version { .. } => RefuseCode::VersionMismatch,
            _ => RefuseCode::BadHello,
        }
    }
}

/// Text keys beyond [`GRAIN_KEY_BYTES_MAX`] do not travel.
pub(crate) fn check_key(key: &GrainKey) -> Result<(), HeaderError> {
    match key {
        GrainKey::Text(text) if text.len() > GRAIN_KEY_BYTES_MAX => {
            Err(HeaderError::KeyTooLong(text.len() as u64))
        }
        _ => Ok(()),
    }
}
