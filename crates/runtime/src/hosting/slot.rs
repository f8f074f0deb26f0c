//! The source of a turn's arguments and the sink of its output. Code that moves calls uses
//! [`Slot`], and is compiled once; the slot that knows its types is in `grain/`.

use std::any::Any;

use bytes::BytesMut;
use emmer_wire::CodecError;

use super::ends::TurnEnd;
use crate::metrics::Ended;
use crate::turn::{contain, let_go_by};

/// A call's two ends: arguments on the way in (and back, when the activation was closed first), the
/// output on the way out. Its method is not known by type.
pub trait Slot: Send {
    /// Appends the arguments to a request's body. A turn that has them leaves nothing to append.
    ///
    /// # Errors
    /// The codec's own.
    fn encode_args(&self, out: &mut BytesMut) -> Result<(), CodecError>;

    /// Appends the output to a response's body; nothing when there is none.
    ///
    /// # Errors
    /// The codec's own.
    fn encode_output(&self, out: &mut BytesMut) -> Result<(), CodecError>;

    /// Reads the output out of a response's body.
    ///
    /// # Errors
    /// The codec's own.
    fn decode_output(&mut self, body: &[u8]) -> Result<(), CodecError>;

    /// Content of the slot.
    fn has(&self) -> Has;

    /// Moves arguments and output into a box.
    fn boxed(&mut self) -> Box<dyn Slot>;

    /// Moves the content of `other`, a slot of the same method, here.
    fn take(&mut self, other: &mut dyn Slot);

    /// Drops the arguments, which may panic.
    fn drop_args(&mut self);

    /// Drops arguments and output. Either may panic.
    fn clear(&mut self);

    /// The slot as itself.
    fn as_any(&mut self) -> &mut (dyn Any + Send);
}

/// The things in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Has {
    /// The arguments.
    Args,
    /// An output that is not the method's own error.
    Output,
    /// The method's own error.
    OwnError,
    /// Neither: a turn has the arguments.
    Nothing,
}

#[cold]
pub(crate) fn other_version(method: &str) -> String {
    format!(
        "this process calls {method} by another version of its interface than the one that it hosts"
    )
}

/// Drops the content of a slot, in a place that a panic must not leave.
pub(crate) fn empty(slot: &mut dyn Slot) {
    if !let_go_by(&mut || slot.clear()) {
        // The panic may have left the output behind.
        let_go_by(&mut || slot.clear());
    }
}

/// Source of a turn's arguments.
pub(crate) enum Input<'a> {
    /// A caller in this process.
    Local(&'a mut dyn Slot),
    /// The body of a request frame.
    Wire(&'a [u8]),
}

/// Sink of a turn's result.
pub(crate) enum Sink<'a> {
    /// To the caller, in this process.
    Local(&'a mut dyn Slot),
    /// Into a response body.
    Wire(&'a mut BytesMut),
    /// Nowhere: a one-way call.
    Discard,
}

impl Sink<'_> {
    /// Borrows the sink for a shorter time.
    pub(crate) fn lend(&mut self) -> Sink<'_> {
        match self {
            Self::Local(slot) => Sink::Local(&mut **slot),
            Self::Wire(out) => Sink::Wire(out),
            Self::Discard => Sink::Discard,
        }
    }

    /// Hands the output in `slot`, which may be the method's own error, to the caller, or encodes
    /// it at the end of the response.
    pub(super) fn deliver(&mut self, slot: &mut dyn Slot, is_error: bool) -> (TurnEnd, Ended) {
        let own = if is_error { Ended::OwnError } else { Ended::Done };
        let end = match self {
            Self::Local(to) => {
                to.take(slot);
                return (TurnEnd::Done, own);
            }
            Self::Wire(out) => match contain(|| slot.encode_output(out)) {
                Ok(Ok(())) => TurnEnd::Done,
                Ok(Err(e)) => TurnEnd::Unencodable(e.to_string()),
                Err(panic) => TurnEnd::Unencodable(format!("a panic: {panic}")),
            },
            Self::Discard => TurnEnd::Done,
        };
        // The turn is over and its answer stands, whatever the output's `Drop` does.
        empty(slot);
        let ended = if end == TurnEnd::Done { own } else { Ended::Failed };
        (end, ended)
    }

    /// Gives the arguments of a turn that did not run back to a local caller.
    pub(super) fn give_back(&mut self, slot: &mut dyn Slot) {
        match self {
            Self::Local(to) => to.take(slot),
            Self::Wire(_) | Self::Discard => empty(slot),
        }
    }
}

/// Both ends of a turn that is run in place.
pub(crate) enum Ends<'a> {
    /// A caller in this process.
    Local(&'a mut dyn Slot),
    /// The body of a request, and the place for its answer.
    Wire(&'a [u8], Sink<'a>),
}
