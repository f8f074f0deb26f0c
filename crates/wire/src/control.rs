//! The other frames of a connection: system messages, credit, goodbye.

use bytes::{Bytes, BytesMut};
use serde::Serialize;

use crate::TEXT_BYTES_MAX;
use crate::codec::{self, CodecError};
use crate::error::HeaderError;
use crate::frame::{FRAME_PREFIX_BYTES, FrameKind, append, append_plain};
use crate::read::{Reader, cut};

/// The channels of system messages: which part of the runtime reads them.
pub mod channel {
    /// Probes, views, joins.
    pub const MEMBERSHIP: u8 = 1;
    /// Registrations and look-ups of grains.
    pub const DIRECTORY: u8 = 2;
    /// Between clients and their gateways.
    pub const GATEWAY: u8 = 3;
    /// Messages between the two ends of a connection about its calls.
    pub const CALLS: u8 = 4;
    /// Waits of turns for each other, between silos.
    pub const WAITS: u8 = 5;
    /// Load of each silo, between silos.
    pub const LOAD: u8 = 6;
    /// Reminders that have changed, between silos.
    pub const REMINDERS: u8 = 7;
    /// Values of streams, and what their ends tell each other.
    pub const STREAMS: u8 = 8;
    /// Grains that move, between silos.
    pub const MOVES: u8 = 9;
    /// Questions and orders of operators, and their answers.
    pub const ADMIN: u8 = 10;
}

/// Appends a System frame: the [`channel`], then `value` as MessagePack with named fields. Returns
/// its length in bytes, prefix included.
///
/// # Errors
/// [`CodecError`] when `value` cannot be encoded; then `out` is as it was before.
pub fn encode_system<T: Serialize + ?Sized>(
    out: &mut BytesMut,
    channel: u8,
    value: &T,
) -> Result<usize, CodecError> {
    append(
        out,
        FrameKind::System,
        |head| head.put_u8(channel),
        |out| codec::encode_into(out, value),
    )
}

/// Splits the payload of a System frame into its channel and the encoded value, without a copy. The
/// channel is not judged: an unknown one is a later version's.
///
/// # Errors
/// [`HeaderError`] when the payload is empty or the channel is 0.
pub fn decode_system_channel(payload: &Bytes) -> Result<(u8, Bytes), HeaderError> {
    match payload.first() {
        None => Err(HeaderError::Truncated("a system channel")),
        Some(0) => Err(HeaderError::Value { field: "a system channel", value: 0 }),
        Some(channel) => Ok((*channel, payload.slice(1..))),
    }
}

/// Appends a Credit frame and returns its length in bytes, prefix included. `processed_bytes`
/// counts from the start of the connection and never goes back, so a lost or repeated update does
/// no harm.
pub fn encode_credit(out: &mut BytesMut, processed_bytes: u64) -> usize {
    append_plain(out, FrameKind::Credit, |out| out.put_u64_le(processed_bytes))
}

/// Reads the payload of a Credit frame: how many bytes its sender has processed since the
/// connection began.
///
/// # Errors
/// [`HeaderError`] when it is not exactly eight bytes.
pub fn decode_credit(payload: &[u8]) -> Result<u64, HeaderError> {
    let mut input = Reader::new(payload);
    let processed_bytes = input.u64("a credit")?;
    input.end()?;
    Ok(processed_bytes)
}

/// The most calls in one Cancel frame.
pub const CANCELS_MAX: usize = 500;

/// Appends a Cancel frame for one call and returns its length in bytes, prefix included.
pub fn encode_cancel(out: &mut BytesMut, correlation: u64) -> usize {
    append_plain(out, FrameKind::Cancel, |out| out.put_u64_le(correlation))
}

/// Puts one more call into the Cancel frame of `bytes` bytes that `out` ends with; its length then.
/// When it is full, or not there, another one is begun.
pub fn extend_cancel(out: &mut BytesMut, bytes: usize, correlation: u64) -> usize {
    const FULL: usize = FRAME_PREFIX_BYTES + 1 + CANCELS_MAX * size_of::<u64>();
    let length = u32::try_from((bytes + size_of::<u64>()).saturating_sub(FRAME_PREFIX_BYTES));
    let start = out.len().checked_sub(bytes).filter(|_| bytes > FRAME_PREFIX_BYTES && bytes < FULL);
    let prefix = start.and_then(|start| out.get_mut(start..start + FRAME_PREFIX_BYTES));
    match (prefix, length) {
        (Some(prefix), Ok(length)) => {
            prefix.copy_from_slice(&length.to_le_bytes());
            out.extend_from_slice(&correlation.to_le_bytes());
            bytes + size_of::<u64>()
        }
        _ => encode_cancel(out, correlation),
    }
}

/// Reads the payload of a Cancel frame: the correlations of the calls that its sender has given up.
///
/// # Errors
/// [`HeaderError`] for no correlation, too many, half of one, or a zero.
pub fn decode_cancel(payload: &[u8]) -> Result<Vec<u64>, HeaderError> {
    const FIELD: &str = "the calls of a cancel";
    let (calls, rest) = payload.as_chunks::<8>();
    if calls.is_empty() || !rest.is_empty() {
        return Err(HeaderError::Truncated(FIELD));
    }
    let calls: Vec<u64> = calls.iter().map(|call| u64::from_le_bytes(*call)).collect();
    if calls.len() > CANCELS_MAX || calls.contains(&0) {
        return Err(HeaderError::Value { field: FIELD, value: calls.len() as u64 });
    }
    Ok(calls)
}

/// Why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GoodbyeCode {
    /// 1: the sender stops gracefully.
    Stopping,
    /// 2: the received bytes were not Emmer's protocol; the text describes the fault.
    ProtocolError,
    /// 3: nothing was said for too long.
    Idle,
    /// 4: another connection between the two took over.
    Replaced,
    /// 5: the sender cannot keep up or has too many connections.
    Overloaded,
    /// 6: the sender's view of the cluster says that the receiver is dead.
    Dead,
    /// Another number, from a later version: the text says more.
    Other(u8),
}

impl From<u8> for GoodbyeCode {
    fn from(number: u8) -> Self {
        match number {
            1 => Self::Stopping,
            2 => Self::ProtocolError,
            3 => Self::Idle,
            4 => Self::Replaced,
            5 => Self::Overloaded,
            6 => Self::Dead,
            other => Self::Other(other),
        }
    }
}

impl From<GoodbyeCode> for u8 {
    fn from(code: GoodbyeCode) -> Self {
        match code {
            GoodbyeCode::Stopping => 1,
            GoodbyeCode::ProtocolError => 2,
            GoodbyeCode::Idle => 3,
            GoodbyeCode::Replaced => 4,
            GoodbyeCode::Overloaded => 5,
            GoodbyeCode::Dead => 6,
            GoodbyeCode::Other(number) => number,
        }
    }
}

/// The last frame of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Goodbye {
    /// Why, for programs.
    pub code: GoodbyeCode,
    /// Why, for people; at most [`TEXT_BYTES_MAX`] bytes travel.
    pub text: String,
}

impl Goodbye {
    /// Reads the payload of a Goodbye frame.
    ///
    /// # Errors
    /// [`HeaderError`] when it is broken.
    pub fn decode(payload: &[u8]) -> Result<Self, HeaderError> {
        let mut input = Reader::new(payload);
        let code = GoodbyeCode::from(input.u8("a goodbye's code")?);
        let n = input.remaining();
        if n > TEXT_BYTES_MAX {
            return Err(HeaderError::TextTooLong(n));
        }
        Ok(Self { code, text: input.text(n, "a goodbye's text")?.to_owned() })
    }
}

/// Appends a Goodbye frame and returns its length in bytes, prefix included. A long text is cut.
pub fn encode_goodbye(out: &mut BytesMut, code: GoodbyeCode, text: &str) -> usize {
    append_plain(out, FrameKind::Goodbye, |out| {
        out.put_u8(code.into());
        out.put_slice(cut(text, TEXT_BYTES_MAX).as_bytes());
    })
}
