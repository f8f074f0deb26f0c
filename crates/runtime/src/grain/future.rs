//! A call that was made, as its caller awaits it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::{LocalSlot, Method};
use crate::calls::outset::no_output;
use crate::calls::{CallHead, Way};
use crate::turn::CallError;

/// A call being made. Dropping it cancels a call that has not begun.
#[must_use = "futures do nothing unless polled"]
pub struct CallFuture<M: Method> {
    slot: LocalSlot<M>,
    way: Way,
}

impl<M: Method> CallFuture<M> {
    pub(crate) fn new(mut head: CallHead, args: M) -> Self {
        head.target.bind();
        Self { slot: LocalSlot::of(args), way: Way::new(head) }
    }

    /// The call, after its filters.
    pub(crate) fn past_filters(head: CallHead, args: M) -> Self {
        Self { slot: LocalSlot::of(args), way: Way::passed(head) }
    }

    /// The call without filters and without a span of its own: it begins no trace.
    pub(crate) fn without_span(head: CallHead, args: M) -> Self {
        Self { slot: LocalSlot::of(args), way: Way::without_span(head) }
    }
}

// No field is ever pinned in place: turns and futures are pinned in their boxes.
impl<M: Method> Unpin for CallFuture<M> {}

impl<M: Method> Future for CallFuture<M> {
    type Output = Result<M::Ok, CallError<M::Err>>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { slot, way } = self.get_mut();
        Poll::Ready(match ready!(way.poll(slot, cx)) {
            Ok(()) => match slot.output.take() {
                Some(output) => M::split(output).map_err(CallError::App),
                None => Err(no_output(M::INFO).into_call_error()),
            },
            Err(failure) => Err(failure.into_call_error()),
        })
    }
}
