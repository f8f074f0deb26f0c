//! The values of a streamed answer, as the caller takes them.

use std::fmt::{self, Display};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use emmer_streams::{End, Lost, Window};
use futures_util::Stream;
use serde::de::DeserializeOwned;

use super::channel::{Next, Reading, channel};
use super::sink::Sink;
use crate::calls::{Aim, CallHead};
use crate::grain::{Call, CallFuture, Method, RawRef};
use crate::turn::{CallError, ContextKey, Failure, MethodInfo, NoError};

/// A streamed answer: what a method with a [`Sink`] returns to its caller.
///
/// It is a [`Stream`] of values, each behind `Ok`. A failure comes after the values before it, and
/// ends the stream. `None` says that every value was given out: the method has returned, without an
/// error of its own.
///
/// The call begins when the stream is first polled. It has no deadline as a whole;
/// [`silence`](Self::silence) bounds the time between two values. Dropping the stream closes the
/// method's sink. A caller that does not read stops the method after 512 values or 64 KB.
#[must_use = "a streamed answer does nothing until it is read: `while let Some(value) = \
              answers.next().await`"]
pub struct Answers<T, E = NoError, R = ()> {
    target: Aim,
    method: &'static MethodInfo,
    /// The call; None once it has ended.
    call: Option<Box<dyn Calling<R, E>>>,
    /// The result of the call, until it is given out.
    returned: Option<Result<R, CallError<E>>>,
    /// The values; None once the stream has ended.
    values: Option<Reading<T>>,
    count: u64,
    silence: Option<Silence>,
}

/// A bound for the time between two values.
struct Silence {
    bound: Duration,
    /// The end of it, while the caller waits.
    sleep: Option<Pin<Box<tokio::time::Sleep>>>,
}

/// A call of any method with these results.
trait Calling<R, E>: Send {
    /// The head of a call that was not made yet.
    fn head(&mut self) -> Option<&mut CallHead>;

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<R, CallError<E>>>;
}

enum CallOf<M: Method> {
    New(Option<Call<M>>),
    Made(CallFuture<M>),
}

impl<M: Method> Calling<M::Ok, M::Err> for CallOf<M> {
    fn head(&mut self) -> Option<&mut CallHead> {
        match self {
            Self::New(call) => call.as_mut().map(|call| &mut call.head),
            Self::Made(_) => None,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<M::Ok, CallError<M::Err>>> {
        if let Self::New(call) = self
            && let Some(Call { head, args }) = call.take()
        {
            *self = Self::Made(CallFuture::new(head, args));
        }
        match self {
            Self::Made(call) => Pin::new(call).poll(cx),
            Self::New(_) => Poll::Pending,
        }
    }
}

/// A streamed answer of method `M`, whose arguments `args` makes with the sink.
pub fn answers<M, T>(
    reference: &RawRef,
    args: impl FnOnce(Sink<T>) -> M,
) -> Answers<T, M::Err, M::Ok>
where
    M: Method,
    T: DeserializeOwned,
{
    let (writing, values) = channel(Window::default().items);
    let mut call = reference.call(args(Sink::local(writing)));
    call.head.target.bind();
    Answers {
        target: call.head.target.share(),
        method: M::INFO,
        call: Some(Box::new(CallOf::New(Some(call)))),
        returned: None,
        values: Some(values),
        count: 0,
        silence: None,
    }
}

impl<T, E, R> Answers<T, E, R> {
    /// Ends the stream with [`CallError::Timeout`] when the caller has waited for the next value
    /// for this long. Without it an idle stream stays open for as long as both processes live.
    pub fn silence(mut self, bound: Duration) -> Self {
        self.silence = Some(Silence { bound, sleep: None });
        self
    }

    /// Sends a value along with the call, as [`Call::with`]. Before the first poll.
    pub fn with<V: Display>(mut self, key: &ContextKey<V>, value: impl Into<V>) -> Self {
        let value: V = value.into();
        let value = value.to_string();
        if let Some(head) = self.call.as_mut().and_then(|call| call.head()) {
            head.take(&|context| key.put_text(context, &value));
        }
        self
    }

    /// The next value; None after the last one.
    pub async fn next(&mut self) -> Option<Result<T, CallError<E>>> {
        poll_fn(|cx| self.poll_value(cx)).await
    }

    /// Reads to the end without keeping the values, and returns what the method has returned.
    ///
    /// # Errors
    /// That of the call, or of the stream.
    pub async fn returned(mut self) -> Result<R, CallError<E>> {
        loop {
            match self.next().await {
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error),
                None => break,
            }
        }
        self.returned.unwrap_or_else(|| {
            let why = "the stream had ended before".to_owned();
            Err(Failure::refused(why).of(&*self.target.0, self.method.name).into_call_error())
        })
    }

    fn poll_value(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<T, CallError<E>>>> {
        let Some(values) = &mut self.values else { return Poll::Ready(None) };
        // First, and without a look at the call: most polls find a value.
        match values.next_now(&self.target.0.node) {
            Some(Next::Value(value)) => return self.give(value),
            Some(Next::Unreadable(why)) => return self.fail(Failure::codec(true, why)),
            Some(Next::End(_)) | None => {}
        }
        if let Some(call) = &mut self.call
            && let Poll::Ready(returned) = call.poll(cx)
        {
            self.call = None;
            let never_ran = returned.as_ref().is_err_and(|error| !error.maybe_executed());
            if never_ran {
                self.values = None;
                return Poll::Ready(returned.err().map(Err));
            }
            self.returned = Some(returned);
            values.call_ended();
        }
        match values.poll_next(&self.target.0.node, cx) {
            Poll::Ready(Next::Value(value)) => self.give(value),
            Poll::Ready(Next::End(end)) => self.end(end),
            Poll::Ready(Next::Unreadable(why)) => self.fail(Failure::codec(true, why)),
            Poll::Pending => self.wait(cx),
        }
    }

    fn give(&mut self, value: T) -> Poll<Option<Result<T, CallError<E>>>> {
        self.count += 1;
        if let Some(silence) = &mut self.silence {
            silence.sleep = None;
        }
        Poll::Ready(Some(Ok(value)))
    }

    /// No value is there.
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<T, CallError<E>>>> {
        let Some(silence) = &mut self.silence else { return Poll::Pending };
        let bound = silence.bound;
        let sleep = silence.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(bound)));
        if pin!(sleep).poll(cx).is_pending() {
            return Poll::Pending;
        }
        let why = format!("no value has come for {bound:?}, after {} values", self.count);
        self.fail(Failure::timeout(true, why))
    }

    /// The stream is over; perhaps its call is not.
    fn end(&mut self, end: End) -> Poll<Option<Result<T, CallError<E>>>> {
        // The call tells best why it failed.
        if matches!(self.returned, Some(Err(_))) {
            self.values = None;
            return Poll::Ready(self.returned.take().and_then(Result::err).map(Err));
        }
        match end {
            // The values are kept until then: they say it again.
            End::Complete if self.call.is_some() => Poll::Pending,
            End::Complete => {
                self.values = None;
                Poll::Ready(None)
            }
            End::Lost(Lost::Left) if self.call.is_some() => Poll::Pending,
            End::Lost(why) => {
                let why = broken_off(why, self.count);
                self.fail(Failure::unreachable(None, true, why))
            }
        }
    }

    fn fail(&mut self, failure: Failure) -> Poll<Option<Result<T, CallError<E>>>> {
        self.call = None;
        self.values = None;
        let error = failure.of(&*self.target.0, self.method.name).into_call_error();
        Poll::Ready(Some(Err(error)))
    }
}

/// The words for a stream that has ended before its writer had finished.
fn broken_off(why: Lost, count: u64) -> String {
    let why = match why {
        Lost::Process => "the process that writes it, or the gateway, has ended",
        Lost::Left => "its sink was dropped outside a turn",
        Lost::Writer => "the grain's silo no longer has it",
        Lost::Silence => "the process that writes it says nothing",
        Lost::Message => "a message was lost",
        Lost::Rules => "a message broke the rules of streams",
    };
    format!("the stream broke off after {count} values, before its end: {why}")
}

impl<T, E, R> Unpin for Answers<T, E, R> {}

impl<T, E, R> Stream for Answers<T, E, R> {
    type Item = Result<T, CallError<E>>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_value(cx)
    }
}

impl<T, E, R> fmt::Debug for Answers<T, E, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Answers({:?}.{}, {} values)", self.target, self.method.name, self.count)
    }
}
