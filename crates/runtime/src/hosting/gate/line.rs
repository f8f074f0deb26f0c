//! The queue at the door of a grain.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::Waker;

use emmer_net::clock::CoarseInstant;
use emmer_net::world;
use parking_lot::{Mutex, MutexGuard};

use super::asks::{Asks, Who};
use crate::turn::{Asker, DeactivationReason};
use crate::waits::Wait;

/// Number of ticks of the silo's clock after which a called waiter that does not come has lost its
/// place: its caller keeps the call without polling it. A waiter that a task of the runtime polls
/// keeps its place, because other work holds its thread.
const MISSED_TICKS_MAX: u8 = 10;

/// The first ticket of each queue: a ticket of an earlier queue is never taken for one of a later
/// queue. None is 0, which stands for no ticket in searches.
static QUEUES: AtomicU64 = AtomicU64::new(1);

/// The mover's ticket: it is before all others.
const BEFORE_ALL: u64 = 0;

/// A queue gives out fewer tickets than this.
const TICKETS_PER_QUEUE: u64 = 1 << 32;

/// The waiting side of a gate, whatever the grain.
pub(crate) struct Line {
    /// Number of turns in the queue, the closer included.
    waiting: AtomicU32,
    /// The turn inside has suspended: no use in trying again at once.
    suspended: AtomicBool,
    /// A turn left the grain half way, or the state in memory is not the stored one: only the
    /// closer enters. Set under the lock of that turn, and under that of the queue. Never taken
    /// back.
    broken: AtomicBool,
    /// The grain is on another silo. Calls follow it one behind the other, also those that would
    /// share it. Never taken back.
    departed: AtomicBool,
    queue: Mutex<Option<Box<Queue>>>,
}

pub(super) struct Queue {
    next_ticket: u64,
    /// By rising ticket.
    pub(super) waiters: VecDeque<Waiter>,
    /// Turn that ends the activation.
    pub(super) closer: Option<Closer>,
    /// Number of waiters that go past the others.
    past: usize,
    /// True if the silo looks here at every tick.
    watched: bool,
}

pub(super) struct Waiter {
    pub(super) ticket: u64,
    pub(super) exclusive: bool,
    /// It goes in as soon as no turn is inside alone, before all that wait.
    pub(super) past: bool,
    pub(super) deadline: CoarseInstant,
    /// A task of the runtime polls it.
    driven: bool,
    /// None when it was called.
    pub(super) waker: Option<Waker>,
    /// For how many ticks it has not come.
    missed: u8,
    /// None for a call that no turn made.
    pub(super) asking: Option<Box<Asking>>,
}

/// A turn that waits for a waiter, and the details of the wait.
pub(super) struct Asking {
    who: Who,
    pub(super) asker: Option<Arc<Asker>>,
    /// The cycle that the waiter was found in: it goes without its turn.
    pub(super) doom: Option<String>,
}

impl Asking {
    /// Returns true if the turn still waits. A call of this silo that was given up has left the
    /// queue.
    fn stands(&self) -> bool {
        self.doom.is_none() && self.asker.as_ref().map_or(!self.who.remote, |asker| asker.waits())
    }
}

/// A call that waits, as operators see it.
pub(crate) struct Waiting {
    /// The turn that made the call, if one did.
    pub(crate) who: Option<Who>,
    /// True if the call wants the grain alone.
    pub(crate) exclusive: bool,
}

/// Reason why the closer goes in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To end the activation.
    End(DeactivationReason),
    /// To move the grain to another silo, or to bring it in.
    Move,
}

/// The place of the closer, which ends the activation or moves its grain: behind the present
/// waiters, or before all others to move it at once, and when the grain is broken.
pub(super) struct Closer {
    ticket: u64,
    pub(super) purpose: Purpose,
    pub(super) waker: Option<Waker>,
    /// True if the place is taken.
    taken: bool,
    /// Calls that follow their grain, in place of a closer.
    follows: Option<Follows>,
}

/// Number of ticks after which a call that a task of the runtime polls has lost its place before
/// later calls.
const FOLLOW_MISSED_MAX: u8 = 200;

/// Calls that follow a grain that is gone. Later calls wait until these are on their way.
struct Follows {
    number: u64,
    /// Number of calls: several if threads entered together while no call waited.
    calls: u32,
    /// Number of ticks for which they are not on their way.
    missed: u8,
    /// Number of ticks after which they have lost their place.
    missed_max: u8,
}

impl Closer {
    const fn new(ticket: u64, purpose: Purpose) -> Self {
        Self { ticket, purpose, waker: None, taken: false, follows: None }
    }
}

impl Queue {
    fn new() -> Self {
        let queue =
            world::number_of_host().unwrap_or_else(|| QUEUES.fetch_add(1, Ordering::Relaxed));
        let next_ticket = queue.wrapping_mul(TICKETS_PER_QUEUE);
        Self { next_ticket, waiters: VecDeque::new(), closer: None, past: 0, watched: false }
    }

    const fn ticket(&mut self) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        ticket
    }

    /// Takes a place at the end.
    pub(super) fn push(&mut self, exclusive: bool, asks: Asks) -> u64 {
        let (ticket, deadline) = (self.ticket(), asks.deadline);
        let asking = asks.who.map(|who| Box::new(Asking { who, asker: None, doom: None }));
        let Asks { past, driven, .. } = asks;
        self.past += usize::from(past);
        let waiter =
            Waiter { ticket, exclusive, past, deadline, driven, waker: None, missed: 0, asking };
        self.waiters.push_back(waiter);
        ticket
    }

    /// Takes out the waiter at this place.
    pub(super) fn remove(&mut self, at: usize) -> Option<Waiter> {
        let gone = self.waiters.remove(at)?;
        self.past -= usize::from(gone.past);
        Some(gone)
    }

    /// Calls those that go past the others.
    fn call_past(&mut self) -> Vec<Waker> {
        if self.past == 0 {
            return Vec::new();
        }
        self.waiters
            .iter_mut()
            .filter(|waiter| waiter.past)
            .filter_map(|waiter| waiter.waker.take())
            .collect()
    }

    /// Position of the waiter with this ticket.
    pub(super) fn place_of(&self, ticket: u64) -> Option<usize> {
        match self.waiters.front() {
            Some(first) if first.ticket == ticket => Some(0),
            _ => self.waiters.binary_search_by_key(&ticket, |waiter| waiter.ticket).ok(),
        }
    }

    /// Returns true if the closer is next.
    pub(super) fn closer_is_next(&self, broken: bool) -> bool {
        self.closer.as_ref().is_some_and(|closer| {
            broken || self.waiters.front().is_none_or(|first| first.ticket > closer.ticket)
        })
    }

    /// Calls the next waiter.
    pub(super) fn call_next(&mut self, broken: bool) -> Option<Waker> {
        if self.closer_is_next(broken) {
            self.closer.as_mut()?.waker.take()
        } else {
            self.waiters.front_mut()?.waker.take()
        }
    }

    /// Asks for a look at every tick; true when this is the first request.
    pub(super) const fn watch(&mut self) -> bool {
        !std::mem::replace(&mut self.watched, true)
    }

    /// Takes out who was called and has not come for too long; how many these are.
    fn drop_absent(&mut self) -> u32 {
        let before = self.waiters.len();
        let past = &mut self.past;
        self.waiters.retain_mut(|waiter| {
            waiter.missed =
                if waiter.waker.is_some() || waiter.driven { 0 } else { waiter.missed + 1 };
            let stays = waiter.missed < MISSED_TICKS_MAX;
            *past -= usize::from(waiter.past && !stays);
            stays
        });
        u32::try_from(before - self.waiters.len()).unwrap_or(u32::MAX)
    }
}

impl Line {
    pub(super) const fn new() -> Self {
        Self {
            waiting: AtomicU32::new(0),
            suspended: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            departed: AtomicBool::new(false),
            queue: Mutex::new(None),
        }
    }

    /// Number of turns that wait.
    #[inline]
    pub(crate) fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Number of turns in the queue without the closer, and without a call that follows the grain.
    #[cold]
    pub(crate) fn waiters(&self) -> usize {
        self.queue().get().map_or(0, |queue| queue.waiters.len())
    }

    /// Counts one more, or one less, that waits. Under the queue's lock.
    pub(super) fn count(&self, one_more: bool) {
        if one_more {
            self.waiting.fetch_add(1, Ordering::AcqRel);
        } else {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Notes whether the turn inside has suspended.
    pub(crate) fn set_suspended(&self, suspended: bool) {
        self.suspended.store(suspended, Ordering::Relaxed);
    }

    pub(crate) fn is_suspended(&self) -> bool {
        self.suspended.load(Ordering::Relaxed)
    }

    /// Returns true if only the closer may go in.
    #[inline]
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// Notes that calls follow the grain to another silo. Called under the grain's lock.
    pub(crate) fn set_departed(&self) {
        self.departed.store(true, Ordering::Release);
    }

    pub(super) fn is_departed(&self) -> bool {
        self.departed.load(Ordering::Acquire)
    }

    pub(super) fn queue(&self) -> QueueGuard<'_> {
        QueueGuard(self.queue.lock())
    }

    /// Lets in the closer alone. Called before the lock of the turn that broke the grain is given
    /// back.
    #[cold]
    pub(crate) fn break_off(&self, why: &str) {
        let mut guard = self.queue();
        self.broken.store(true, Ordering::Release);
        self.reserve(guard.open(), DeactivationReason::Broken(why.to_owned()));
    }

    /// Makes room for the closer. A closer of a broken grain gets that reason, whatever else ends
    /// the grain. One that was to move the grain ends it instead.
    fn reserve(&self, queue: &mut Queue, reason: DeactivationReason) {
        if let Some(closer) = &mut queue.closer {
            let is_broken = matches!(reason, DeactivationReason::Broken(_));
            if closer.follows.is_none() && (is_broken || closer.purpose == Purpose::Move) {
                closer.purpose = Purpose::End(reason);
            }
            return;
        }
        let ticket = queue.ticket();
        queue.closer = Some(Closer::new(ticket, Purpose::End(reason)));
        self.count(true);
    }

    /// Takes the closer's place to move the grain: before all that wait, or behind them. False when
    /// it is taken.
    pub(crate) fn take_mover_place(&self, before_all: bool) -> bool {
        let mut guard = self.queue();
        let queue = guard.open();
        if queue.closer.is_some() || self.is_broken() {
            return false;
        }
        let ticket = if before_all { BEFORE_ALL } else { queue.ticket() };
        queue.closer = Some(Closer { taken: true, ..Closer::new(ticket, Purpose::Move) });
        self.count(true);
        true
    }

    /// Takes the closer's place for a call that follows its grain. Called under the grain's lock,
    /// by the call. Returns the number of the place; none when it is taken. `driven`: a task of the
    /// runtime polls the call.
    pub(crate) fn take_follow_place(&self, driven: bool) -> Option<u64> {
        let mut guard = self.queue();
        let queue = guard.open();
        if let Some(closer) = &mut queue.closer {
            let follows = closer.follows.as_mut()?;
            follows.calls += 1;
            if !driven {
                follows.missed_max = MISSED_TICKS_MAX;
            }
            return Some(follows.number);
        }
        let number = queue.ticket();
        let missed_max = if driven { FOLLOW_MISSED_MAX } else { MISSED_TICKS_MAX };
        let follows = Some(Follows { number, calls: 1, missed: 0, missed_max });
        let closer = Closer::new(BEFORE_ALL, Purpose::Move);
        queue.closer = Some(Closer { taken: true, follows, ..closer });
        self.count(true);
        Some(number)
    }

    /// The call that follows its grain is on its way: the next one goes.
    pub(crate) fn give_follow_place_back(&self, number: u64) {
        let mut guard = self.queue();
        let Some(queue) = guard.get() else { return };
        let follows = queue.closer.as_mut().and_then(|closer| closer.follows.as_mut());
        let Some(follows) = follows.filter(|follows| follows.number == number) else { return };
        follows.calls -= 1;
        if follows.calls > 0 {
            return;
        }
        queue.closer = None;
        self.count(false);
        drop(guard);
        self.wake_next();
    }

    /// Gives the mover's place back; false when the grain is to be ended meanwhile, which the mover
    /// has to do.
    pub(crate) fn give_mover_place_back(&self) -> bool {
        let mut guard = self.queue();
        let queue = guard.open();
        if queue.closer.as_ref().is_some_and(|closer| matches!(closer.purpose, Purpose::End(_))) {
            return false;
        }
        if queue.closer.take().is_some() {
            self.count(false);
        }
        drop(guard);
        self.wake_next();
        true
    }

    /// Takes the closer's place; false when it is taken.
    pub(crate) fn take_closer_place(&self, reason: DeactivationReason) -> bool {
        let mut guard = self.queue();
        let queue = guard.open();
        if matches!(reason, DeactivationReason::Broken(_)) {
            self.broken.store(true, Ordering::Release);
        }
        self.reserve(queue, reason);
        queue.closer.as_mut().is_some_and(|closer| !std::mem::replace(&mut closer.taken, true))
    }

    /// Wakes the next one: a turn went out.
    #[inline]
    pub(super) fn pass_on(&self) {
        if self.waiting.fetch_add(0, Ordering::AcqRel) > 0 {
            self.wake_next();
        }
    }

    #[cold]
    fn wake_next(&self) {
        let mut guard = self.queue();
        let Some(queue) = guard.get() else { return };
        let next = queue.call_next(self.is_broken());
        let past = queue.call_past();
        drop(guard);
        next.into_iter().chain(past).for_each(Waker::wake);
    }

    /// A tick of the silo's clock. Wakes every waiter whose deadline has passed, and passes over
    /// waiters that do not come. Returns false when no turn waits and the silo need not look here
    /// again.
    pub(crate) fn tick(&self, now: CoarseInstant) -> bool {
        let mut guard = self.queue();
        let Some(queue) = guard.get() else { return false };
        let mut absent = queue.drop_absent();
        let follows = queue.closer.as_mut().and_then(|closer| closer.follows.as_mut());
        if let Some(follows) = follows {
            follows.missed += 1;
            if follows.missed >= follows.missed_max {
                queue.closer = None;
                absent += 1;
            }
        }
        self.waiting.fetch_sub(absent, Ordering::AcqRel);
        // After a waiter that did not come, all others are called: they are passed over together,
        // not one after the other.
        let asked = queue.waiters.iter_mut().filter(|waiter| absent > 0 || waiter.deadline <= now);
        let mut wake: Vec<Waker> = asked.filter_map(|waiter| waiter.waker.take()).collect();
        if absent > 0 {
            wake.extend(queue.call_next(self.is_broken()));
        }
        let watched = !queue.waiters.is_empty() || queue.closer.is_some();
        // The room of a burst is given back when it is over.
        let over = if watched { None } else { guard.0.take() };
        drop(guard);
        drop(over);
        wake.into_iter().for_each(Waker::wake);
        watched
    }

    /// The waiters that turns wait for, as far as the turns inside stand in their way: `alone`, or
    /// the turn of a waiter before them.
    pub(crate) fn waits(&self, alone: bool, out: &mut Vec<Wait>) {
        let mut guard = self.queue();
        let Some(queue) = guard.get() else { return };
        // A mover gives its place back when the turns inside do not end.
        let closer =
            queue.closer.as_ref().filter(|closer| matches!(closer.purpose, Purpose::End(_)));
        let mut writer_before = closer.is_some() && queue.closer_is_next(self.is_broken());
        for waiter in &queue.waiters {
            let closer = closer.is_some_and(|closer| closer.ticket < waiter.ticket);
            let held_up = alone || (!waiter.past && (waiter.exclusive || writer_before || closer));
            writer_before |= waiter.exclusive;
            // A turn that was called goes in, or gives its place up.
            if let Some(asking) = waiter.asking.as_ref().filter(|asking| asking.stands())
                && held_up
                && waiter.waker.is_some()
            {
                let Who { caller, since, suspect, .. } = asking.who;
                out.push(Wait { ticket: waiter.ticket, caller, since, suspect });
            }
        }
    }

    /// The first `max` calls that wait.
    pub(crate) fn callers(&self, max: usize) -> Vec<Waiting> {
        let mut guard = self.queue();
        let Some(queue) = guard.get() else { return Vec::new() };
        let caller = |waiter: &Waiter| {
            let who = waiter.asking.as_ref().map(|asking| asking.who);
            Waiting { who, exclusive: waiter.exclusive }
        };
        queue.waiters.iter().take(max).map(caller).collect()
    }

    /// Returns true if a turn that waits, or the closer, ends the activation.
    pub(crate) fn is_ending(&self) -> bool {
        let mut guard = self.queue();
        let closer = guard.get().and_then(|queue| queue.closer.as_ref());
        closer.is_some_and(|closer| matches!(closer.purpose, Purpose::End(_)))
    }

    /// Ends a wait that can never end by itself: the waiter gets the cycle. False when it is over
    /// already.
    pub(crate) fn doom(&self, ticket: u64, cycle: String) -> bool {
        let mut guard = self.queue();
        let Some(queue) = guard.get() else { return false };
        let at = queue.place_of(ticket);
        let Some(waiter) = at.and_then(|at| queue.waiters.get_mut(at)) else { return false };
        let Some(asking) = &mut waiter.asking else { return false };
        asking.doom = Some(cycle);
        let waker = waiter.waker.take();
        drop(guard);
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    /// Takes a waiter out of the queue; if it was the first, the next one is called.
    pub(super) fn give_up(&self, ticket: u64) {
        let mut guard = self.queue();
        let Some(queue) = guard.get() else { return };
        let Some(at) = queue.place_of(ticket) else { return };
        let gone = queue.remove(at);
        self.count(false);
        let next = if at == 0 { queue.call_next(self.is_broken()) } else { None };
        drop(guard);
        drop(gone);
        if let Some(next) = next {
            next.wake();
        }
    }
}

/// The queue, locked; made when it is first needed.
pub(super) struct QueueGuard<'a>(MutexGuard<'a, Option<Box<Queue>>>);

impl QueueGuard<'_> {
    pub(super) fn get(&mut self) -> Option<&mut Queue> {
        self.0.as_deref_mut()
    }

    pub(super) fn open(&mut self) -> &mut Queue {
        self.0.get_or_insert_with(|| Box::new(Queue::new()))
    }
}
