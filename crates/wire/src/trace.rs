//! The trace that a call belongs to, as W3C Trace Context has it.

use crate::error::HeaderError;
use crate::read::Reader;
use crate::staged::Staged;

/// The place of a call in a trace: the fields of a `traceparent` of version 0. A call carries one
/// only if its trace is recorded. <https://www.w3.org/TR/trace-context/>
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceContext {
    trace_id: [u8; 16],
    span_id: [u8; 8],
    flags: u8,
}

impl TraceContext {
    /// The span `span_id` of the trace `trace_id`, both in printed order. Bit 0 of `flags` says
    /// that the trace is recorded. None if an id is all zeros.
    pub fn new(trace_id: [u8; 16], span_id: [u8; 8], flags: u8) -> Option<Self> {
        let valid = trace_id != [0; 16] && span_id != [0; 8];
        valid.then_some(Self { trace_id, span_id, flags })
    }

    /// The trace's id.
    pub const fn trace_id(&self) -> [u8; 16] {
        self.trace_id
    }

    /// The id of the span that made the call.
    pub const fn span_id(&self) -> [u8; 8] {
        self.span_id
    }

    /// The trace flags.
    pub const fn flags(&self) -> u8 {
        self.flags
    }
}

#[cold]
pub(crate) fn put_trace(out: &mut Staged<'_>, trace: &TraceContext) {
    out.put_slice(&trace.trace_id);
    out.put_slice(&trace.span_id);
    out.put_u8(trace.flags);
}

#[cold]
pub(crate) fn read_trace(input: &mut Reader<'_>) -> Result<TraceContext, HeaderError> {
    const FIELD: &str = "a trace context";
    let (trace_id, span_id) = (input.array(FIELD)?, input.array(FIELD)?);
    let flags = input.u8(FIELD)?;
    TraceContext::new(trace_id, span_id, flags)
        .ok_or(HeaderError::Value { field: "an id in a trace context", value: 0 })
}
