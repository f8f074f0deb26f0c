//! A stream as an argument: values that a caller sends to a method.

use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use emmer_net::world;
use emmer_streams::{End, Lost, Reader, StreamId, Writer};
use emmer_wire::{CodecError, codec};
use futures_util::stream::{self, BoxStream, Stream, StreamExt};
use parking_lot::Mutex;
use serde::de::{DeserializeOwned, Deserializer};
use serde::ser::{Error as _, Serializer};
use serde::{Deserialize, Serialize, de};

use super::sink::{Encode, SinkError, encoded, put};
use crate::calls::Node;
use crate::streams::{Hub, Next, Place, ReadEnd, WriteEnd, at_encoding, split_value};
use crate::turn::contain;

/// A stream of values as an argument of a method: an upload, an import. The caller gives any stream
/// or list of values; the method reads at its own pace, and its caller's stream is asked for no
/// more than it takes.
///
/// ```no_run
/// use emmer::prelude::*;
///
/// #[grain_interface(key = String)]
/// pub trait Import {
///     async fn rows(&mut self, rows: Source<String>) -> emmer::Result<u64>;
/// }
///
/// #[derive(Grain, Default)]
/// struct ImportGrain {
///     rows: Vec<String>,
/// }
///
/// #[grain]
/// impl Import for ImportGrain {
///     async fn rows(&mut self, mut rows: Source<String>) -> emmer::Result<u64> {
///         let mut count = 0;
///         while let Some(row) = rows.next().await {
///             self.rows.push(row?);
///             count += 1;
///         }
///         Ok(count)
///     }
/// }
///
/// # async fn f(client: Client) -> emmer::Result<()> {
/// let import = client.grain::<dyn Import>("today");
/// import.rows(vec!["one".to_owned(), "two".to_owned()]).await?;
/// # Ok(())
/// # }
/// ```
///
/// A call with a source has no deadline unless it sets one: `.timeout(..)`. A source is read in the
/// call that it came with; it is no argument of another call to another silo.
pub struct Source<T>(Inner<T>);

enum Inner<T> {
    /// The values of this process.
    Own(Own<T>),
    /// The call of another process has not begun yet.
    Arrived(Arrived<T>),
    Remote(Remote<T>),
}

/// Values of this process, and the ends by which they are sent, one for each try of the call.
struct Own<T> {
    values: Arc<Mutex<Option<BoxStream<'static, T>>>>,
    encode: Encode<T>,
    sent: Mutex<Vec<(Arc<Hub>, Arc<WriteEnd>)>>,
}

struct Arrived<T> {
    hub: Arc<Hub>,
    node: Node,
    here: Place,
    travelling: Travelling,
    decode: fn(&[u8]) -> Result<T, CodecError>,
}

struct Remote<T> {
    hub: Arc<Hub>,
    node: Node,
    end: Arc<ReadEnd>,
    decode: fn(&[u8]) -> Result<T, CodecError>,
    /// Values that have arrived, and the number of all that were read.
    values: Bytes,
    count: u64,
    is_over: bool,
}

/// A source on its way.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Travelling {
    #[serde(rename = "s")]
    stream: StreamId,
    /// The place of the writer.
    #[serde(rename = "p")]
    writer: Place,
}

/// The values of a [`Source`] broke off before their end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the values broke off after {count}: {why}")]
pub struct SourceError {
    count: u64,
    why: String,
}

impl<T: Send + Serialize + 'static> Source<T> {
    /// The values of a stream.
    pub fn new(values: impl Stream<Item = T> + Send + 'static) -> Self {
        Self(Inner::Own(Own {
            values: Arc::new(Mutex::new(Some(values.boxed()))),
            encode: |out, value| codec::encode_into(out, value),
            sent: Mutex::default(),
        }))
    }
}

impl<T: Send + Serialize + 'static> From<Vec<T>> for Source<T> {
    fn from(values: Vec<T>) -> Self {
        Self::new(stream::iter(values))
    }
}

impl<T: Send + Serialize + 'static> From<BoxStream<'static, T>> for Source<T> {
    fn from(values: BoxStream<'static, T>) -> Self {
        Self::new(values)
    }
}

impl<T: Send + 'static> Source<T> {
    /// The source of a turn that begins. For the generated code.
    #[doc(hidden)]
    #[must_use]
    pub fn begin(self) -> Self {
        match self.0 {
            Inner::Arrived(Arrived { hub, node, here, travelling, decode }) => {
                let Travelling { stream, writer } = travelling;
                let machine = Reader::arrived(hub.now(), stream, hub.config_of_reader());
                let end = ReadEnd::begin(&hub, (Some(writer), stream), here, machine);
                end.greet(&hub);
                let (values, count, is_over) = (Bytes::new(), 0, false);
                Self(Inner::Remote(Remote { hub, node, end, decode, values, count, is_over }))
            }
            other => Self(other),
        }
    }

    /// The next value; None after the last one.
    pub async fn next(&mut self) -> Option<Result<T, SourceError>> {
        poll_fn(|cx| self.poll_value(cx)).await
    }

    fn poll_value(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<T, SourceError>>> {
        match &mut self.0 {
            Inner::Own(own) => {
                let mut values = own.values.lock();
                match values.as_mut() {
                    Some(stream) => stream.poll_next_unpin(cx).map(|value| value.map(Ok)),
                    None => Poll::Ready(None),
                }
            }
            Inner::Arrived(_) => Poll::Ready(None),
            Inner::Remote(remote) => remote.poll_value(cx),
        }
    }
}

impl<T> Remote<T> {
    fn poll_value(&mut self, cx: &Context<'_>) -> Poll<Option<Result<T, SourceError>>> {
        loop {
            if self.is_over {
                return Poll::Ready(None);
            }
            if !self.values.is_empty() {
                return Poll::Ready(Some(self.decode_next()));
            }
            match self.end.poll_next(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Next::Values(block)) => self.values = block.bytes,
                Poll::Ready(Next::End(End::Complete)) => self.is_over = true,
                Poll::Ready(Next::End(End::Lost(why))) => {
                    return Poll::Ready(Some(Err(self.fail(words(why)))));
                }
            }
        }
    }

    fn decode_next(&mut self) -> Result<T, SourceError> {
        let Some((value, rest)) = split_value(&self.values) else {
            return Err(self.fail("a value is cut off"));
        };
        let whole = self.values.len() - rest.len();
        let decoded = contain(|| self.node.binds(|| (self.decode)(value)));
        self.values.advance(whole);
        self.count += 1;
        self.end.taken(&self.hub, 1, whole as u64);
        match decoded {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(self.fail(&error.to_string())),
            Err(panic) => Err(self.fail(&format!("a panic: {panic}"))),
        }
    }

    fn fail(&mut self, why: &str) -> SourceError {
        self.is_over = true;
        self.end.stop(&self.hub);
        SourceError { count: self.count, why: why.to_owned() }
    }
}

fn words(why: Lost) -> &'static str {
    match why {
        Lost::Process => "the process that sends them, or its gateway, has ended",
        Lost::Left => "a value could not be sent, or their stream was dropped",
        Lost::Writer => "the process that sends them no longer has them",
        Lost::Silence => "the process that sends them says nothing",
        Lost::Message => "a message was lost",
        Lost::Rules => "a message broke the rules of streams",
    }
}

impl<T> Drop for Remote<T> {
    fn drop(&mut self) {
        self.end.stop(&self.hub);
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        // The call has ended, or was given up. An end that no reader has found waits no longer.
        for (hub, end) in self.sent.get_mut() {
            end.call_ended(hub);
            end.close(hub, false);
        }
    }
}

/// Sends values when there is room for them, from the moment at which their reader is heard.
async fn send<T: Send + 'static>(
    hub: Arc<Hub>,
    end: Arc<WriteEnd>,
    values: Arc<Mutex<Option<BoxStream<'static, T>>>>,
    encode: Encode<T>,
) {
    let mut taken = None;
    loop {
        let mut changed = pin!(end.changed().notified());
        changed.as_mut().enable();
        if end.is_ended() {
            return;
        }
        if !end.has_room() {
            changed.await;
            continue;
        }
        // Another try of the call may have them: then this one is over.
        let Some(values) = taken.take().or_else(|| values.lock().take()) else {
            return end.close(&hub, false);
        };
        let values: &mut BoxStream<'static, T> = taken.insert(values);
        let next = tokio::select! {
            biased;
            next = values.next() => next,
            () = ended(&end) => return,
        };
        let Some(value) = next else { return end.close(&hub, true) };
        let sent = encoded(encode, value).and_then(|value| put(&hub, &end, &value));
        if let Err(SinkError::Closed | SinkError::Full | SinkError::Unsendable(_)) = sent {
            return end.close(&hub, false);
        }
    }
}

async fn ended(end: &WriteEnd) {
    loop {
        let mut changed = pin!(end.changed().notified());
        changed.as_mut().enable();
        if end.is_ended() {
            return;
        }
        changed.await;
    }
}

impl<T: Send + 'static> Serialize for Source<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Inner::Own(own) = &self.0 else {
            return Err(S::Error::custom("a source is read in the call that it came with"));
        };
        let travelling = at_encoding(|hub, here| {
            let stream = StreamId(world::random_bits());
            let machine = Writer::new(hub.now(), stream, hub.config);
            let end = WriteEnd::begin(hub, (None, stream), here, machine);
            own.sent.lock().push((hub.clone(), end.clone()));
            hub.spawn(send(hub.clone(), end, own.values.clone(), own.encode));
            Travelling { stream, writer: here }
        });
        let nowhere = || S::Error::custom("a source travels as an argument of a method only");
        travelling.ok_or_else(nowhere)?.serialize(serializer)
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Source<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let travelling = Travelling::deserialize(deserializer)?;
        let node = Node::of_decoding();
        let Some((hub, here)) = node.streams().cloned().zip(node.place(None)) else {
            return Err(de::Error::custom("a source arrives as an argument of a method only"));
        };
        if !hub.has_room_for(travelling.writer) {
            return Err(de::Error::custom(
                "as many streams of this process are open as may be (streams_max)",
            ));
        }
        let decode = codec::decode::<T>;
        Ok(Self(Inner::Arrived(Arrived { hub, node, here, travelling, decode })))
    }
}

impl<T> Unpin for Source<T> {}

impl<T: Send + 'static> Stream for Source<T> {
    type Item = Result<T, SourceError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_value(cx)
    }
}

impl<T> fmt::Debug for Source<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").finish_non_exhaustive()
    }
}
