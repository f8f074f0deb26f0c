//! An observer, and the task that keeps it registered.

use std::fmt;
use std::future::{IntoFuture, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use emmer_core::backoff::Backoff;
use emmer_core::rng::SeededRng;
use emmer_net::{warn_seldom, world};
use futures_util::Stream;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::interface::ObserverInterface;
use super::mailbox::{Mailbox, News, Overflow, Registration};
use super::reference::ObserverRef;
use crate::calls::Node;
use crate::client::Client;
use crate::grain::{Error, GrainFactory};
use crate::turn::{CallError, contain, contained};

/// Events that may wait for their observer, by default.
const CAPACITY: usize = 1_024;

/// Pauses between two tries to join.
const AGAIN: Duration = Duration::from_millis(100);
const AGAIN_MAX: Duration = Duration::from_secs(5);

/// The word of the grain's silo that it has the observer arrives within this time; else the
/// observer joins again.
const ADDED_WITHIN: Duration = Duration::from_secs(3);

/// An observer of a grain: what the grain tells, as a stream of [`News`]. It begins when it is
/// first polled, or by [`joined`](Self::joined) or [`handle`](Self::handle), and ends when it is
/// dropped.
///
/// The call that registers it is made again whenever the registration was lost: with the gateway,
/// the grain's silo, or the activation. [`News::Gap`] then says that events may be missing, so that
/// an application can read what it missed. Events come at most once, in the order in which the
/// grain has told them.
///
/// It ends without an error when the grain takes it out of its observers.
#[must_use = "a watch hears nothing until it is read, or has a handler"]
pub struct Watch<I: ObserverInterface + ?Sized> {
    node: Node,
    capacity: usize,
    overflow: Overflow,
    state: WatchState<I>,
}

enum WatchState<I: ObserverInterface + ?Sized> {
    New(Join<I>),
    Begun(Open<I>),
    Ended,
}

type Join<I> = Box<dyn FnMut(ObserverRef<I>) -> BoxFuture<'static, Result<(), NotJoined>> + Send>;

/// The call that joins has failed.
struct NotJoined {
    may_pass: bool,
    error: Error,
}

/// An observer that is known to its process, until this is dropped.
struct Open<I: ObserverInterface + ?Sized> {
    node: Node,
    id: u64,
    mailbox: Arc<Mailbox<I>>,
    cancel: CancellationToken,
}

impl<I: ObserverInterface + ?Sized> Drop for Open<I> {
    fn drop(&mut self) {
        self.cancel.cancel();
        if let Some(hub) = self.node.streams() {
            hub.inbox.close(hub, self.id);
        }
    }
}

/// The reason why a [`Watch`] ended.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// The call that joins was refused: by the grain, a filter, or the silo.
    #[error("the observer could not join: {0}")]
    NotJoined(Arc<str>),
    /// More events waited than may, and the watch says that this ends it.
    #[error("the observer has not read its events: {CAPACITY} or as many as it allows waited")]
    Overflow,
}

/// An observer whose events a handler takes. Dropping it ends the watch.
#[derive(Debug)]
pub struct Handled {
    cancel: CancellationToken,
    over: CancellationToken,
}

impl Handled {
    /// Waits until the watch has ended by itself.
    pub async fn ended(&self) {
        self.over.cancelled().await;
    }
}

impl Drop for Handled {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl GrainFactory {
    /// Watches a grain: `join` makes the call that registers the observer, as in
    /// `client.watch(&room, |room, me| room.join(me))`, and is called again whenever the
    /// registration was lost.
    pub fn watch<R, I, C, T, E>(
        &self,
        grain: &R,
        mut join: impl FnMut(&R, ObserverRef<I>) -> C + Send + 'static,
    ) -> Watch<I>
    where
        R: Clone + Send + 'static,
        I: ObserverInterface + ?Sized + 'static,
        C: IntoFuture<Output = Result<T, CallError<E>>>,
        C::IntoFuture: Send + 'static,
        E: fmt::Display,
    {
        let grain = grain.clone();
        let join = move |me: ObserverRef<I>| -> BoxFuture<'static, _> {
            let call = join(&grain, me).into_future();
            Box::pin(async move { call.await.map(|_| ()).map_err(not_joined) })
        };
        Watch {
            node: self.0.clone(),
            capacity: CAPACITY,
            overflow: Overflow::default(),
            state: WatchState::New(Box::new(join)),
        }
    }
}

impl Client {
    /// Watches a grain: see [`GrainFactory::watch`].
    pub fn watch<R, I, C, T, E>(
        &self,
        grain: &R,
        join: impl FnMut(&R, ObserverRef<I>) -> C + Send + 'static,
    ) -> Watch<I>
    where
        R: Clone + Send + 'static,
        I: ObserverInterface + ?Sized + 'static,
        C: IntoFuture<Output = Result<T, CallError<E>>>,
        C::IntoFuture: Send + 'static,
        E: fmt::Display,
    {
        self.grains().watch(grain, join)
    }
}

fn not_joined<E: fmt::Display>(error: CallError<E>) -> NotJoined {
    let may_pass = matches!(
        error,
        CallError::Timeout { .. }
            | CallError::Unreachable { .. }
            | CallError::Overloaded { .. }
            | CallError::Cancelled { .. }
            | CallError::ShuttingDown { .. }
    );
    NotJoined { may_pass, error: Error::new(error) }
}

impl<I: ObserverInterface + ?Sized + 'static> Watch<I> {
    /// The most events that may wait. Default 1,024.
    pub const fn capacity(mut self, events: usize) -> Self {
        self.capacity = events;
        self
    }

    /// Sets the treatment of an event for which there is no room. Default [`Overflow::DropOldest`].
    pub const fn overflow(mut self, overflow: Overflow) -> Self {
        self.overflow = overflow;
        self
    }

    /// Waits until the grain has the observer for the first time, or the watch has ended. What the
    /// grain tells from then on is heard, so what was said before can be read without a hole. A
    /// later join is a [`Gap`](News::Gap).
    pub async fn joined(&mut self) {
        poll_fn(|cx| {
            if let WatchState::New(_) = self.state {
                self.begin();
            }
            match &self.state {
                WatchState::Begun(open) => open.mailbox.poll_joined(cx),
                _ => Poll::Ready(()),
            }
        })
        .await;
    }

    /// The next news; None after the end.
    pub async fn next(&mut self) -> Option<Result<News<I::Event>, WatchError>> {
        poll_fn(|cx| self.poll_news(cx)).await
    }

    /// Gives the events to `handler`, one after the other, in a task of its own.
    pub fn handle(mut self, handler: Box<I>) -> Handled {
        let (cancel, over) = (CancellationToken::new(), CancellationToken::new());
        let handled = Handled { cancel: cancel.clone(), over: over.clone() };
        let Some(spawner) = self.node.spawner().cloned() else {
            over.cancel();
            return handled;
        };
        spawner.spawn(async move {
            let over = over.drop_guard();
            loop {
                let news = tokio::select! {
                    biased;
                    () = cancel.cancelled() => return,
                    news = self.next() => news,
                };
                let done = match news {
                    Some(Ok(News::Event(event))) => contain(|| handler.deliver(event)),
                    Some(Ok(News::Gap(gap))) => contain(|| handler.deliver_gap(gap)),
                    Some(Err(error)) => {
                        tracing::warn!(interface = I::NAME, %error, "a watch has ended");
                        break;
                    }
                    None => break,
                };
                if let Err(panic) = done {
                    warn_seldom!(interface = I::NAME, panic, "an observer panicked");
                }
            }
            drop(over);
        });
        handled
    }

    fn poll_news(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<News<I::Event>, WatchError>>> {
        loop {
            match &mut self.state {
                WatchState::Begun(open) => {
                    let next = open.mailbox.poll_next(cx);
                    if matches!(next, Poll::Ready(None | Some(Err(_)))) {
                        self.state = WatchState::Ended;
                    }
                    return next;
                }
                WatchState::Ended => return Poll::Ready(None),
                WatchState::New(_) => self.begin(),
            }
        }
    }

    fn begin(&mut self) {
        let WatchState::New(join) = std::mem::replace(&mut self.state, WatchState::Ended) else {
            return;
        };
        let Some((hub, spawner)) = self.node.streams().zip(self.node.spawner()) else { return };
        let mailbox = Mailbox::new(self.node.clone(), self.capacity, self.overflow);
        let mailbox: Arc<Mailbox<I>> = Arc::new(mailbox);
        let (id, cancel) = (hub.inbox.open(mailbox.clone()), CancellationToken::new());
        let keep = keep(self.node.clone(), id, mailbox.clone(), join);
        let cancelled = cancel.clone();
        spawner.spawn(async move {
            tokio::select! {
                biased;
                () = cancelled.cancelled() => {}
                () = keep => {}
            }
        });
        self.state = WatchState::Begun(Open { node: self.node.clone(), id, mailbox, cancel });
    }
}

/// Keeps an observer registered.
async fn keep<I: ObserverInterface + ?Sized>(
    node: Node,
    id: u64,
    mailbox: Arc<Mailbox<I>>,
    mut join: Join<I>,
) {
    let mut backoff = Backoff::new(AGAIN, AGAIN_MAX);
    let mut rng = SeededRng::new(world::random_bits());
    loop {
        if let Some(place) = node.home() {
            match joined(contain(|| join(ObserverRef::new(place, id)))).await {
                Ok(()) => {
                    let added =
                        until(&mailbox, |registration| registration != Registration::Missing);
                    if tokio::time::timeout(ADDED_WITHIN, added).await.is_ok() {
                        backoff.reset();
                        until(&mailbox, |registration| registration != Registration::There).await;
                    } else {
                        node.doubt(place);
                    }
                }
                Err(failure) if failure.may_pass && !node.is_closed() => {}
                Err(failure) => {
                    let why = failure.error.to_string().into();
                    return mailbox.end(Some(WatchError::NotJoined(why)));
                }
            }
        } else if node.is_closed() {
            return mailbox.end(None);
        }
        if mailbox.registration() == Registration::Removed {
            return mailbox.end(None);
        }
        tokio::time::sleep(backoff.next_delay(&mut rng)).await;
    }
}

/// Awaits the call that joins. The application's code has made it, and may have panicked.
async fn joined(
    call: Result<BoxFuture<'static, Result<(), NotJoined>>, String>,
) -> Result<(), NotJoined> {
    let panicked = |panic| NotJoined { may_pass: false, error: Error::new(panic) };
    contained(call.map_err(panicked)?).await.map_err(panicked)?
}

async fn until<I: ObserverInterface + ?Sized>(
    mailbox: &Mailbox<I>,
    wanted: impl Fn(Registration) -> bool + Send,
) {
    while !wanted(mailbox.registration()) {
        mailbox.changed.notified().await;
    }
}

impl<I: ObserverInterface + ?Sized> Unpin for Watch<I> {}

impl<I: ObserverInterface + ?Sized + 'static> Stream for Watch<I> {
    type Item = Result<News<I::Event>, WatchError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_news(cx)
    }
}

impl<I: ObserverInterface + ?Sized> fmt::Debug for Watch<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watch({})", I::NAME)
    }
}
