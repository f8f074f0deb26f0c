//! Topics: values that are published by name, for every subscriber.
//!
//! ```no_run
//! use emmer::observers::News;
//! use emmer::prelude::*;
//!
//! # async fn f(store: &'static str) -> emmer::Result<()> {
//! let silo = Silo::builder().store(store).cluster_id("shop").topics().start().await?;
//! let client = Client::connect(store, "shop").await?;
//! let room = client.topic::<String>("room/7");
//! let mut lines = room.subscribe().last(20);
//! room.publish(&"hello".to_owned()).await?;
//! while let Some(news) = lines.next().await {
//!     if let News::Event(line) = news? {
//!         println!("{line}");
//!     }
//! }
//! # drop(silo);
//! # Ok(())
//! # }
//! ```
//!
//! A topic is a grain with [`Observers`]: each value goes once to each process that subscribes.
//! Values come at most once, and those of one publisher in their order. The last 256 values, or 1
//! MiB of them, are kept in memory for subscribers that come late, until the topic has not been
//! used for a while. A subscription that was away reads from them what it missed, and tells a
//! [`News::Gap`] only where values are lost.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Bytes, BytesMut};
use emmer_macros::{Grain, grain, grain_interface, observer};
use emmer_runtime::grain::{CallError, GrainFactory};
use emmer_runtime::{Client, Gap, News, ObserverRef, Observers, SiloBuilder, Watch, WatchError};
use futures_util::Stream;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::__rt::{CodecError, NoError, decode, encode_into, random_bits};

/// The values that a topic keeps, at most.
const KEPT_MAX: usize = 256;
/// The bytes of these values, at most.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// What a topic tells.
#[doc(hidden)]
#[observer]
pub trait TopicEvents {
    /// A value was published.
    fn published(&self, epoch: u64, number: u64, value: Bytes);
}

/// The grain behind a topic.
#[doc(hidden)]
#[grain_interface(key = String, grain = "emmer-topic")]
pub trait TopicInterface {
    /// Publishes an encoded value; its number.
    async fn publish(&mut self, value: Bytes) -> u64;
    /// Takes a subscriber in; the values that are kept.
    async fn subscribe(&mut self, who: ObserverRef<dyn TopicEvents>) -> Result<Kept, String>;
    /// The values that are kept.
    async fn kept(&self) -> Kept;
}

/// The values that a topic has kept.
#[doc(hidden)]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Kept {
    /// The number of this activation of the topic, drawn at random.
    epoch: u64,
    /// The number of the value behind the last one.
    next: u64,
    values: VecDeque<Bytes>,
}

impl Default for Kept {
    fn default() -> Self {
        Self { epoch: random_bits(), next: 0, values: VecDeque::new() }
    }
}

/// The grain class of topics.
#[derive(Grain)]
struct TopicGrain {
    subscribers: Observers<dyn TopicEvents>,
    kept: Kept,
    /// Bytes of the kept values.
    bytes: usize,
}

#[grain]
impl TopicInterface for TopicGrain {
    async fn publish(&mut self, value: Bytes) -> u64 {
        let (epoch, number) = (self.kept.epoch, self.kept.next);
        self.kept.next += 1;
        self.bytes += value.len();
        self.kept.values.push_back(value.clone());
        while self.kept.values.len() > KEPT_MAX || self.bytes > KEPT_BYTES_MAX {
            let Some(oldest) = self.kept.values.pop_front() else { break };
            self.bytes -= oldest.len();
        }
        self.subscribers.tell(|to| to.published(epoch, number, value));
        number
    }

    async fn subscribe(&mut self, who: ObserverRef<dyn TopicEvents>) -> Result<Kept, String> {
        self.subscribers.add(who).map_err(|error| error.to_string())?;
        Ok(self.kept.clone())
    }

    async fn kept(&self) -> Kept {
        self.kept.clone()
    }
}

/// Silos with topics. In the prelude.
pub trait HostTopics: Sized {
    /// Hosts topics. Every silo of a cluster does, or those that shall.
    #[must_use]
    fn topics(self) -> Self;
}

impl HostTopics for SiloBuilder {
    fn topics(self) -> Self {
        self.host::<dyn TopicInterface, TopicGrain>()
    }
}

/// Clients and grains that use topics. In the prelude.
pub trait UseTopics {
    /// The topic of this name, as in `client.topic::<Line>("room/7")`.
    fn topic<T>(&self, name: impl Into<String>) -> Topic<T>;
}

impl UseTopics for GrainFactory {
    fn topic<T>(&self, name: impl Into<String>) -> Topic<T> {
        let grain = self.grain::<dyn TopicInterface>(name.into());
        Topic { grains: self.clone(), grain, values: PhantomData }
    }
}

impl UseTopics for Client {
    fn topic<T>(&self, name: impl Into<String>) -> Topic<T> {
        self.grains().topic(name)
    }
}

/// A topic with values of type `T`.
pub struct Topic<T> {
    grains: GrainFactory,
    grain: TopicInterfaceRef,
    values: PhantomData<fn() -> T>,
}

/// A value was not published, or the kept values were not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TopicError {
    /// The call to the topic has failed.
    #[error(transparent)]
    Call(#[from] CallError<NoError>),
    /// A value cannot be encoded or decoded.
    #[error("a value of a topic: {0}")]
    Value(String),
    /// The subscription could not join.
    #[error(transparent)]
    Watch(#[from] WatchError),
}

impl From<CodecError> for TopicError {
    fn from(error: CodecError) -> Self {
        Self::Value(error.to_string())
    }
}

impl<T> Topic<T> {
    /// The name of the topic.
    pub fn name(&self) -> &str {
        self.grain.key()
    }

    /// Subscribes: the values that are published from now on, as a stream of [`News`].
    pub fn subscribe(&self) -> Subscription<T> {
        let joined: Arc<Mutex<Joined>> = Arc::default();
        let to = joined.clone();
        let watch = self.grains.watch(&self.grain, move |topic: &TopicInterfaceRef, me| {
            let (call, to) = (topic.subscribe(me), to.clone());
            async move {
                let kept = call.await?;
                let reader = {
                    let mut joined = to.lock();
                    joined.kept = Some(kept);
                    joined.reader.take()
                };
                if let Some(reader) = reader {
                    reader.wake();
                }
                Ok::<(), CallError<String>>(())
            }
        });
        Subscription {
            watch,
            joined,
            last: 0,
            place: None,
            awaits_kept: true,
            early: VecDeque::new(),
            ready: VecDeque::new(),
            values: PhantomData,
        }
    }
}

impl<T: Serialize> Topic<T> {
    /// Publishes a value, and returns its number.
    ///
    /// # Errors
    /// [`TopicError`].
    pub async fn publish(&self, value: &T) -> Result<u64, TopicError> {
        Ok(self.grain.publish(encoded(value)?).await?)
    }

    /// Publishes a value without waiting for the topic. Values that one task sends keep their
    /// order.
    ///
    /// # Errors
    /// [`TopicError`]: what can be known at once.
    pub fn send(&self, value: &T) -> Result<(), TopicError> {
        Ok(self.grain.publish(encoded(value)?).send()?)
    }
}

impl<T: DeserializeOwned> Topic<T> {
    /// The last `n` values that are kept, the oldest first.
    ///
    /// # Errors
    /// [`TopicError`].
    pub async fn last(&self, n: usize) -> Result<Vec<T>, TopicError> {
        let kept = self.grain.kept().await?;
        let behind = kept.values.len().saturating_sub(n);
        kept.values.iter().skip(behind).map(|value| Ok(decode(value)?)).collect()
    }
}

fn encoded<T: Serialize>(value: &T) -> Result<Bytes, CodecError> {
    let mut out = BytesMut::new();
    encode_into(&mut out, value)?;
    Ok(out.freeze())
}

impl<T> Clone for Topic<T> {
    fn clone(&self) -> Self {
        Self { grains: self.grains.clone(), grain: self.grain.clone(), values: PhantomData }
    }
}

impl<T> fmt::Debug for Topic<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Topic({:?})", self.name())
    }
}

/// The values of a topic, for one subscriber. It ends when it is dropped.
#[must_use = "a subscription hears nothing until it is read"]
pub struct Subscription<T> {
    watch: Watch<dyn TopicEvents>,
    joined: Arc<Mutex<Joined>>,
    /// The kept values that a subscriber begins with, at most.
    last: usize,
    /// The activation of the topic, and the number of the next value of it.
    place: Option<(u64, u64)>,
    /// True from a join on, until its answer is here.
    awaits_kept: bool,
    /// Events that came before that answer.
    early: VecDeque<TopicEventsEvent>,
    ready: VecDeque<News<Bytes>>,
    values: PhantomData<fn() -> T>,
}

/// The answer of the topic to the call that joins.
#[derive(Default)]
struct Joined {
    kept: Option<Kept>,
    reader: Option<Waker>,
}

impl<T> Subscription<T> {
    /// Begins with the last `n` values that the topic has kept.
    pub const fn last(mut self, n: usize) -> Self {
        self.last = n;
        self
    }

    /// The topic has answered: what was missed is among the values that it has kept, or lost.
    fn catch_up(&mut self, kept: Kept) {
        let Kept { epoch, next, values } = kept;
        let first = next - values.len() as u64;
        let from = match self.place {
            None => next.saturating_sub(self.last as u64).max(first),
            Some((before, heard)) if before == epoch => {
                if heard < first {
                    self.ready.push_back(News::Gap(Gap::of(Some(first - heard))));
                }
                heard.max(first)
            }
            Some(_) => {
                self.ready.push_back(News::Gap(Gap::of(None)));
                first
            }
        };
        let missed = (first..).zip(values).filter(|(number, _)| *number >= from);
        self.ready.extend(missed.map(|(_, value)| News::Event(value)));
        self.place = Some((epoch, next));
        self.awaits_kept = false;
        for event in std::mem::take(&mut self.early) {
            self.hear(event);
        }
    }

    fn hear(&mut self, event: TopicEventsEvent) {
        let TopicEventsEvent::Published { epoch, number, value } = event;
        match self.place {
            Some((own, next)) if own == epoch && number < next => return,
            Some((own, _)) if own == epoch => {}
            _ => self.ready.push_back(News::Gap(Gap::of(None))),
        }
        self.place = Some((epoch, number + 1));
        self.ready.push_back(News::Event(value));
    }

    /// Takes the answer to the call that joins, if it is here.
    fn take_kept(&mut self, cx: &Context<'_>) {
        let mut joined = self.joined.lock();
        match joined.kept.take() {
            Some(kept) => {
                drop(joined);
                self.catch_up(kept);
            }
            None => joined.reader = Some(cx.waker().clone()),
        }
    }
}

impl<T: DeserializeOwned> Subscription<T> {
    /// The next news; None after the end.
    pub async fn next(&mut self) -> Option<Result<News<T>, TopicError>> {
        poll_fn(|cx| self.poll_news(cx)).await
    }

    fn poll_news(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<News<T>, TopicError>>> {
        loop {
            if self.awaits_kept {
                self.take_kept(cx);
            }
            if let Some(news) = self.ready.pop_front() {
                return Poll::Ready(Some(match news {
                    News::Event(value) => decode(&value).map(News::Event).map_err(Into::into),
                    News::Gap(gap) => Ok(News::Gap(gap)),
                }));
            }
            match ready!(Pin::new(&mut self.watch).poll_next(cx)) {
                None => return Poll::Ready(None),
                Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                Some(Ok(News::Gap(gap))) if gap.missed.is_none() => self.awaits_kept = true,
                Some(Ok(News::Gap(gap))) => self.ready.push_back(News::Gap(gap)),
                Some(Ok(News::Event(event))) if self.awaits_kept => {
                    // The answer says again what does not fit here.
                    if self.early.len() < KEPT_MAX {
                        self.early.push_back(event);
                    }
                }
                Some(Ok(News::Event(event))) => self.hear(event),
            }
        }
    }
}

impl<T> Unpin for Subscription<T> {}

impl<T: DeserializeOwned> Stream for Subscription<T> {
    type Item = Result<News<T>, TopicError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_news(cx)
    }
}

impl<T> fmt::Debug for Subscription<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("place", &self.place).finish_non_exhaustive()
    }
}
