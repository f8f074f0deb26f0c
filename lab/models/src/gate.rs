//! The door to a grain: a lock that is only tried, a count of waiters, and a queue.
//!
//! A turn that has to wait leaves its thread, as a task does that is pending; the thread that wakes
//! it polls it. When all threads are done, a turn that is still in the queue will sleep for good.

use std::collections::VecDeque;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// Planted bugs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bug {
    None,
    /// A leaver looks at the count by a plain load.
    LeaverOnlyLooks,
    /// A leaver looks at the count before it unlocks.
    LeaverLooksFirst,
    /// A waiter counts itself after its last try.
    WaiterTriesFirst,
    /// The lock is given back without a release.
    RelaxedUnlock,
    /// No waiter is woken.
    NobodyIsWoken,
}

struct Waiter {
    ticket: u32,
    has_waker: bool,
}

#[derive(Default)]
struct Queue {
    next: u32,
    waiters: VecDeque<Waiter>,
}

struct Gate {
    bug: Bug,
    /// The lock of exclusive turns.
    locked: AtomicBool,
    waiting: AtomicU32,
    queue: Mutex<Queue>,
    /// Loom sees two threads in it at once.
    grain: UnsafeCell<u32>,
}

impl Gate {
    fn new(bug: Bug) -> Self {
        Self {
            bug,
            locked: AtomicBool::new(false),
            waiting: AtomicU32::new(0),
            queue: Mutex::default(),
            grain: UnsafeCell::new(0),
        }
    }

    fn try_lock(&self) -> bool {
        self.locked.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// One poll of a waiter; true when it is inside.
    fn poll(&self, ticket: &mut Option<u32>) -> bool {
        let mut queue = self.queue.lock().unwrap();
        let is_new = ticket.is_none();
        let mine = *ticket.get_or_insert_with(|| {
            queue.next += 1;
            let ticket = queue.next;
            queue.waiters.push_back(Waiter { ticket, has_waker: false });
            ticket
        });
        if is_new && self.bug != Bug::WaiterTriesFirst {
            self.waiting.fetch_add(1, Ordering::AcqRel);
        }
        let at = queue.waiters.iter().position(|waiter| waiter.ticket == mine).unwrap();
        let is_inside = at == 0 && self.try_lock();
        if is_new && self.bug == Bug::WaiterTriesFirst {
            self.waiting.fetch_add(1, Ordering::AcqRel);
        }
        if is_inside {
            queue.waiters.pop_front();
            self.waiting.fetch_sub(1, Ordering::AcqRel);
        } else {
            queue.waiters[at].has_waker = true;
        }
        is_inside
    }

    /// Gives the lock back; the waiter to be polled next.
    fn leave(&self) -> Option<u32> {
        let seen = (self.bug == Bug::LeaverLooksFirst)
            .then(|| self.waiting.fetch_add(0, Ordering::AcqRel));
        let unlock =
            if self.bug == Bug::RelaxedUnlock { Ordering::Relaxed } else { Ordering::Release };
        self.locked.store(false, unlock);
        let waiting = match (self.bug, seen) {
            (Bug::NobodyIsWoken, _) => 0,
            (Bug::LeaverOnlyLooks, _) => self.waiting.load(Ordering::Relaxed),
            (_, Some(seen)) => seen,
            _ => self.waiting.fetch_add(0, Ordering::AcqRel),
        };
        if waiting == 0 {
            return None;
        }
        let mut queue = self.queue.lock().unwrap();
        let first = queue.waiters.front_mut()?;
        std::mem::replace(&mut first.has_waker, false).then_some(first.ticket)
    }

    /// A turn alone, and those that are woken by its end.
    fn turn(&self) {
        let mut ticket = None;
        let mut is_inside = self.waiting.load(Ordering::Relaxed) == 0 && self.try_lock();
        loop {
            if !is_inside && !self.poll(&mut ticket) {
                return;
            }
            self.grain.with_mut(|_| ());
            ticket = self.leave();
            if ticket.is_none() {
                return;
            }
            is_inside = false;
        }
    }
}

/// Turns of three threads on one grain.
fn everybody_has_a_turn(bug: Bug) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let gate = Arc::new(Gate::new(bug));
        let others: Vec<_> = (0..2)
            .map(|_| {
                let gate = gate.clone();
                thread::spawn(move || gate.turn())
            })
            .collect();
        gate.turn();
        others.into_iter().for_each(|other| other.join().unwrap());
        assert!(gate.queue.lock().unwrap().waiters.is_empty(), "a turn sleeps for ever");
        assert_eq!(gate.waiting.load(Ordering::Relaxed), 0, "somebody is still counted");
    });
}

#[test]
fn nobody_sleeps_for_ever_and_turns_are_alone() {
    everybody_has_a_turn(Bug::None);
}

#[test]
#[should_panic(expected = "a turn sleeps for ever")]
fn a_leaver_that_only_looks_is_found() {
    everybody_has_a_turn(Bug::LeaverOnlyLooks);
}

#[test]
#[should_panic(expected = "a turn sleeps for ever")]
fn a_leaver_that_looks_first_is_found() {
    everybody_has_a_turn(Bug::LeaverLooksFirst);
}

#[test]
#[should_panic(expected = "a turn sleeps for ever")]
fn a_waiter_that_tries_before_it_counts_is_found() {
    everybody_has_a_turn(Bug::WaiterTriesFirst);
}

#[test]
#[should_panic(expected = "a turn sleeps for ever")]
fn a_leaver_that_wakes_nobody_is_found() {
    everybody_has_a_turn(Bug::NobodyIsWoken);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_lock_given_back_without_a_release_is_found() {
    everybody_has_a_turn(Bug::RelaxedUnlock);
}
