//! Wakes that wait for the end of a turn's poll. A turn that sends many values wakes each reader
//! once for all of them, and not once for each.

use std::cell::RefCell;
use std::task::Waker;

use crate::turn::contain;

/// As many readers may wait for one poll. Then they are woken.
const WAITING_MAX: usize = 256;

thread_local! {
    static WAITING: RefCell<Vec<Waker>> = const { RefCell::new(Vec::new()) };
}

/// Adds one. [`wake_all`] follows at the end of the poll.
pub(super) fn wait(waker: Waker) {
    let waiting = WAITING.with_borrow_mut(|waiting| {
        waiting.push(waker);
        waiting.len()
    });
    if waiting >= WAITING_MAX {
        wake_all();
    }
}

/// Wakes all that wait on this thread.
#[cold]
pub(crate) fn wake_all() {
    let waiting = WAITING.take();
    for waker in waiting {
        // It is any executor's.
        let _ = contain(|| waker.wake());
    }
}
