//! Events that wait for their observer.

use std::any::Any;
use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use emmer_net::warn_seldom;
use emmer_wire::codec;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::interface::ObserverInterface;
use super::watch::WatchError;
use crate::calls::Node;
use crate::streams::Mailbox as Inward;
use crate::turn::contain;

/// Something that an observer hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News<E> {
    /// What a grain tells.
    Event(E),
    /// Events may be missing here.
    Gap(Gap),
}

/// A place in the events of an observer where some may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gap {
    /// The number of missing events. None: the observer was away, and joined again. What was said
    /// in between has to be read elsewhere.
    pub missed: Option<u64>,
}

impl Gap {
    /// A gap of this many events, or of an unknown number.
    pub const fn of(missed: Option<u64>) -> Self {
        Self { missed }
    }
}

/// Treatment of an event for which there is no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// The oldest waiting event goes.
    #[default]
    DropOldest,
    /// The event itself goes.
    DropNewest,
    /// The watch ends, with [`WatchError::Overflow`].
    End,
}

/// Events of one observer.
pub(super) struct Mailbox<I: ObserverInterface + ?Sized> {
    /// The process that decodes.
    node: Node,
    state: Mutex<State<I::Event>>,
    /// A registration was made or lost.
    pub(super) changed: Notify,
}

struct State<E> {
    news: VecDeque<News<E>>,
    capacity: usize,
    overflow: Overflow,
    reader: Option<Waker>,
    is_registered: bool,
    /// True from the first registration on.
    was_registered: bool,
    /// The grain has taken the observer out.
    is_removed: bool,
    /// The last item; None inside: an end without an error.
    end: Option<Option<WatchError>>,
}

/// The state of a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Registration {
    Missing,
    There,
    Removed,
}

impl<I: ObserverInterface + ?Sized> Mailbox<I> {
    pub(super) fn new(node: Node, capacity: usize, overflow: Overflow) -> Self {
        let state = State {
            news: VecDeque::new(),
            capacity: capacity.max(1),
            overflow,
            reader: None,
            is_registered: false,
            was_registered: false,
            is_removed: false,
            end: None,
        };
        Self { node, state: Mutex::new(state), changed: Notify::new() }
    }

    pub(super) fn registration(&self) -> Registration {
        let state = self.state.lock();
        match (state.is_removed || state.end.is_some(), state.is_registered) {
            (true, _) => Registration::Removed,
            (_, true) => Registration::There,
            (_, false) => Registration::Missing,
        }
    }

    /// No news follow.
    pub(super) fn end(&self, why: Option<WatchError>) {
        self.change(|state| {
            state.end.get_or_insert(why);
        });
    }

    fn change(&self, how: impl FnOnce(&mut State<I::Event>)) {
        let mut state = self.state.lock();
        let had_joined = state.was_registered;
        how(&mut state);
        let has_joined = state.was_registered && !had_joined;
        let is_news = has_joined || !state.news.is_empty() || state.end.is_some();
        let reader = if is_news { state.reader.take() } else { None };
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    fn push(&self, event: I::Event) {
        let mut dropped = None;
        self.change(|state| {
            if state.end.is_some() {
                dropped = Some(News::Event(event));
                return;
            }
            if state.news.len() < state.capacity {
                state.news.push_back(News::Event(event));
                return;
            }
            match state.overflow {
                Overflow::DropNewest => {
                    dropped = Some(News::Event(event));
                    state.miss(1);
                }
                Overflow::DropOldest => {
                    let gap = state.drop_oldest(&mut dropped);
                    state.news.push_front(News::Gap(Gap { missed: gap }));
                    state.news.push_back(News::Event(event));
                }
                Overflow::End => {
                    dropped = Some(News::Event(event));
                    state.end = Some(Some(WatchError::Overflow));
                }
            }
        });
        // The application's value is dropped without the lock.
        let _ = contain(|| drop(dropped));
    }

    /// The next news, or the end.
    pub(super) fn poll_next(
        &self,
        cx: &Context<'_>,
    ) -> Poll<Option<Result<News<I::Event>, WatchError>>> {
        let mut state = self.state.lock();
        if let Some(news) = state.news.pop_front() {
            return Poll::Ready(Some(Ok(news)));
        }
        if let Some(end) = &mut state.end {
            return Poll::Ready(end.take().map(Err));
        }
        state.wait(cx);
        Poll::Pending
    }

    /// Ready once the observer was registered, or its news have ended.
    pub(super) fn poll_joined(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        if state.was_registered || state.end.is_some() {
            return Poll::Ready(());
        }
        state.wait(cx);
        Poll::Pending
    }
}

impl<E> State<E> {
    fn wait(&mut self, cx: &Context<'_>) {
        if !self.reader.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            self.reader = Some(cx.waker().clone());
        }
    }

    /// Events are missing behind those that wait.
    fn miss(&mut self, events: u64) {
        match self.news.back_mut() {
            Some(News::Gap(gap)) => gap.missed = gap.missed.map(|missed| missed + events),
            _ => self.news.push_back(News::Gap(Gap { missed: Some(events) })),
        }
    }

    /// Takes the oldest event out, and the gap before it. Returns the number of events that are
    /// missing there then.
    fn drop_oldest(&mut self, dropped: &mut Option<News<E>>) -> Option<u64> {
        let mut missed = Some(0);
        loop {
            match self.news.pop_front() {
                Some(News::Gap(gap)) => {
                    missed = missed.zip(gap.missed).map(|(one, other)| one + other);
                }
                Some(event) => {
                    *dropped = Some(event);
                    return missed.map(|missed| missed + 1);
                }
                None => return missed,
            }
        }
    }
}

impl<I: ObserverInterface + ?Sized> Inward for Mailbox<I> {
    fn take_encoded(&self, event: &[u8], decoded: &mut Option<Box<dyn Any + Send>>) {
        let known = decoded.as_ref().and_then(|known| known.downcast_ref::<I::Event>());
        let event = match known {
            Some(event) => contain(|| event.clone()).map_err(|panic| format!("a panic: {panic}")),
            None => {
                let read = contain(|| self.node.binds(|| codec::decode::<I::Event>(event)));
                read.map_err(|panic| format!("a panic: {panic}"))
                    .and_then(|read| read.map_err(|error| error.to_string()))
                    .and_then(|event| {
                        let copy = contain(|| event.clone());
                        *decoded = Some(Box::new(event));
                        copy.map_err(|panic| format!("a panic: {panic}"))
                    })
            }
        };
        match event {
            Ok(event) => self.push(event),
            Err(error) => {
                warn_seldom!(interface = I::NAME, error, "an event that cannot be read");
                self.miss(1);
            }
        }
    }

    fn take(&self, event: &(dyn Any + Send + Sync)) {
        match event.downcast_ref::<I::Event>().map(|event| contain(|| event.clone())) {
            Some(Ok(event)) => self.push(event),
            Some(Err(_)) | None => self.miss(1),
        }
    }

    fn miss(&self, events: u64) {
        self.change(|state| state.miss(events));
    }

    fn added(&self) {
        self.change(|state| {
            let is_back = state.was_registered && !state.is_registered;
            if is_back {
                state.news.push_back(News::Gap(Gap { missed: None }));
            }
            (state.is_registered, state.was_registered) = (true, true);
        });
        self.changed.notify_one();
    }

    fn lost(&self, is_kept: bool) {
        let mut state = self.state.lock();
        state.is_registered = false;
        state.is_removed |= !is_kept;
        drop(state);
        self.changed.notify_one();
    }
}
