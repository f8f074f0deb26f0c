//! The door to a grain: `&mut` turns one at a time, `&` turns together, all in order of arrival.
//!
//! A turn tries the inner lock and never waits for it. If it does not get the lock, it queues up
//! here. A turn that gives the lock up wakes the next of the queue, and no turn passes the queue.
//! An idle gate is three atomic operations; its queue is made when it is first needed.
//!
//! Why no waiter sleeps for good: a waiter counts itself in `waiting` before it tries the lock a
//! last time, and a leaver reads `waiting` after it has unlocked, both by read-modify-write
//! operations on the same word. Either the leaver sees the waiter and wakes it, or the leaver
//! looked before the count, and the waiter sees the lock free. A called waiter that does not come,
//! because its caller does not poll the call, loses its place after a while.
//!
//! Why no turn enters a broken grain: the turn that breaks it says so before it gives its lock
//! back, and takes the closer's place at the head of the queue in the same step.

mod asks;
mod line;

use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

pub(crate) use self::asks::{Asks, Who};
pub(crate) use self::line::{Line, Purpose};
use crate::turn::Asker;
use crate::waits::Wait;

/// Number of tries for a lock that a turn on another thread holds right now, before queueing up. A
/// turn that does not suspend is over sooner than a task is woken.
const SPINS: u32 = 64;

/// Reason that a turn which did not end leaves on its grain.
const HALF_WAY: &str = "a turn ended half way";

/// A grain and the turns that wait for it.
pub(super) struct Gate<T: ?Sized> {
    line: Line,
    cell: RwLock<T>,
}

impl<T> Gate<T> {
    pub(super) const fn new(value: T) -> Self {
        Self { line: Line::new(), cell: RwLock::new(value) }
    }
}

impl<T: ?Sized> Gate<T> {
    pub(super) const fn line(&self) -> &Line {
        &self.line
    }

    /// Returns true if no turn is inside, none waits, and it is not broken.
    pub(super) fn is_free(&self) -> bool {
        self.line.waiting() == 0 && !self.cell.is_locked() && !self.line.is_broken()
    }

    /// Returns true if a turn is inside.
    pub(super) fn is_entered(&self) -> bool {
        self.cell.is_locked()
    }

    /// Value of a gate that has no other owner.
    pub(super) fn get_mut(&mut self) -> &mut T {
        self.cell.get_mut()
    }

    /// Enters alone, if no turn is inside and none waits.
    #[inline]
    pub(super) fn try_exclusive(&self) -> Option<Alone<'_, T>> {
        if self.line.waiting() > 0 {
            return None;
        }
        self.cell.try_write().map(|guard| self.alone(guard)).filter(|_| !self.line.is_broken())
    }

    /// Enters together with others, if no turn is inside alone and none waits.
    #[inline]
    pub(super) fn try_shared(&self) -> Option<Together<'_, T>> {
        if self.line.waiting() > 0 {
            return None;
        }
        self.cell.try_read().map(|guard| self.together(guard)).filter(|_| !self.line.is_broken())
    }

    /// Enters together with others, before all that wait, if no turn is inside alone.
    pub(super) fn try_past(&self) -> Option<Together<'_, T>> {
        self.cell.try_read().map(|guard| self.together(guard)).filter(|_| !self.line.is_broken())
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
            if self.line.waiting() > 0 || self.line.is_suspended() {
                return None;
            }
            std::hint::spin_loop();
            if let Some(lock) = enter(self) {
                return Some(lock);
            }
        }
        None
    }

    /// Waits in the queue to enter alone. `watch` is called when the queue's deadlines begin to
    /// matter to the silo.
    pub(super) const fn exclusive<W: Watch>(&self, asks: Asks, watch: W) -> Enter<'_, T, W, true> {
        Enter { gate: self, ticket: None, asks, watch }
    }

    /// Waits in the queue to enter together with others.
    pub(super) const fn shared<W: Watch>(&self, asks: Asks, watch: W) -> Enter<'_, T, W, false> {
        Enter { gate: self, ticket: None, asks, watch }
    }

    /// The turns that wait for a waiter here; see [`Line::waits`].
    pub(super) fn waits(&self, out: &mut Vec<Wait>) {
        self.line.waits(self.cell.is_locked_exclusive(), out);
    }

    /// Waits in the closer's place, which the caller has taken ([`Line::take_closer_place`],
    /// [`Line::take_mover_place`]), and says what for.
    pub(super) const fn closing(&self) -> Close<'_, T> {
        Close { gate: self }
    }
}

/// Callbacks of the queue: to the silo, and to the turn that the thread polls.
pub(super) trait Watch {
    /// The queue's deadlines begin to matter to the silo.
    fn watch(&mut self);

    /// The asker of the turn that this thread polls, if it is known.
    fn asker() -> Option<Arc<Asker>>;

    /// The turn that this thread polls waits for itself.
    fn doom(cycle: String);
}

/// A lock that can be tried for by kind of turn.
pub(super) trait Kind<'a, T: ?Sized> {
    type Lock;
    fn enter(gate: &'a Gate<T>) -> Option<Self::Lock>;
}

/// The wait for one's turn. Dropping it gives the place up.
pub(super) struct Enter<'a, T: ?Sized, W: Watch, const EXCLUSIVE: bool> {
    gate: &'a Gate<T>,
    ticket: Option<u64>,
    asks: Asks,
    watch: W,
}

impl<'a, T: ?Sized, W: Watch> Kind<'a, T> for Enter<'a, T, W, true> {
    type Lock = Alone<'a, T>;

    fn enter(gate: &'a Gate<T>) -> Option<Alone<'a, T>> {
        gate.cell.try_write().map(|guard| gate.alone(guard))
    }
}

impl<'a, T: ?Sized, W: Watch> Kind<'a, T> for Enter<'a, T, W, false> {
    type Lock = Together<'a, T>;

    fn enter(gate: &'a Gate<T>) -> Option<Together<'a, T>> {
        gate.cell.try_read().map(|guard| gate.together(guard))
    }
}

// Nothing in it is ever pinned.
impl<T: ?Sized, W: Watch, const EXCLUSIVE: bool> Unpin for Enter<'_, T, W, EXCLUSIVE> {}

impl<'a, T: ?Sized, W: Watch, const EXCLUSIVE: bool> Future for Enter<'a, T, W, EXCLUSIVE>
where
    Self: Kind<'a, T>,
{
    type Output = <Self as Kind<'a, T>>::Lock;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let line = &this.gate.line;
        let mut guard = line.queue();
        let queue = guard.open();
        // A place that was lost is taken again, at the end.
        let place = this.ticket.and_then(|ticket| queue.place_of(ticket));
        let at = place.unwrap_or_else(|| {
            this.ticket = Some(queue.push(EXCLUSIVE, this.asks));
            line.count(true);
            queue.waiters.len() - 1
        });
        let in_turn = at == 0 && !queue.closer_is_next(line.is_broken());
        if (in_turn || (this.asks.past && !line.is_broken()))
            && let Some(lock) = <Self as Kind<'a, T>>::enter(this.gate)
        {
            queue.remove(at);
            line.count(false);
            this.ticket = None;
            // Readers go in together: each one lets the next one in.
            let next_reads = in_turn
                && !line.is_departed()
                && queue.waiters.front().is_some_and(|next| !EXCLUSIVE && !next.exclusive);
            let beside = if next_reads { queue.call_next(line.is_broken()) } else { None };
            drop(guard);
            if let Some(beside) = beside {
                beside.wake();
            }
            return Poll::Ready(lock);
        }
        if let Some(waiter) = queue.waiters.get_mut(at) {
            if let Some(asking) = &mut waiter.asking {
                asking.asker = asking.asker.take().or_else(W::asker);
                if let Some(cycle) = asking.doom.take() {
                    // Its place goes with the turn.
                    W::doom(cycle);
                }
            }
            if !waiter.waker.as_ref().is_some_and(|old| old.will_wake(cx.waker())) {
                waiter.waker = Some(cx.waker().clone());
            }
        }
        // The mark is set only where the silo hears of it: a turn that goes in at once reports
        // nothing.
        let watch = queue.watch();
        drop(guard);
        if watch {
            this.watch.watch();
        }
        Poll::Pending
    }
}

impl<T: ?Sized, W: Watch, const EXCLUSIVE: bool> Drop for Enter<'_, T, W, EXCLUSIVE> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.gate.line.give_up(ticket);
        }
    }
}

/// The wait in the closer's place. Dropping it leaves the place taken: no further turn goes in.
pub(super) struct Close<'a, T: ?Sized> {
    gate: &'a Gate<T>,
}

impl<'a, T: ?Sized> Future for Close<'a, T> {
    type Output = (Alone<'a, T>, Purpose);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (gate, line) = (self.gate, &self.gate.line);
        let mut guard = line.queue();
        let queue = guard.open();
        if queue.closer_is_next(line.is_broken())
            && let Some(lock) = gate.cell.try_write()
            && let Some(closer) = queue.closer.take()
        {
            line.count(false);
            drop(guard);
            return Poll::Ready((gate.alone(lock), closer.purpose));
        }
        debug_assert!(queue.closer.is_some(), "the closer's place was taken first");
        if let Some(closer) = &mut queue.closer {
            closer.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

/// Tells the queue, after the lock before it in a struct was dropped.
pub(super) struct Leave<'a>(&'a Line);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.pass_on();
    }
}

impl<'a> Leave<'a> {
    /// Returns a guard that breaks the grain unless it is forgotten.
    pub(super) const fn half_way(&self) -> HalfWay<'a> {
        HalfWay(self.0)
    }
}

/// Breaks the grain when it is dropped: the turn that holds it has not ended.
pub(super) struct HalfWay<'a>(&'a Line);

impl Drop for HalfWay<'_> {
    fn drop(&mut self) {
        self.0.break_off(HALF_WAY);
    }
}

/// The lock of a turn alone, before its grain is known to be there.
pub(super) struct Alone<'a, T: ?Sized> {
    pub(super) guard: RwLockWriteGuard<'a, T>,
    pub(super) leave: Leave<'a>,
}

impl<'a, T: ?Sized> Alone<'a, T> {
    /// Lets other shared turns in.
    pub(super) fn downgrade(self) -> Together<'a, T> {
        let guard = RwLockWriteGuard::downgrade(self.guard);
        self.leave.0.pass_on();
        Together { guard, leave: self.leave }
    }
}

impl<T: ?Sized> Deref for Alone<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: ?Sized> DerefMut for Alone<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// The lock of a turn that shares the grain, before the grain is known to be there.
pub(super) struct Together<'a, T: ?Sized> {
    pub(super) guard: RwLockReadGuard<'a, T>,
    pub(super) leave: Leave<'a>,
}

impl<T: ?Sized> Deref for Together<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

#[cfg(test)]
mod tests;
