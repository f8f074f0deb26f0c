//! Where a turn's arguments come from and where its output goes: the only code of a call that knows
//! the types of its method. Whatever moves calls does so through [`Slot`], and is compiled once.

use std::any::Any;

use bytes::BytesMut;
use emmer_wire::{CodecError, codec};

use super::contain::{contain, let_go, let_go_by};
use super::{Closed, TurnEnd};
use crate::grain::Method;
use crate::metrics::Ended;

/// A local call's two ends: arguments on the way in (and back, when the activation was closed
/// first), the output on the way out.
#[derive(Debug)]
pub struct LocalSlot<M: Method> {
    /// The arguments; none while the turn has them.
    pub args: Option<M>,
    /// The result; some once the turn is done.
    pub output: Option<M::Output>,
}

/// A [`LocalSlot`] whose method is not known by type.
pub trait Slot: Send {
    /// Appends the arguments to a request's body. A turn that has them leaves nothing to append.
    ///
    /// # Errors
    /// The codec's own.
    fn encode_args(&self, out: &mut BytesMut) -> Result<(), CodecError>;

    /// Reads the output out of a response's body.
    ///
    /// # Errors
    /// The codec's own.
    fn decode_output(&mut self, body: &[u8]) -> Result<(), CodecError>;

    /// Returns true if the arguments are here.
    fn has_args(&self) -> bool;

    /// Returns true if the output is here.
    fn has_output(&self) -> bool;

    /// Returns true if the output is the method's own error.
    fn is_error(&self) -> bool;

    /// Moves arguments and output into a box.
    fn boxed(&mut self) -> Box<dyn Slot>;

    /// Moves the output of `other` here, which is a slot of the same method.
    fn take_output(&mut self, other: &mut dyn Slot);

    /// Drops arguments and output. Either may panic.
    fn clear(&mut self);

    /// The slot as itself.
    fn as_any(&mut self) -> &mut (dyn Any + Send);
}

impl<M: Method> LocalSlot<M> {
    /// The slot of a call that is about to be made.
    pub const fn of(args: M) -> Self {
        Self { args: Some(args), output: None }
    }
}

impl<M: Method> Slot for LocalSlot<M> {
    fn encode_args(&self, out: &mut BytesMut) -> Result<(), CodecError> {
        self.args.as_ref().map_or(Ok(()), |args| args.encode_args(out))
    }

    fn decode_output(&mut self, body: &[u8]) -> Result<(), CodecError> {
        self.output = Some(codec::decode(body)?);
        Ok(())
    }

    fn has_args(&self) -> bool {
        self.args.is_some()
    }

    fn has_output(&self) -> bool {
        self.output.is_some()
    }

    fn is_error(&self) -> bool {
        self.output.as_ref().is_some_and(M::is_error)
    }

    fn boxed(&mut self) -> Box<dyn Slot> {
        Box::new(Self { args: self.args.take(), output: self.output.take() })
    }

    fn take_output(&mut self, other: &mut dyn Slot) {
        if let Some(other) = other.as_any().downcast_mut::<Self>() {
            self.output = other.output.take();
        }
    }

    fn clear(&mut self) {
        self.args = None;
        self.output = None;
    }

    fn as_any(&mut self) -> &mut (dyn Any + Send) {
        self
    }
}

/// Drops what is in a slot, in a place that must not be left by a panic.
pub(crate) fn empty(slot: &mut dyn Slot) {
    // The first panic may leave the output behind.
    let_go_by(&mut || slot.clear());
    let_go_by(&mut || slot.clear());
}

/// Where a turn's arguments come from.
pub enum Input<'a> {
    /// A caller in this process.
    Local(&'a mut dyn Slot),
    /// The body of a request frame.
    Wire(&'a [u8]),
}

impl Input<'_> {
    /// The arguments of method `M`.
    ///
    /// # Errors
    /// The codec's words when the body does not decode as `M`.
    pub fn take<M: Method>(self) -> Result<M, String> {
        match self {
            Self::Local(slot) => slot
                .as_any()
                .downcast_mut::<LocalSlot<M>>()
                .and_then(|slot| slot.args.take())
                .ok_or_else(|| other_version(M::NAME)),
            Self::Wire(body) => {
                let mut args = None;
                decoded(&mut || {
                    args = Some(M::decode_args(body)?);
                    Ok(())
                })?;
                args.ok_or_else(|| other_version(M::NAME))
            }
        }
    }
}

fn decoded(decode: &mut dyn FnMut() -> Result<(), CodecError>) -> Result<(), String> {
    contain(decode)?.map_err(|e| e.to_string())
}

#[cold]
fn other_version(method: &str) -> String {
    format!(
        "this process calls {method} by another version of its interface than the one that it hosts"
    )
}

/// Where a turn's result goes.
pub enum Sink<'a> {
    /// To the caller, in this process.
    Local(&'a mut dyn Slot),
    /// Into a response body.
    Wire(&'a mut BytesMut),
    /// Nowhere: a one-way call.
    Discard,
}

impl Sink<'_> {
    /// The same sink, for a shorter time.
    pub(crate) fn lend(&mut self) -> Sink<'_> {
        match self {
            Self::Local(slot) => Sink::Local(&mut **slot),
            Self::Wire(out) => Sink::Wire(out),
            Self::Discard => Sink::Discard,
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

impl Ends<'_> {
    pub(super) fn input(&mut self) -> Input<'_> {
        match self {
            Self::Local(slot) => Input::Local(&mut **slot),
            Self::Wire(body, _) => Input::Wire(body),
        }
    }

    pub(super) fn sink(&mut self) -> Sink<'_> {
        match self {
            Self::Local(slot) => Sink::Local(&mut **slot),
            Self::Wire(_, sink) => sink.lend(),
        }
    }
}

/// Hands the output to the caller, or encodes it behind what the response already holds.
pub(super) fn deliver<M: Method>(output: M::Output, sink: &mut Sink<'_>) -> (TurnEnd, Ended) {
    let own = if M::is_error(&output) { Ended::OwnError } else { Ended::Done };
    match sink {
        Sink::Local(slot) => {
            if let Some(slot) = slot.as_any().downcast_mut::<LocalSlot<M>>() {
                slot.output = Some(output);
            }
            (TurnEnd::Done, own)
        }
        Sink::Wire(out) => {
            let end = encoded(&mut || codec::encode_into(out, &output));
            // The turn is over and its answer stands, whatever its `Drop` does.
            let_go(output);
            match end {
                TurnEnd::Done => (end, own),
                _ => (end, Ended::Failed),
            }
        }
        Sink::Discard => {
            let_go(output);
            (TurnEnd::Done, own)
        }
    }
}

fn encoded(encode: &mut dyn FnMut() -> Result<(), CodecError>) -> TurnEnd {
    match contain(encode) {
        Ok(Ok(())) => TurnEnd::Done,
        Ok(Err(e)) => TurnEnd::Unencodable(e.to_string()),
        Err(panic) => TurnEnd::Unencodable(format!("a panic: {panic}")),
    }
}

/// Gives the arguments of a turn that did not run back to a local caller.
#[cold]
pub(super) fn give_back<M: Method>(
    args: M,
    closed: Closed,
    sink: &mut Sink<'_>,
) -> (TurnEnd, Ended) {
    match sink {
        Sink::Local(slot) => {
            if let Some(slot) = slot.as_any().downcast_mut::<LocalSlot<M>>() {
                slot.args = Some(args);
            }
        }
        Sink::Wire(_) | Sink::Discard => let_go(args),
    }
    closed.into_end()
}
