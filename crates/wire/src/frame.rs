//! Frames: a length, a kind, a payload.

use bytes::{Buf, Bytes, BytesMut};

use crate::error::FrameError;
use crate::staged::Staged;

/// The length prefix: a little-endian u32, the number of bytes that follow, the kind's byte
/// included.
pub const FRAME_PREFIX_BYTES: usize = 4;

/// The buffer is grown when less than this is left in it ...
const SPARE_BYTES_MIN: usize = 4 << 10;

/// ... by this much, or by the number of received bytes, whichever is more. So a peer that
/// announces a large frame gets memory only as fast as it sends.
const GROWTH_BYTES: usize = 32 << 10;

/// Kind of a frame. Numbers are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum FrameKind {
    /// The dialer introduces itself: the first frame on a connection.
    Hello = 1,
    /// The acceptor agrees: its first frame.
    Welcome = 2,
    /// The acceptor declines and closes: its only frame.
    Refuse = 3,
    /// A call to a grain.
    Request = 4,
    /// The answer to a call.
    Response = 5,
    /// A message of the runtime itself: membership, directory, gateway.
    System = 6,
    /// Bytes that the sender of this frame has processed: flow control.
    Credit = 7,
    /// The sender closes the connection and says why.
    Goodbye = 8,
    /// Calls that the sender has given up.
    Cancel = 9,
}

impl TryFrom<u8> for FrameKind {
    type Error = FrameError;

    fn try_from(number: u8) -> Result<Self, FrameError> {
        Ok(match number {
            1 => Self::Hello,
            2 => Self::Welcome,
            3 => Self::Refuse,
            4 => Self::Request,
            5 => Self::Response,
            6 => Self::System,
            7 => Self::Credit,
            8 => Self::Goodbye,
            9 => Self::Cancel,
            _ => return Err(FrameError::UnknownKind(number)),
        })
    }
}

/// One frame as it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Kind of the frame.
    pub kind: FrameKind,
    /// Bytes behind the kind's byte. They share the memory that they were received into: holding
    /// them holds the whole receive buffer, so decode them and drop them.
    pub payload: Bytes,
}

/// Takes the next whole frame off `input`. `None` when more bytes are needed; `input` then has room
/// for them.
///
/// `frame_bytes_max` bounds the announced length. Use
/// [`HANDSHAKE_BYTES_MAX`](crate::HANDSHAKE_BYTES_MAX) until the peer has introduced itself. An
/// announced length alone never allocates: memory grows with the received bytes.
///
/// # Errors
/// [`FrameError`] when the length is 0 or too large or the kind is unknown, as soon as that byte is
/// there. The connection must be closed.
pub fn decode_frame(
    input: &mut BytesMut,
    frame_bytes_max: u32,
) -> Result<Option<Frame>, FrameError> {
    let Some(prefix) = input.first_chunk::<FRAME_PREFIX_BYTES>() else {
        make_room(input, FRAME_PREFIX_BYTES);
        return Ok(None);
    };
    let bytes = u32::from_le_bytes(*prefix);
    if bytes == 0 {
        return Err(FrameError::Empty);
    }
    if bytes > frame_bytes_max {
        return Err(FrameError::TooLong { bytes, max: frame_bytes_max });
    }
    let kind = match input.get(FRAME_PREFIX_BYTES) {
        Some(number) => FrameKind::try_from(*number)?,
        None => {
            make_room(input, bytes as usize);
            return Ok(None);
        }
    };
    let missing = (FRAME_PREFIX_BYTES + bytes as usize).saturating_sub(input.len());
    if missing > 0 {
        make_room(input, missing);
        return Ok(None);
    }
    input.advance(FRAME_PREFIX_BYTES + 1);
    Ok(Some(Frame { kind, payload: input.split_to(bytes as usize - 1).freeze() }))
}

/// One frame where it was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRef<'a> {
    /// Kind of the frame.
    pub kind: FrameKind,
    /// Bytes behind the kind's byte.
    pub payload: &'a [u8],
    /// Number of bytes of the whole frame, prefix included.
    pub bytes: usize,
}

/// The whole frame at the start of `input`; `None` when more bytes are needed. Takes nothing off
/// and counts no references: for a connection that handles every frame of a read before it reads
/// again.
///
/// # Errors
/// As [`decode_frame`].
pub fn peek_frame(input: &[u8], frame_bytes_max: u32) -> Result<Option<FrameRef<'_>>, FrameError> {
    let Some((prefix, rest)) = input.split_first_chunk::<FRAME_PREFIX_BYTES>() else {
        return Ok(None);
    };
    let bytes = u32::from_le_bytes(*prefix);
    if bytes == 0 {
        return Err(FrameError::Empty);
    }
    if bytes > frame_bytes_max {
        return Err(FrameError::TooLong { bytes, max: frame_bytes_max });
    }
    let Some(number) = rest.first() else { return Ok(None) };
    let kind = FrameKind::try_from(*number)?;
    let frame = rest.get(1..bytes as usize);
    Ok(frame.map(|payload| FrameRef { kind, payload, bytes: FRAME_PREFIX_BYTES + bytes as usize }))
}

/// Room for the next read: enough for `missing` more bytes if they are few, else a growing part of
/// them.
fn make_room(input: &mut BytesMut, missing: usize) {
    let spare = input.capacity() - input.len();
    if spare < missing.min(SPARE_BYTES_MIN) || spare == 0 {
        input.reserve(missing.min(input.len()).max(GROWTH_BYTES));
    }
}

/// Returns true if a frame for which an `encode_*` function returned `appended` bytes is within the
/// peer's `frame_bytes_max`. When it is not, take it back with `out.truncate(out.len() - appended)`
/// and answer the caller: the peer would close the connection.
pub const fn frame_fits(appended: usize, frame_bytes_max: u32) -> bool {
    appended.saturating_sub(FRAME_PREFIX_BYTES) as u64 <= frame_bytes_max as u64
}

/// Appends a frame of `kind` whose payload is what `head` and then `body` append, and returns how
/// many bytes were appended.
///
/// The buffer is back to where it was when `body` fails, and also when it unwinds: a user's
/// `Serialize` that panics must not leave half a frame in a connection's buffer.
pub(crate) fn append<E>(
    out: &mut BytesMut,
    kind: FrameKind,
    head: impl FnOnce(&mut Staged<'_>),
    body: impl FnOnce(&mut BytesMut) -> Result<(), E>,
) -> Result<usize, E> {
    let start = out.len();
    let mut staged = Staged::new(out);
    staged.put_slice(&[0, 0, 0, 0, kind as u8]);
    head(&mut staged);
    staged.finish();
    let mut unfinished = Unfinished { out, start, finished: false };
    body(unfinished.out)?;
    unfinished.finished = true;
    drop(unfinished);
    let appended = out.len().saturating_sub(start);
    // Beyond 4 GiB the prefix is wrong, and `frame_fits` is false for every limit there is.
    let length = u32::try_from(appended.saturating_sub(FRAME_PREFIX_BYTES)).unwrap_or(u32::MAX);
    if let Some(prefix) = out.get_mut(start..start + FRAME_PREFIX_BYTES) {
        prefix.copy_from_slice(&length.to_le_bytes());
    }
    Ok(appended)
}

/// As [`append`], for payloads that cannot fail.
pub(crate) fn append_plain(
    out: &mut BytesMut,
    kind: FrameKind,
    write: impl FnOnce(&mut Staged<'_>),
) -> usize {
    let done = append(out, kind, write, |_| Ok::<(), std::convert::Infallible>(()));
    match done {
        Ok(appended) => appended,
        Err(never) => match never {},
    }
}

/// Takes the frame back unless it was finished.
struct Unfinished<'a> {
    out: &'a mut BytesMut,
    start: usize,
    finished: bool,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.out.truncate(self.start);
        }
    }
}
