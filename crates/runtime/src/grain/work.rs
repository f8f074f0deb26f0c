//! A turn's arguments, output and future: the only code of a call that knows the types of its
//! method.

use std::any::Any;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};

use bytes::BytesMut;
use emmer_wire::{CodecError, codec};
use pin_project_lite::pin_project;

use super::Method;
use crate::hosting::{
    BoxTurn, Closed, Has, Ran, Slot, TurnContext, TurnOutcome, Work, other_version, turn,
};

/// A call's two ends: arguments on the way in (and back, when the activation was closed first), the
/// output on the way out.
#[derive(Debug)]
pub struct LocalSlot<M: Method> {
    /// The arguments; none while the turn has them.
    pub args: Option<M>,
    /// The result; some once the turn is done.
    pub output: Option<M::Output>,
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

/// The end of a turn that was not admitted.
pub fn not_admitted<M: Method>(args: M, closed: Closed) -> (LocalSlot<M>, TurnOutcome) {
    (LocalSlot::of(args), TurnOutcome::Closed(closed))
}

pin_project! {
    /// The future of the generated code, and then its result.
    #[project = WorkState]
    enum MethodWork<M, F>
    where
        M: Method,
    {
        Running { #[pin] future: F },
        Over { slot: LocalSlot<M> },
    }
}

impl<M, F> Work for MethodWork<M, F>
where
    M: Method,
    F: Future<Output = (LocalSlot<M>, TurnOutcome)> + Send,
{
    fn poll_work(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<TurnOutcome> {
        let WorkState::Running { future } = self.as_mut().project() else { return Poll::Pending };
        let (slot, outcome) = ready!(future.poll(cx));
        self.set(Self::Over { slot });
        Poll::Ready(outcome)
    }

    fn slot(self: Pin<&mut Self>) -> Option<&mut dyn Slot> {
        match self.project() {
            WorkState::Over { slot } => Some(slot),
            WorkState::Running { .. } => None,
        }
    }

    fn clear(mut self: Pin<&mut Self>) {
        self.set(Self::Over { slot: LocalSlot::empty() });
    }
}

/// Makes a turn of the generated code's future.
#[inline]
pub fn boxed<M, F>(context: TurnContext, future: F) -> BoxTurn
where
    M: Method,
    F: Future<Output = (LocalSlot<M>, TurnOutcome)> + Send + 'static,
{
    let span = context.span(M::INFO);
    turn(context, span, MethodWork::<M, F>::Running { future })
}

/// Runs `method` with the arguments in `slot`.
pub fn run_now<M: Method>(slot: &mut dyn Slot, method: impl FnOnce(M) -> Poll<M::Output>) -> Ran {
    let Some(slot) = slot.as_any().downcast_mut::<LocalSlot<M>>() else {
        return Ran::Refused(other_version(M::NAME));
    };
    let Some(args) = slot.args.take() else { return Ran::Refused(other_version(M::NAME)) };
    match method(args) {
        Poll::Ready(output) => {
            if slot.put(output) {
                Ran::OwnError
            } else {
                Ran::Done
            }
        }
        Poll::Pending => Ran::Waits,
    }
}

/// Polls the future of a method that waits for nothing.
pub fn poll_now<T>(method: impl Future<Output = T>) -> Poll<T> {
    pin!(method).poll(&mut Context::from_waker(Waker::noop()))
}
