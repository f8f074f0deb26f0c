//! Where a turn's arguments come from and where its output goes: the only code of a call that knows
//! the types of its method. Whatever moves calls does so through [`Slot`], and is compiled once.

use std::any::Any;

use bytes::BytesMut;
use emmer_wire::{CodecError, codec};

use super::TurnEnd;
use crate::grain::Method;
use crate::metrics::Ended;
use crate::turn::{contain, let_go_by};

/// A call's two ends: arguments on the way in (and back, when the activation was closed first), the
/// output on the way out.
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

    /// Moves what is in `other` here, which is a slot of the same method.
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

impl<M: Method> LocalSlot<M> {
    /// The slot of a call that is about to be made.
    pub const fn of(args: M) -> Self {
        Self { args: Some(args), output: None }
    }

    /// The slot of a call whose turn runs.
    pub const fn empty() -> Self {
        Self { args: None, output: None }
    }

    /// Takes the arguments out of a slot.
    ///
    /// # Errors
    /// The slot is of another method of this name.
    pub fn args_of(slot: &mut dyn Slot) -> Result<M, String> {
        let slot = slot.as_any().downcast_mut::<Self>();
        slot.and_then(|slot| slot.args.take()).ok_or_else(|| other_version(M::NAME))
    }

    /// Puts the output in; true for the method's own error.
    pub fn put(&mut self, output: M::Output) -> bool {
        let is_error = M::is_error(&output);
        self.output = Some(output);
        is_error
    }
}

#[cold]
pub(super) fn other_version(method: &str) -> String {
    format!(
        "this process calls {method} by another version of its interface than the one that it hosts"
    )
}

impl<M: Method> Slot for LocalSlot<M> {
    fn encode_args(&self, out: &mut BytesMut) -> Result<(), CodecError> {
        match &self.args {
            Some(args) => args.encode_args(out),
            None => Ok(()),
        }
    }

    fn encode_output(&self, out: &mut BytesMut) -> Result<(), CodecError> {
        match &self.output {
            Some(output) => codec::encode_into(out, output),
            None => Ok(()),
        }
    }

    fn decode_output(&mut self, body: &[u8]) -> Result<(), CodecError> {
        self.output = Some(codec::decode(body)?);
        Ok(())
    }

    fn has(&self) -> Has {
        match (&self.args, &self.output) {
            (_, Some(output)) if M::is_error(output) => Has::OwnError,
            (_, Some(_)) => Has::Output,
            (Some(_), None) => Has::Args,
            (None, None) => Has::Nothing,
        }
    }

    fn boxed(&mut self) -> Box<dyn Slot> {
        Box::new(std::mem::replace(self, Self::empty()))
    }

    fn take(&mut self, other: &mut dyn Slot) {
        if let Some(other) = other.as_any().downcast_mut::<Self>() {
            *self = std::mem::replace(other, Self::empty());
        }
    }

    fn drop_args(&mut self) {
        self.args = None;
    }

    fn clear(&mut self) {
        self.args = None;
        self.output = None;
    }

    fn as_any(&mut self) -> &mut (dyn Any + Send) {
        self
    }
}

/// Decodes the arguments of a call from another process, and passes them to `go_on` in a slot.
///
/// # Errors
/// The codec's own.
pub fn arrive<M: Method>(
    body: &[u8],
    go_on: &mut dyn FnMut(&mut dyn Slot),
) -> Result<(), CodecError> {
    go_on(&mut LocalSlot::<M>::of(M::decode_args(body)?));
    Ok(())
}

/// Drops what is in a slot, in a place that must not be left by a panic.
pub(crate) fn empty(slot: &mut dyn Slot) {
    if !let_go_by(&mut || slot.clear()) {
        // The panic may have left the output behind.
        let_go_by(&mut || slot.clear());
    }
}

/// Where a turn's arguments come from.
pub(crate) enum Input<'a> {
    /// A caller in this process.
    Local(&'a mut dyn Slot),
    /// The body of a request frame.
    Wire(&'a [u8]),
}

/// Where a turn's result goes.
pub(crate) enum Sink<'a> {
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

    /// Hands the output in `slot`, which may be the method's own error, to the caller, or encodes
    /// it behind what the response already holds.
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
