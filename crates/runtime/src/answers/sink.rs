//! Where a method puts the values of its answer.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;

use bytes::BytesMut;
use emmer_wire::CodecError;
use futures_util::{Stream, StreamExt};

use super::channel::{NotWritten, Writing};
use super::travelling::Arrived;
use crate::calls::Node;
use crate::hosting::TurnContext;
use crate::streams::{Hub, Listed, NotPut, WriteEnd};
use crate::turn::contain;

/// The largest value of a stream to another process, encoded.
const VALUE_BYTES_MAX: usize = 1 << 20;

/// The place for the values of a streamed answer: an argument of a method, which its caller does
/// not give.
///
/// ```no_run
/// use emmer::prelude::*;
///
/// #[grain_interface(key = String)]
/// pub trait Countdown {
///     async fn count(&self, from: u32, numbers: Sink<u32>);
/// }
///
/// #[derive(Grain, Default)]
/// struct Launch;
///
/// #[grain]
/// impl Countdown for Launch {
///     async fn count(&self, from: u32, numbers: Sink<u32>) {
///         for n in (0..from).rev() {
///             if numbers.send(n).await.is_err() {
///                 return; // The caller has dropped its end.
///             }
///         }
///     }
/// }
///
/// # async fn f(client: Client) -> emmer::Result<()> {
/// let mut numbers = client.grain::<dyn Countdown>("launch").count(10);
/// while let Some(n) = numbers.next().await {
///     println!("{}", n?);
/// }
/// # Ok(())
/// # }
/// ```
///
/// The caller's stream ends after the last value when the method has returned and its sink was
/// dropped, in a turn or by [`end`](Self::end). A method may keep its sink in a field of the grain,
/// and return. A sink that is dropped elsewhere (its grain is deactivated, a task is aborted, a
/// turn panics) breaks the stream off, and the caller gets an error.
///
/// A sink is passed on by value within its silo only.
pub struct Sink<T>(Inner<T>);

enum Inner<T> {
    /// The caller is in this process.
    Local {
        writing: Writing<T>,
        listed: Option<Listed>,
    },
    /// The call of another process has not begun yet.
    Arrived(Arrived, Encode<T>),
    Remote {
        hub: Arc<Hub>,
        end: Arc<WriteEnd>,
        encode: Encode<T>,
    },
    Ended,
}

/// Encodes a value.
pub(super) type Encode<T> = fn(&mut BytesMut, &T) -> Result<(), CodecError>;

/// The reason why a value did not go into a [`Sink`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// The caller takes no further value: it has dropped its stream, or its process has ended.
    #[error("the caller takes no further value")]
    Closed,
    /// As many values wait as may ([`Sink::try_send`] alone).
    #[error("the caller has not read the values before it")]
    Full,
    /// The value cannot be encoded, or is too large.
    #[error("a value of a stream cannot be sent: {0}")]
    Unsendable(String),
}

impl<T> Sink<T> {
    pub(super) const fn local(writing: Writing<T>) -> Self {
        Self(Inner::Local { writing, listed: None })
    }

    pub(super) const fn arrived(arrived: Arrived, encode: Encode<T>) -> Self {
        Self(Inner::Arrived(arrived, encode))
    }

    pub(super) const fn writing(&self) -> Option<&Writing<T>> {
        match &self.0 {
            Inner::Local { writing, .. } => Some(writing),
            _ => None,
        }
    }

    /// The sink of a turn that begins. For the generated code.
    #[doc(hidden)]
    #[must_use]
    pub fn begin(mut self) -> Self
    where
        T: Send + 'static,
    {
        match std::mem::replace(&mut self.0, Inner::Ended) {
            Inner::Arrived(arrived, encode) => {
                let (hub, end) = arrived.begin();
                self.0 = Inner::Remote { hub, end, encode };
            }
            Inner::Local { writing, .. } => {
                writing.stays();
                let node = Node::of_turn();
                let listed = node.as_ref().and_then(Node::streams).map(|hub| writing.list(hub));
                self.0 = Inner::Local { writing, listed };
            }
            other => self.0 = other,
        }
        self
    }

    /// Sends a value, when there is room for it: the caller takes the values at its own pace.
    ///
    /// # Errors
    /// [`SinkError::Closed`], [`SinkError::Unsendable`].
    pub async fn send(&self, value: T) -> Result<(), SinkError> {
        match &self.0 {
            Inner::Local { writing, listed } => {
                let clock = listed.as_ref().map(Listed::clock);
                let mut value = value;
                loop {
                    value = match writing.try_write(value, clock) {
                        Ok(()) => return Ok(()),
                        Err(NotWritten::Stopped(_)) => return Err(SinkError::Closed),
                        Err(NotWritten::Full(value)) => value,
                    };
                    // Registered before the second look: room that is made between is not missed.
                    let mut room = pin!(writing.room().notified());
                    room.as_mut().enable();
                    value = match writing.try_write(value, clock) {
                        Ok(()) => return Ok(()),
                        Err(NotWritten::Stopped(_)) => return Err(SinkError::Closed),
                        Err(NotWritten::Full(value)) => value,
                    };
                    room.await;
                }
            }
            Inner::Remote { hub, end, encode } => {
                let value = encoded(*encode, value)?;
                loop {
                    match put(hub, end, &value) {
                        Err(SinkError::Full) => {}
                        put => return put,
                    }
                    let mut changed = pin!(end.changed().notified());
                    changed.as_mut().enable();
                    match put(hub, end, &value) {
                        Err(SinkError::Full) => {}
                        put => return put,
                    }
                    changed.await;
                }
            }
            Inner::Arrived(..) | Inner::Ended => Err(SinkError::Closed),
        }
    }

    /// Sends every value of a stream, at the caller's pace. It ends with the stream, or at once
    /// when the caller takes no further value, also while the stream has none to give.
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    pub async fn send_all(&self, values: impl Stream<Item = T> + Send) -> Result<(), SinkError> {
        let mut values = pin!(values);
        loop {
            let value = tokio::select! {
                biased;
                () = self.closed() => return Err(SinkError::Closed),
                value = values.next() => value,
            };
            let Some(value) = value else { return Ok(()) };
            self.send(value).await?;
        }
    }

    /// Sends a value if there is room for it now. The value is lost otherwise.
    ///
    /// # Errors
    /// [`SinkError::Full`], and those of [`send`](Self::send).
    pub fn try_send(&self, value: T) -> Result<(), SinkError> {
        match &self.0 {
            Inner::Local { writing, listed } => {
                let clock = listed.as_ref().map(Listed::clock);
                writing.try_write(value, clock).map_err(|not| match not {
                    NotWritten::Full(_) => SinkError::Full,
                    NotWritten::Stopped(_) => SinkError::Closed,
                })
            }
            Inner::Remote { hub, end, encode } => put(hub, end, &encoded(*encode, value)?),
            Inner::Arrived(..) | Inner::Ended => Err(SinkError::Closed),
        }
    }

    /// Returns true if the caller takes no further value.
    pub fn is_closed(&self) -> bool {
        match &self.0 {
            Inner::Local { writing, .. } => writing.is_stopped(),
            Inner::Remote { end, .. } => end.is_ended(),
            Inner::Arrived(..) | Inner::Ended => true,
        }
    }

    /// Waits until the caller takes no further value. A method that waits for something else before
    /// it sends waits for this as well.
    pub async fn closed(&self) {
        loop {
            let changed = match &self.0 {
                Inner::Local { writing, .. } => writing.room(),
                Inner::Remote { end, .. } => end.changed(),
                Inner::Arrived(..) | Inner::Ended => return,
            };
            let mut changed = pin!(changed.notified());
            changed.as_mut().enable();
            if self.is_closed() {
                return;
            }
            changed.await;
        }
    }

    /// Ends the stream, well, wherever this is called. In a turn, dropping the sink does the same.
    pub fn end(mut self) {
        self.close(true);
    }

    fn close(&mut self, is_complete: bool) {
        match std::mem::replace(&mut self.0, Inner::Ended) {
            Inner::Local { writing, .. } => writing.close(is_complete),
            Inner::Remote { hub, end, .. } => end.close(&hub, is_complete),
            Inner::Arrived(..) | Inner::Ended => {}
        }
    }
}

impl<T> Drop for Sink<T> {
    fn drop(&mut self) {
        let is_complete = TurnContext::is_in_turn() && !std::thread::panicking();
        self.close(is_complete);
    }
}

impl<T> fmt::Debug for Sink<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink").field("is_closed", &self.is_closed()).finish_non_exhaustive()
    }
}

/// Encodes a value, and drops it. Either may panic.
pub(super) fn encoded<T>(encode: Encode<T>, value: T) -> Result<BytesMut, SinkError> {
    let mut out = BytesMut::new();
    let done = contain(|| encode(&mut out, &value));
    let done = contain(move || drop(value)).and(done);
    match done {
        Ok(Ok(())) if out.len() > VALUE_BYTES_MAX => Err(SinkError::Unsendable(format!(
            "it has {} bytes, and a value may have {VALUE_BYTES_MAX}",
            out.len()
        ))),
        Ok(Ok(())) => Ok(out),
        Ok(Err(error)) => Err(SinkError::Unsendable(error.to_string())),
        Err(panic) => Err(SinkError::Unsendable(format!("a panic: {panic}"))),
    }
}

pub(super) fn put(hub: &Hub, end: &Arc<WriteEnd>, value: &[u8]) -> Result<(), SinkError> {
    end.put(hub, value).map_err(|not| match not {
        NotPut::Full => SinkError::Full,
        NotPut::Ended => SinkError::Closed,
    })
}
