//! The header of an answer, and failures.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use emmer_core::SiloAddress;

use crate::TEXT_BYTES_MAX;
use crate::error::HeaderError;
use crate::frame::{FrameKind, append, append_plain};
use crate::ident::{put_optional_silo, read_optional_silo};
use crate::read::{Reader, cut};
use crate::staged::Staged;

/// Why a call has no result. A method's own error is a result, not one of these. Numbers are never
/// reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum FailureCode {
    /// The deadline passed.
    Timeout = 1,
    /// The call was turned down and would be again (nested too deep, not allowed, ...).
    Rejected = 2,
    /// A limit was reached; later or elsewhere it may work.
    Overloaded = 3,
    /// No silo could be found or reached that hosts the grain.
    Unreachable = 4,
    /// The call would wait for itself; the detail names the chain.
    Deadlock = 5,
    /// Arguments or result could not be encoded or decoded.
    Codec = 6,
    /// The caller cancelled.
    Cancelled = 7,
    /// The silo is on its way out.
    ShuttingDown = 8,
    /// No silo hosts this grain type.
    NoSuchGrainType = 9,
    /// The grain type has no method of this number.
    NoSuchMethod = 10,
    /// The method panicked.
    Panicked = 11,
    /// The grain could not be activated.
    ActivationFailed = 12,
    /// The grain lives elsewhere; the response's location says where. Try there.
    Moved = 13,
    /// A fault of the runtime itself.
    Internal = 14,
}

impl TryFrom<u8> for FailureCode {
    type Error = HeaderError;

    fn try_from(number: u8) -> Result<Self, HeaderError> {
        Ok(match number {
            1 => Self::Timeout,
            2 => Self::Rejected,
            3 => Self::Overloaded,
            4 => Self::Unreachable,
            5 => Self::Deadlock,
            6 => Self::Codec,
            7 => Self::Cancelled,
            8 => Self::ShuttingDown,
            9 => Self::NoSuchGrainType,
            10 => Self::NoSuchMethod,
            11 => Self::Panicked,
            12 => Self::ActivationFailed,
            13 => Self::Moved,
            14 => Self::Internal,
            _ => {
                return Err(HeaderError::Value {
                    field: "a response's status",
                    value: u64::from(number),
                });
            }
        })
    }
}

/// Result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResponseStatus {
    /// The method ran; the body is its result (its own `Err` included).
    Ok,
    /// It has no result; the body is a [`Failure`], see [`decode_failure`].
    Failed(FailureCode),
}

impl From<ResponseStatus> for u8 {
    fn from(status: ResponseStatus) -> Self {
        match status {
            ResponseStatus::Ok => 0,
            ResponseStatus::Failed(code) => code as Self,
        }
    }
}

/// Everything about an answer but the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHeader {
    /// The number the caller gave the call; never 0.
    pub correlation: u64,
    /// Result of the call.
    pub status: ResponseStatus,
    /// Where the grain really is, when the caller seems not to know: it repairs the caller's cache.
    pub location: Option<SiloAddress>,
}

/// Appends a Response frame: the header, then whatever `body` writes. Returns its length in bytes,
/// prefix included: check it with [`frame_fits`](crate::frame_fits) against the peer's limit.
///
/// # Errors
/// What `body` answered; then (and also when `body` panics) `out` is as it was before.
pub fn encode_response<E>(
    out: &mut BytesMut,
    header: &ResponseHeader,
    body: impl FnOnce(&mut BytesMut) -> Result<(), E>,
) -> Result<usize, E> {
    append(out, FrameKind::Response, |head| put_header(head, header), body)
}

/// Appends a Response frame for a call without a result and returns its length in bytes, prefix
/// included. A long detail is cut at [`TEXT_BYTES_MAX`].
pub fn encode_failure(
    out: &mut BytesMut,
    correlation: u64,
    code: FailureCode,
    maybe_executed: bool,
    detail: &str,
) -> usize {
    let header =
        ResponseHeader { correlation, status: ResponseStatus::Failed(code), location: None };
    append_plain(out, FrameKind::Response, |out| {
        put_header(out, &header);
        out.put_u8(u8::from(maybe_executed));
        out.put_slice(cut(detail, TEXT_BYTES_MAX).as_bytes());
    })
}

/// Appends the body of a failed response: for [`encode_response`] with a location.
pub fn put_failure(out: &mut BytesMut, maybe_executed: bool, detail: &str) {
    out.put_u8(u8::from(maybe_executed));
    out.put_slice(cut(detail, TEXT_BYTES_MAX).as_bytes());
}

#[inline]
fn put_header(out: &mut Staged<'_>, header: &ResponseHeader) {
    debug_assert_ne!(header.correlation, 0, "one-way calls are not answered");
    out.put_u64_le(header.correlation);
    out.put_u8(header.status.into());
    put_optional_silo(out, header.location.as_ref());
}

/// Reads the payload of a Response frame: its header, and its body without a copy.
///
/// # Errors
/// [`HeaderError`] when the header is broken. The connection must be closed.
pub fn decode_response(mut payload: Bytes) -> Result<(ResponseHeader, Bytes), HeaderError> {
    let (header, body) = read_response(&payload)?;
    let body_bytes = body.len();
    payload.advance(payload.len() - body_bytes);
    Ok((header, payload))
}

/// Reads a response like [`decode_response`], from borrowed bytes.
///
/// # Errors
/// As [`decode_response`].
#[inline]
pub fn read_response(payload: &[u8]) -> Result<(ResponseHeader, &[u8]), HeaderError> {
    let mut input = Reader::new(payload);
    let correlation = match input.u64("a response's correlation")? {
        0 => return Err(HeaderError::Value { field: "a response's correlation", value: 0 }),
        correlation => correlation,
    };
    let status = match input.u8("a response's status")? {
        0 => ResponseStatus::Ok,
        number => ResponseStatus::Failed(FailureCode::try_from(number)?),
    };
    let location = read_optional_silo(&mut input, "a response's location")?;
    let body = payload.get(payload.len() - input.remaining()..).unwrap_or_default();
    Ok((ResponseHeader { correlation, status, location }, body))
}

/// The body of a failed response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// True if the call may have been executed, in part or whole.
    pub maybe_executed: bool,
    /// Explanation for people.
    pub detail: String,
}

/// Reads the body of a response whose status is [`ResponseStatus::Failed`].
///
/// # Errors
/// [`HeaderError`] when it is broken. The connection must be closed.
pub fn decode_failure(body: &[u8]) -> Result<Failure, HeaderError> {
    let mut input = Reader::new(body);
    let maybe_executed = input.flag("a failure's maybe_executed")?;
    let n = input.remaining();
    if n > TEXT_BYTES_MAX {
        return Err(HeaderError::TextTooLong(n));
    }
    let detail = input.text(n, "a failure's detail")?.to_owned();
    Ok(Failure { maybe_executed, detail })
}
