//! The times when turns may run: the fence as the membership machine sets it, and its end.
//!
//! The hot path compares one number with the clock. Everything that opens or closes the fence works
//! that number out under one lock, so that nothing opens a fence that was shut for good.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;

use emmer_core::Instant;
use emmer_net::clock::{COARSE_LAG, Clock, CoarseInstant};
use emmer_net::warn_seldom;
use emmer_net::world::Watched;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::metrics::threads;

/// Number of lists over which turns that wait for the silo's end are spread, so that threads seldom
/// meet at one.
const LISTS: usize = 16;

/// The silo has ended, or no longer lets turns run: every turn that waited for the fence is to be
/// dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shut;

/// The fence of one silo.
pub(crate) struct Fence {
    /// Turns may run while the clock shows less, in milliseconds.
    open_until: AtomicU64,
    state: Mutex<State>,
    /// Number of changes after which waiting turns look again.
    changed: Watched<u64>,
    /// Fires when the fence is shut for good; by thread.
    shut: [CancellationToken; LISTS],
    /// True if the log was told that the right to run turns has lapsed.
    lapse_noted: AtomicBool,
    /// Number of calls and turns that wait until turns may run.
    waiting: AtomicUsize,
}

#[derive(Debug)]
struct State {
    /// The machine says so.
    closed: bool,
    /// For good.
    shut: bool,
    /// Time at which the fence closes by itself, in milliseconds of the clock.
    closes_at: u64,
}

impl Default for Fence {
    fn default() -> Self {
        Self {
            open_until: AtomicU64::new(u64::MAX),
            state: Mutex::new(State { closed: false, shut: false, closes_at: u64::MAX }),
            changed: Watched::new(0),
            shut: std::array::from_fn(|_| CancellationToken::new()),
            lapse_noted: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
        }
    }
}

impl Fence {
    /// Returns true if no turn may begin or continue: the machine says so, or its last confirmation
    /// is too old by the clock, which was read just now. So a process that stood still stops its
    /// turns before its membership task has run.
    #[inline]
    pub(crate) fn is_closed_at(&self, now: CoarseInstant) -> bool {
        now.as_millis() >= self.open_until.load(Ordering::Acquire)
    }

    /// Returns true if no turn will ever run again.
    pub(crate) fn is_shut(&self) -> bool {
        self.state.lock().shut
    }

    /// The machine opens or closes the fence.
    pub(crate) fn set_closed(&self, closed: bool) {
        self.change(|state| state.closed = closed);
    }

    /// Sets the time until which turns may run without a further confirmation.
    pub(crate) fn set_deadline(&self, at: Option<Instant>) {
        let millis = at.map_or(u64::MAX, |at| (at - COARSE_LAG).as_nanos() / 1_000_000);
        self.change(|state| state.closes_at = millis);
    }

    /// Closes the fence for good. Turns that are suspended are dropped; one that is being polled
    /// right now runs to its next wait.
    pub(crate) fn shut(&self) {
        self.change(|state| state.shut = true);
        self.shut.iter().for_each(CancellationToken::cancel);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        change(&mut state);
        let open_until = if state.closed || state.shut { 0 } else { state.closes_at };
        self.open_until.store(open_until, Ordering::Release);
        drop(state);
        self.lapse_noted.store(false, Ordering::Relaxed);
        self.changed.change(|changes| *changes += 1);
    }

    /// Returns true if the right to run turns has lapsed by the clock alone, and no task has heard
    /// of it yet.
    fn lapsed_unnoted(&self) -> bool {
        let state = self.state.lock();
        !state.closed && !state.shut && !self.lapse_noted.swap(true, Ordering::Relaxed)
    }

    /// Returns true if something waits until turns may run.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Waits until turns may run.
    ///
    /// # Errors
    /// [`Shut`] when they never will.
    pub(crate) async fn opened(&self, clock: &Clock) -> Result<(), Shut> {
        if !self.is_closed_at(clock.now()) {
            return Ok(());
        }
        if self.lapsed_unnoted() {
            warn_seldom!(
                "the right to run turns has lapsed: this process was paused, or is too \
                busy to hear the others; waiting for a confirmation"
            );
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waits = Waits(&self.waiting);
        let looked = |_: &u64| match (self.is_closed_at(clock.now()), self.is_shut()) {
            (false, _) => Some(Ok(())),
            (true, true) => Some(Err(Shut)),
            (true, false) => None,
        };
        self.changed.until(looked).await
    }

    /// Drives `work` to its end, unless the fence is shut first: then it is dropped.
    pub(crate) async fn unless_shut<T>(&self, work: impl Future<Output = T>) -> Result<T, Shut> {
        let list = &self.shut[threads::current() % LISTS];
        tokio::select! {
            biased;
            () = list.cancelled() => Err(Shut),
            done = work => Ok(done),
        }
    }

    /// Drives `work` to its end, polling it only while the fence is open. For user code outside of
    /// turns.
    pub(crate) async fn guard<T>(
        &self,
        clock: &Clock,
        work: impl Future<Output = T>,
    ) -> Result<T, Shut> {
        let mut work = pin!(work);
        let guarded = async {
            loop {
                self.opened(clock).await?;
                // One poll, then another look: a future that is pending is left to the next one.
                let polled = std::future::poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await;
                match polled {
                    Poll::Ready(done) => return Ok(done),
                    Poll::Pending => once_woken().await,
                }
            }
        };
        self.unless_shut(guarded).await?
    }
}

/// Count of one call or turn that waits until turns may run.
struct Waits<'a>(&'a AtomicUsize);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Is pending once: whatever has just been polled wakes the task.
async fn once_woken() {
    let mut before = true;
    std::future::poll_fn(|_| {
        if std::mem::replace(&mut before, false) { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::{Context, Waker};

    use super::*;

    fn poll<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_fence_that_was_shut_is_never_opened_again() {
        let (fence, clock) = (Fence::default(), Clock::new());
        assert!(!fence.is_closed_at(clock.now()));
        fence.set_closed(true);
        assert!(fence.is_closed_at(clock.now()));
        fence.set_closed(false);
        assert!(!fence.is_closed_at(clock.now()));
        fence.shut();
        fence.set_closed(false);
        fence.set_deadline(None);
        assert!(fence.is_closed_at(clock.now()) && fence.is_shut());
    }

    #[test]
    fn a_fence_closes_by_the_clock() {
        let (fence, at) = (Fence::default(), CoarseInstant::from_millis);
        fence.set_deadline(Some(Instant::from_millis(1_000)));
        let last = 1_000 - u64::try_from(COARSE_LAG.as_millis()).unwrap();
        assert!(!fence.is_closed_at(at(last - 1)));
        assert!(fence.is_closed_at(at(last)));
    }

    #[test]
    fn guarded_work_is_polled_only_while_the_fence_is_open() {
        let (fence, clock) = (Fence::default(), Clock::new());
        let polls = std::cell::Cell::new(0);
        let work = poll_fn(|_| {
            polls.set(polls.get() + 1);
            if polls.get() == 3 { Poll::Ready(7) } else { Poll::Pending }
        });
        let mut guarded = std::pin::pin!(fence.guard(&clock, work));
        assert!(poll(guarded.as_mut()).is_pending());
        assert_eq!(polls.get(), 1);
        fence.set_closed(true);
        assert!(poll(guarded.as_mut()).is_pending() && poll(guarded.as_mut()).is_pending());
        assert_eq!(polls.get(), 1);
        fence.set_closed(false);
        assert!(poll(guarded.as_mut()).is_pending());
        assert_eq!(poll(guarded.as_mut()), Poll::Ready(Ok(7)));
        let mut never = std::pin::pin!(fence.guard(&clock, std::future::pending::<()>()));
        assert!(poll(never.as_mut()).is_pending());
        fence.shut();
        assert_eq!(poll(never), Poll::Ready(Err(Shut)));
    }
}
