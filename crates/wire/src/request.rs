//! The header of a call.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use emmer_core::GrainId;
use emmer_core::limits::CALL_CHAIN_MAX;
use smallvec::SmallVec;

use crate::context::{RequestContext, put_context, read_context};
use crate::error::{HeaderError, check_key};
use crate::frame::{FRAME_PREFIX_BYTES, FrameKind, append};
use crate::ident::{grain, key_kind, put_key, read_key};
use crate::read::Reader;
use crate::staged::Staged;
use crate::trace::{TraceContext, put_trace, read_trace};

/// The part of the header with fixed places.
const FIXED_BYTES: usize = 32;

/// Minimum bytes of a link of a call chain: its kind, its type, its turn and one byte of key.
const LINK_BYTES_MIN: usize = 14;

/// Set in a link's kind when its turn is exclusive.
const LINK_EXCLUSIVE: u8 = 0x80;

/// Bit in a link's kind: its turn holds nothing of its grain.
const LINK_FREE: u8 = 0x40;

/// Set among the flags when a trace context stands before the body.
const TRACED: u8 = 1 << 3;

/// Set among the flags when a request context stands before the body, behind the trace context.
const CONTEXT: u8 = 1 << 4;

/// Kind of a call, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RequestFlags(u8);

impl RequestFlags {
    /// An ordinary call.
    pub const NONE: Self = Self(0);
    /// No caller waits for the end of the call. With correlation 0, which no other call has, none
    /// is answered; else the answer comes when the turn has begun.
    pub const ONE_WAY: Self = Self(1);
    /// The method takes `&self`: its turn may run while other reads run.
    pub const READ_ONLY: Self = Self(1 << 1);
    /// The method may interleave with every other turn of the grain.
    pub const INTERLEAVE: Self = Self(1 << 2);
    /// Every bit with a meaning in this version. Others are refused: an unknown flag cannot be
    /// obeyed.
    const KNOWN: u8 = 0b111;

    /// The flags in `bits`, `None` when a bit has no meaning in this version.
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits & !Self::KNOWN == 0 { Some(Self(bits)) } else { None }
    }

    /// The flags as bits.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Returns true if every flag of `other` is set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These flags and those of `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl std::ops::BitOr for RequestFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.with(other)
    }
}

/// One turn that waits for this call, directly or through others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChainLink {
    /// The grain whose turn waits.
    pub grain: GrainId,
    /// True if that turn excludes others: a call back to this grain would wait for itself.
    pub exclusive: bool,
    /// True if that turn holds nothing of its grain while it waits. Never together with
    /// `exclusive`.
    pub free: bool,
    /// The turn's number: no other turn of the cluster has it.
    pub turn: u64,
}

impl ChainLink {
    /// Returns true if a call of this grain, which is `exclusive` or not, would wait for the turn
    /// of this link.
    pub const fn holds_up(&self, exclusive: bool) -> bool {
        !self.free && (self.exclusive || exclusive)
    }
}

/// The turns that wait for a call, outermost first: what deadlock detection looks at. The request
/// context of the application goes with them. Cheap to clone, and free when both are empty.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CallChain(Option<Arc<Along>>);

/// Behind one pointer, because each local call moves it several times and most have neither.
#[derive(Clone, Default, PartialEq, Eq)]
struct Along {
    links: SmallVec<[ChainLink; 2]>,
    context: RequestContext,
}

impl CallChain {
    /// The chain of a call that no grain made.
    pub const EMPTY: Self = Self(None);

    /// The chain of exactly these links.
    ///
    /// # Errors
    /// [`ChainTooLong`] if there are more than [`CALL_CHAIN_MAX`].
    pub fn new(links: &[ChainLink]) -> Result<Self, ChainTooLong> {
        if links.len() > CALL_CHAIN_MAX {
            return Err(ChainTooLong);
        }
        Ok(Self::of(links.iter().cloned().collect(), RequestContext::EMPTY))
    }

    fn of(links: SmallVec<[ChainLink; 2]>, context: RequestContext) -> Self {
        let empty = links.is_empty() && context.is_empty();
        Self((!empty).then(|| Arc::new(Along { links, context })))
    }

    /// The chain of a call that the last turn of this one makes.
    ///
    /// # Errors
    /// [`ChainTooLong`] if there are [`CALL_CHAIN_MAX`] links already.
    pub fn push(&self, link: ChainLink) -> Result<Self, ChainTooLong> {
        if self.len() == CALL_CHAIN_MAX {
            return Err(ChainTooLong);
        }
        let links = self.iter().cloned().chain(std::iter::once(link)).collect();
        Ok(Self::of(links, self.context().inherited()))
    }

    /// Context that the application sends along.
    #[inline]
    pub fn context(&self) -> &RequestContext {
        const NONE: &RequestContext = &RequestContext::EMPTY;
        self.0.as_deref().map_or(NONE, |along| &along.context)
    }

    /// Copies the turns, with another context.
    #[must_use]
    pub fn with_context(self, context: RequestContext) -> Self {
        match self.0 {
            None => Self::of(SmallVec::new(), context),
            Some(along) => Self::of(Arc::unwrap_or_clone(along).links, context),
        }
    }
}

impl fmt::Debug for CallChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallChain")
            .field("links", &&**self)
            .field("context", self.context())
            .finish()
    }
}

impl Deref for CallChain {
    type Target = [ChainLink];

    #[inline]
    fn deref(&self) -> &[ChainLink] {
        self.0.as_deref().map_or(&[], |along| &along.links)
    }
}

/// A call would be nested deeper than [`CALL_CHAIN_MAX`]. It was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("calls are nested more than {CALL_CHAIN_MAX} deep")]
pub struct ChainTooLong;

/// Everything about a call but its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// The caller's number for the answer; 0 for a one-way call, and only then.
    pub correlation: u64,
    /// Grain that is called.
    pub target: GrainId,
    /// The number of the method: the low half of the stable hash of its name.
    pub method: u32,
    /// Kind of the call.
    pub flags: RequestFlags,
    /// Rest of the caller's deadline, in milliseconds; 0: none.
    pub deadline_ms: u32,
    /// Number of times the call has been passed on from silo to silo.
    pub forwards: u8,
    /// The membership version under which the sender found the target's silo; 0: none (a client).
    pub expect_view: u64,
    /// The turns that wait for this call.
    pub chain: CallChain,
    /// The trace that the call belongs to, if that is recorded.
    pub trace: Option<TraceContext>,
}

/// A [`RequestHeader`] with borrowed parts: what a caller encodes without a clone.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    /// As in [`RequestHeader`].
    pub correlation: u64,
    /// As in [`RequestHeader`].
    pub target: &'a GrainId,
    /// As in [`RequestHeader`].
    pub method: u32,
    /// As in [`RequestHeader`].
    pub flags: RequestFlags,
    /// As in [`RequestHeader`].
    pub deadline_ms: u32,
    /// As in [`RequestHeader`].
    pub forwards: u8,
    /// As in [`RequestHeader`].
    pub expect_view: u64,
    /// As in [`RequestHeader`].
    pub chain: &'a CallChain,
    /// As in [`RequestHeader`].
    pub trace: Option<TraceContext>,
}

impl RequestHead<'_> {
    fn check(&self) -> Result<(), HeaderError> {
        if self.correlation == 0 && !self.flags.contains(RequestFlags::ONE_WAY) {
            return Err(HeaderError::Value {
                field: "a request's correlation",
                value: self.correlation,
            });
        }
        let keys = std::iter::once(self.target).chain(self.chain.iter().map(|link| &link.grain));
        keys.map(GrainId::key).try_for_each(check_key)
    }
}

impl RequestHeader {
    /// This header, borrowed.
    pub fn head(&self) -> RequestHead<'_> {
        RequestHead {
            correlation: self.correlation,
            target: &self.target,
            method: self.method,
            flags: self.flags,
            deadline_ms: self.deadline_ms,
            forwards: self.forwards,
            expect_view: self.expect_view,
            chain: &self.chain,
            trace: self.trace,
        }
    }

    /// Returns true if a peer would accept this header. References and numbers of the runtime are
    /// always valid, so this is for headers from elsewhere.
    ///
    /// # Errors
    /// The [`HeaderError`] the peer would close the connection with.
    pub fn check(&self) -> Result<(), HeaderError> {
        self.head().check()
    }
}

/// Appends a Request frame: the header, then whatever `body` writes. Returns its length in bytes,
/// prefix included: check it with [`frame_fits`](crate::frame_fits) against the peer's limit.
///
/// # Errors
/// What `body` answered; then (and also when `body` panics) `out` is as it was before.
pub fn encode_request<E>(
    out: &mut BytesMut,
    header: &RequestHeader,
    body: impl FnOnce(&mut BytesMut) -> Result<(), E>,
) -> Result<usize, E> {
    encode_request_head(out, &header.head(), body)
}

/// As [`encode_request`], from a borrowed header.
///
/// # Errors
/// As [`encode_request`].
pub fn encode_request_head<E>(
    out: &mut BytesMut,
    header: &RequestHead<'_>,
    body: impl FnOnce(&mut BytesMut) -> Result<(), E>,
) -> Result<usize, E> {
    append(out, FrameKind::Request, |head| put_header(head, header), body)
}

/// Sets the correlation of a Request frame, prefix included, that was encoded before its number was
/// known (with any but 0).
pub fn set_correlation(frame: &mut [u8], correlation: u64) {
    const AT: usize = FRAME_PREFIX_BYTES + 1;
    if let Some(field) = frame.get_mut(AT..AT + 8) {
        field.copy_from_slice(&correlation.to_le_bytes());
    }
}

#[inline]
fn put_header(out: &mut Staged<'_>, header: &RequestHead<'_>) {
    debug_assert_eq!(header.check(), Ok(()), "a header that the peer would refuse");
    let key = header.target.key();
    let mut fixed = [0u8; FIXED_BYTES];
    fixed[0..8].copy_from_slice(&header.correlation.to_le_bytes());
    fixed[8..16].copy_from_slice(&header.expect_view.to_le_bytes());
    fixed[16..20].copy_from_slice(&header.target.grain_type().as_u32().to_le_bytes());
    fixed[20..24].copy_from_slice(&header.method.to_le_bytes());
    fixed[24..28].copy_from_slice(&header.deadline_ms.to_le_bytes());
    let traced = if header.trace.is_some() { TRACED } else { 0 };
    let along = header.chain.0.as_deref();
    let context = along.is_some_and(|along| !along.context.is_empty());
    // A chain has at most CALL_CHAIN_MAX links by construction.
    fixed[28..32].copy_from_slice(&[
        header.flags.bits() | traced | if context { CONTEXT } else { 0 },
        header.forwards,
        along.map_or(0, |along| along.links.len() as u8),
        key_kind(key),
    ]);
    out.put_slice(&fixed);
    put_key(out, key);
    if let Some(along) = along {
        put_links(out, &along.links);
    }
    if let Some(trace) = &header.trace {
        put_trace(out, trace);
    }
    if context {
        put_context(out, header.chain.context());
    }
}

fn put_links(out: &mut Staged<'_>, links: &[ChainLink]) {
    for link in links {
        let exclusive = if link.exclusive { LINK_EXCLUSIVE } else { 0 };
        let free = if link.free { LINK_FREE } else { 0 };
        out.put_u8(key_kind(link.grain.key()) | exclusive | free);
        out.put_u32_le(link.grain.grain_type().as_u32());
        out.put_u64_le(link.turn);
        put_key(out, link.grain.key());
    }
}

/// Reads the payload of a Request frame: its header, and its body without a copy.
///
/// # Errors
/// [`HeaderError`] when the header is broken. The connection must be closed.
pub fn decode_request(mut payload: Bytes) -> Result<(RequestHeader, Bytes), HeaderError> {
    let (header, body_bytes) = read_header(Reader::new(&payload))?;
    payload.advance(payload.len() - body_bytes);
    Ok((header, payload))
}

/// As [`decode_request`], from bytes that stay where they are.
///
/// # Errors
/// As [`decode_request`].
#[inline]
pub fn read_request(payload: &[u8]) -> Result<(RequestHeader, &[u8]), HeaderError> {
    let (header, body_bytes) = read_header(Reader::new(payload))?;
    Ok((header, payload.get(payload.len() - body_bytes..).unwrap_or_default()))
}

/// The header, and how many bytes follow it.
#[inline]
fn read_header(mut input: Reader<'_>) -> Result<(RequestHeader, usize), HeaderError> {
    const FIELD: &str = "the fixed part of a request's header";
    let mut fixed = Reader::new(input.bytes(FIXED_BYTES, FIELD)?);
    let correlation = fixed.u64(FIELD)?;
    let expect_view = fixed.u64(FIELD)?;
    let grain_type = fixed.u32(FIELD)?;
    let method = fixed.u32(FIELD)?;
    let deadline_ms = fixed.u32(FIELD)?;
    let [bits, forwards, chain_links, target_kind] = fixed.array(FIELD)?;
    let flags = RequestFlags::from_bits(bits & !(TRACED | CONTEXT))
        .ok_or_else(|| HeaderError::Value { field: "a request's flags", value: u64::from(bits) })?;
    if correlation == 0 && !flags.contains(RequestFlags::ONE_WAY) {
        return Err(HeaderError::Value { field: "a request's correlation", value: correlation });
    }
    let target = grain(grain_type, read_key(target_kind, &mut input)?);
    let chain = read_chain(chain_links, &mut input)?;
    let trace = if bits & TRACED == 0 { None } else { Some(read_trace(&mut input)?) };
    let chain = match bits & CONTEXT {
        0 => chain,
        _ => chain.with_context(read_context(&mut input)?),
    };
    let header = RequestHeader {
        correlation,
        target,
        method,
        flags,
        deadline_ms,
        forwards,
        expect_view,
        chain,
        trace,
    };
    Ok((header, input.remaining()))
}

fn read_chain(count: u8, input: &mut Reader<'_>) -> Result<CallChain, HeaderError> {
    const FIELD: &str = "a call chain";
    let n = usize::from(count);
    if n == 0 {
        return Ok(CallChain::EMPTY);
    }
    if n > CALL_CHAIN_MAX {
        return Err(HeaderError::ChainTooLong(count));
    }
    if n * LINK_BYTES_MIN > input.remaining() {
        return Err(HeaderError::Truncated(FIELD));
    }
    let mut links = SmallVec::with_capacity(n);
    for _ in 0..n {
        let kind = input.u8(FIELD)?;
        let grain_type = input.u32(FIELD)?;
        let turn = input.u64(FIELD)?;
        let (exclusive, free) = (kind & LINK_EXCLUSIVE != 0, kind & LINK_FREE != 0);
        if exclusive && free {
            return Err(HeaderError::Value { field: "the kind of a link", value: u64::from(kind) });
        }
        let key = read_key(kind & !(LINK_EXCLUSIVE | LINK_FREE), input)?;
        links.push(ChainLink { grain: grain(grain_type, key), exclusive, free, turn });
    }
    Ok(CallChain::of(links, RequestContext::EMPTY))
}
