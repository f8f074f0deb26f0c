//! Cells that only their owner writes, without a locked instruction.

use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// Planted bugs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bug {
    None,
    /// A thread counts once more when its number belongs to another.
    CountsAfterItsEnd,
    /// Threads without a number add as owners do.
    SharedAsOwned,
    /// Numbers are taken and given back by a relaxed flag in place of a lock.
    NumbersWithoutLock,
}

/// One number, its cell, and the cell of all threads without one.
struct Counter {
    bug: Bug,
    taken: Mutex<bool>,
    flag: AtomicBool,
    owned: AtomicU64,
    shared: AtomicU64,
}

impl Counter {
    fn take(&self) -> bool {
        if self.bug == Bug::NumbersWithoutLock {
            return !self.flag.swap(true, Ordering::Relaxed);
        }
        !std::mem::replace(&mut *self.taken.lock().unwrap(), true)
    }

    fn give_back(&self) {
        if self.bug == Bug::NumbersWithoutLock {
            self.flag.store(false, Ordering::Relaxed);
        } else {
            *self.taken.lock().unwrap() = false;
        }
    }

    fn add(&self, owns: bool) {
        let cell = if owns { &self.owned } else { &self.shared };
        if owns || self.bug == Bug::SharedAsOwned {
            let held = cell.load(Ordering::Relaxed);
            cell.store(held + 1, Ordering::Relaxed);
        } else {
            cell.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A thread that lives for two calls.
    fn live(&self) {
        let owns = self.take();
        self.add(owns);
        if owns && self.bug == Bug::CountsAfterItsEnd {
            self.give_back();
            self.add(owns);
            return;
        }
        self.add(owns);
        if owns {
            self.give_back();
        }
    }
}

/// Three threads and one number: it goes from one to the next, and some have none.
fn nothing_is_lost(bug: Bug) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let counter = Arc::new(Counter {
            bug,
            taken: Mutex::new(false),
            flag: AtomicBool::new(false),
            owned: AtomicU64::new(0),
            shared: AtomicU64::new(0),
        });
        let others: Vec<_> = (0..2)
            .map(|_| {
                let counter = counter.clone();
                thread::spawn(move || counter.live())
            })
            .collect();
        counter.live();
        others.into_iter().for_each(|other| other.join().unwrap());
        let sum = counter.owned.load(Ordering::Relaxed) + counter.shared.load(Ordering::Relaxed);
        assert_eq!(sum, 6, "a count was lost");
    });
}

#[test]
fn no_count_is_lost() {
    nothing_is_lost(Bug::None);
}

#[test]
#[should_panic(expected = "a count was lost")]
fn a_count_after_the_end_is_found() {
    nothing_is_lost(Bug::CountsAfterItsEnd);
}

#[test]
#[should_panic(expected = "a count was lost")]
fn a_shared_cell_that_is_written_as_an_owned_one_is_found() {
    nothing_is_lost(Bug::SharedAsOwned);
}

#[test]
#[should_panic(expected = "a count was lost")]
fn numbers_without_a_lock_are_found() {
    nothing_is_lost(Bug::NumbersWithoutLock);
}
