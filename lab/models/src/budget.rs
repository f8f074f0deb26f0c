//! Room for calls that all connections share.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

/// Planted bugs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bug {
    None,
    /// It looks before it takes.
    LooksFirst,
    /// A caller that finds no room keeps the sum that it had added.
    KeepsWhatItHadNot,
}

struct Budget {
    bug: Bug,
    taken: AtomicUsize,
    /// Number of callers that have room now, and the most that ever had.
    inside: AtomicUsize,
}

/// One step of room.
const MAX: usize = 1;

impl Budget {
    fn take(&self) -> bool {
        if self.bug == Bug::LooksFirst {
            let fits = self.taken.load(Ordering::Relaxed) < MAX;
            if fits {
                self.taken.fetch_add(1, Ordering::Relaxed);
            }
            return fits;
        }
        let fits = self.taken.fetch_add(1, Ordering::Relaxed) < MAX;
        if !fits && self.bug != Bug::KeepsWhatItHadNot {
            self.taken.fetch_sub(1, Ordering::Relaxed);
        }
        fits
    }

    fn call(&self) {
        if self.take() {
            let before = self.inside.fetch_add(1, Ordering::Relaxed);
            assert!(before < MAX, "more room was given than there is");
            self.inside.fetch_sub(1, Ordering::Relaxed);
            self.taken.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn the_limit_holds(bug: Bug) {
    loom::model(move || {
        let (taken, inside) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let budget = Arc::new(Budget { bug, taken, inside });
        let others: Vec<_> = (0..2)
            .map(|_| {
                let budget = budget.clone();
                thread::spawn(move || budget.call())
            })
            .collect();
        others.into_iter().for_each(|other| other.join().unwrap());
        assert!(budget.take(), "room was lost");
    });
}

#[test]
fn the_limit_holds_and_all_room_comes_back() {
    the_limit_holds(Bug::None);
}

#[test]
#[should_panic(expected = "more room was given than there is")]
fn a_look_before_the_step_is_found() {
    the_limit_holds(Bug::LooksFirst);
}

#[test]
#[should_panic(expected = "room was lost")]
fn room_that_nobody_gives_back_is_found() {
    the_limit_holds(Bug::KeepsWhatItHadNot);
}
