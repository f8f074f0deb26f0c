//! The door to a grain: `&mut` turns one at a time, `&` turns together, all in the order in which they came.
//!
//! The lock inside is only ever tried, never waited for. Who does not get it queues up here, and whoever gives it up
//! wakes the first of the queue; while anybody queues, nobody goes past. An idle gate is three atomic operations and
//! has no queue: the queue is made when it is first needed.
//!
//! Why nobody sleeps for ever: a waiter counts itself in `waiting` before it tries the lock a last time, and a leaver
//! looks at `waiting` after it has unlocked, both by read-modify-write operations on the same word. Either the leaver
//! sees the waiter and wakes it, or its look came before the waiter's count, which then also sees the lock free.

use std::collections::VecDeque;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::{
    MappedRwLockReadGuard, MappedRwLockWriteGuard, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

use super::Closed;
use crate::clock::CoarseInstant;

/// How often a lock that is held by a turn running on another thread right now is tried again before queueing up: a turn
/// that does not suspend is over sooner than a task is woken.
const SPINS: u32 = 64;

/// What is behind the door.
pub(super) enum Slot<G> {
    /// Nobody was admitted yet.
    New,
    There(G),
    /// The grain is gone, or was never here, and why. In a box: it is as large as many grains.
    Closed(Box<Closed>),
}

impl<G> Slot<G> {
    const fn as_mut(&mut self) -> Option<&mut G> {
        match self {
            Self::There(grain) => Some(grain),
            Self::New | Self::Closed(_) => None,
        }
    }

    const fn as_ref(&self) -> Option<&G> {
        match self {
            Self::There(grain) => Some(grain),
            Self::New | Self::Closed(_) => None,
        }
    }

    fn why(&self) -> Closed {
        match self {
            Self::Closed(why) => (**why).clone(),
            Self::New | Self::There(_) => Closed::Gone,
        }
    }
}

/// A grain and the turns that wait for it.
pub(super) struct Gate<T> {
    cell: RwLock<T>,
    line: Line,
}

/// The waiting side of a gate, whatever the grain.
pub(super) struct Line {
    /// How many are in the queue.
    waiting: AtomicU32,
    /// The turn inside has suspended: no use in trying again at once.
    suspended: AtomicBool,
    queue: Mutex<Option<Box<Queue>>>,
}

#[derive(Default)]
struct Queue {
    next_ticket: u64,
    /// By rising ticket.
    waiters: VecDeque<Waiter>,
    /// Whether the silo looks here for passed deadlines.
    watched: bool,
}

struct Waiter {
    ticket: u64,
    exclusive: bool,
    deadline: CoarseInstant,
    waker: Option<Waker>,
}

impl<T> Gate<T> {
    pub(super) const fn new(value: T) -> Self {
        let line =
            Line { waiting: AtomicU32::new(0), suspended: AtomicBool::new(false), queue: Mutex::new(None) };
        Self { cell: RwLock::new(value), line }
    }

    pub(super) const fn line(&self) -> &Line {
        &self.line
    }

    /// Enters alone, if nobody is inside and nobody waits.
    #[inline]
    pub(super) fn try_exclusive(&self) -> Option<Alone<'_, T>> {
        if self.line.waiting() > 0 {
            return None;
        }
        self.cell.try_write().map(|guard| self.alone(guard))
    }

    /// Enters beside others, if nobody is inside alone and nobody waits.
    #[inline]
    pub(super) fn try_shared(&self) -> Option<Together<'_, T>> {
        if self.line.waiting() > 0 {
            return None;
        }
        self.cell.try_read().map(|guard| self.together(guard))
    }

    const fn alone<'a>(&'a self, guard: RwLockWriteGuard<'a, T>) -> Alone<'a, T> {
        Alone { guard, leave: Leave(&self.line) }
    }

    const fn together<'a>(&'a self, guard: RwLockReadGuard<'a, T>) -> Together<'a, T> {
        Together { guard, leave: Leave(&self.line) }
    }

    /// As the `try_` functions, giving a turn on another thread a moment to end.
    pub(super) fn spin<'a, L>(&'a self, enter: impl Fn(&'a Self) -> Option<L>) -> Option<L> {
        for _ in 0..SPINS {
            if self.line.waiting() > 0 || self.line.suspended.load(Ordering::Relaxed) {
                return None;
            }
            std::hint::spin_loop();
            if let Some(lock) = enter(self) {
                return Some(lock);
            }
        }
        None
    }

    /// Waits in the queue to enter alone. `watch` is called when the queue's deadlines begin to matter to the silo.
    pub(super) const fn exclusive<W: FnMut()>(
        &self,
        deadline: CoarseInstant,
        watch: W,
    ) -> Enter<'_, T, W, true> {
        Enter { gate: self, ticket: None, deadline, watch }
    }

    /// Waits in the queue to enter beside others.
    pub(super) const fn shared<W: FnMut()>(
        &self,
        deadline: CoarseInstant,
        watch: W,
    ) -> Enter<'_, T, W, false> {
        Enter { gate: self, ticket: None, deadline, watch }
    }
}

impl Line {
    /// How many wait.
    #[inline]
    pub(super) fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Notes whether the turn inside has suspended.
    pub(super) fn set_suspended(&self, suspended: bool) {
        self.suspended.store(suspended, Ordering::Relaxed);
    }

    /// Somebody went out: the first of the queue may try.
    #[inline]
    fn pass_on(&self) {
        if self.waiting.fetch_add(0, Ordering::AcqRel) > 0 {
            self.wake_first();
        }
    }

    #[cold]
    fn wake_first(&self) {
        let mut queue = self.queue.lock();
        let waker = queue.as_mut().and_then(|q| q.waiters.front_mut()).and_then(|first| first.waker.take());
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Wakes every waiter whose deadline has passed, so that its caller looks at the clock; false when nobody waits any
    /// more and the silo need not look here again.
    pub(super) fn wake_overdue(&self, now: CoarseInstant) -> bool {
        let mut guard = self.queue.lock();
        let Some(queue) = guard.as_mut() else { return false };
        let due = queue.waiters.iter_mut().filter(|waiter| waiter.deadline <= now);
        let wake: Vec<Waker> = due.filter_map(|waiter| waiter.waker.take()).collect();
        let watched = !queue.waiters.is_empty();
        // The room of a burst is given back when it is over.
        let over = if watched { None } else { guard.take() };
        drop(guard);
        drop(over);
        wake.into_iter().for_each(Waker::wake);
        watched
    }

    /// Takes a waiter out of the queue; if it was the first, the next one is told.
    fn give_up(&self, ticket: u64) {
        let mut guard = self.queue.lock();
        let Some(queue) = guard.as_mut() else { return };
        let Ok(at) = queue.waiters.binary_search_by_key(&ticket, |waiter| waiter.ticket) else { return };
        let gone = queue.waiters.remove(at);
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        let next =
            if at == 0 { queue.waiters.front_mut().and_then(|first| first.waker.take()) } else { None };
        drop(guard);
        drop(gone);
        if let Some(next) = next {
            next.wake();
        }
    }
}

/// A lock that can be tried for by kind of turn.
pub(super) trait Kind<'a, T> {
    type Lock;
    fn enter(gate: &'a Gate<T>) -> Option<Self::Lock>;
}

/// The wait for one's turn. Dropping it gives the place up.
pub(super) struct Enter<'a, T, W: FnMut(), const EXCLUSIVE: bool> {
    gate: &'a Gate<T>,
    ticket: Option<u64>,
    deadline: CoarseInstant,
    watch: W,
}

impl<'a, T, W: FnMut()> Kind<'a, T> for Enter<'a, T, W, true> {
    type Lock = Alone<'a, T>;

    fn enter(gate: &'a Gate<T>) -> Option<Alone<'a, T>> {
        gate.cell.try_write().map(|guard| gate.alone(guard))
    }
}

impl<'a, T, W: FnMut()> Kind<'a, T> for Enter<'a, T, W, false> {
    type Lock = Together<'a, T>;

    fn enter(gate: &'a Gate<T>) -> Option<Together<'a, T>> {
        gate.cell.try_read().map(|guard| gate.together(guard))
    }
}

// Nothing in it is ever pinned.
impl<T, W: FnMut(), const EXCLUSIVE: bool> Unpin for Enter<'_, T, W, EXCLUSIVE> {}

impl<'a, T, W: FnMut(), const EXCLUSIVE: bool> Future for Enter<'a, T, W, EXCLUSIVE>
where
    Self: Kind<'a, T>,
{
    type Output = <Self as Kind<'a, T>>::Lock;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let line = &this.gate.line;
        let mut guard = line.queue.lock();
        let queue = guard.get_or_insert_default();
        let mut watch = false;
        let ticket = *this.ticket.get_or_insert_with(|| {
            let ticket = queue.next_ticket;
            queue.next_ticket += 1;
            let (exclusive, deadline) = (EXCLUSIVE, this.deadline);
            queue.waiters.push_back(Waiter { ticket, exclusive, deadline, waker: None });
            line.waiting.fetch_add(1, Ordering::AcqRel);
            watch = !std::mem::replace(&mut queue.watched, true);
            ticket
        });
        if queue.waiters.front().is_some_and(|first| first.ticket == ticket)
            && let Some(lock) = <Self as Kind<'a, T>>::enter(this.gate)
        {
            queue.waiters.pop_front();
            line.waiting.fetch_sub(1, Ordering::AcqRel);
            this.ticket = None;
            // Readers go in together: each one lets the next one in.
            let beside = queue.waiters.front_mut().filter(|next| !EXCLUSIVE && !next.exclusive);
            let beside = beside.and_then(|next| next.waker.take());
            drop(guard);
            if let Some(beside) = beside {
                beside.wake();
            }
            return Poll::Ready(lock);
        }
        if let Ok(at) = queue.waiters.binary_search_by_key(&ticket, |waiter| waiter.ticket)
            && let Some(waiter) = queue.waiters.get_mut(at)
            && !waiter.waker.as_ref().is_some_and(|old| old.will_wake(cx.waker()))
        {
            waiter.waker = Some(cx.waker().clone());
        }
        drop(guard);
        if watch {
            (this.watch)();
        }
        Poll::Pending
    }
}

impl<T, W: FnMut(), const EXCLUSIVE: bool> Drop for Enter<'_, T, W, EXCLUSIVE> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.gate.line.give_up(ticket);
        }
    }
}

/// Tells the queue, after the lock before it in a struct was dropped.
struct Leave<'a>(&'a Line);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.pass_on();
    }
}

/// The lock of a turn alone, before its grain is known to be there.
pub(super) struct Alone<'a, T> {
    guard: RwLockWriteGuard<'a, T>,
    leave: Leave<'a>,
}

impl<'a, T> Alone<'a, T> {
    /// Lets others that only read in beside.
    pub(super) fn downgrade(self) -> Together<'a, T> {
        let guard = RwLockWriteGuard::downgrade(self.guard);
        self.leave.0.pass_on();
        Together { guard, leave: self.leave }
    }
}

impl<'a, G> Alone<'a, Slot<G>> {
    /// The lock of the grain itself, or why there is none.
    #[inline]
    pub(super) fn grain(self) -> Result<Exclusive<'a, G>, Closed> {
        match RwLockWriteGuard::try_map(self.guard, Slot::as_mut) {
            Ok(guard) => Ok(Exclusive { guard, _leave: self.leave }),
            Err(guard) => Err(guard.why()),
        }
    }
}

impl<T> Deref for Alone<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for Alone<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// The lock of a turn beside others, before its grain is known to be there.
pub(super) struct Together<'a, T> {
    guard: RwLockReadGuard<'a, T>,
    leave: Leave<'a>,
}

impl<'a, G> Together<'a, Slot<G>> {
    /// The lock of the grain itself, or why there is none.
    #[inline]
    pub(super) fn grain(self) -> Result<Shared<'a, G>, Closed> {
        match RwLockReadGuard::try_map(self.guard, Slot::as_ref) {
            Ok(guard) => Ok(Shared { guard, _leave: self.leave }),
            Err(guard) => Err(guard.why()),
        }
    }
}

/// The lock of an exclusive turn.
pub struct Exclusive<'a, G> {
    guard: MappedRwLockWriteGuard<'a, G>,
    _leave: Leave<'a>,
}

impl<G> Deref for Exclusive<'_, G> {
    type Target = G;

    fn deref(&self) -> &G {
        &self.guard
    }
}

impl<G> DerefMut for Exclusive<'_, G> {
    fn deref_mut(&mut self) -> &mut G {
        &mut self.guard
    }
}

/// The lock of a shared turn.
pub struct Shared<'a, G> {
    guard: MappedRwLockReadGuard<'a, G>,
    _leave: Leave<'a>,
}

impl<G> Deref for Shared<'_, G> {
    type Target = G;

    fn deref(&self) -> &G {
        &self.guard
    }
}

#[cfg(test)]
mod tests;
