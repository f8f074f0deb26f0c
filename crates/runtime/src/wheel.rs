//! The wheel of a silo: everything that waits for a moment, in one order. It has timers of grains,
//! due times of reminders, the rounds that look for passed deadlines, and those that look for idle
//! activations. One task sleeps until the first of them.
//!
//! It is an ordered map. The clocks of `tokio-util`'s `DelayQueue` and of tokio's own wheel stand
//! still while the machine sleeps; the silo's does not. In and out of the map take 50 to 170 ns, of
//! a `DelayQueue` 110 ns (example `reminders` of `emmer-benches`). An entry for each call would
//! cost as much as a whole local call, and nearly all calls end long before their deadline. So a
//! round looks at waiting calls instead.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use emmer_core::Instant;
use emmer_net::clock::Clock;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Maximum entries whose time has come that are taken at once: meanwhile nothing can be put in.
const BATCH: usize = 256;

/// Something to be done when its time has come.
pub(crate) trait Due: Send + Sync {
    /// Its time has come. It must not wait.
    fn fire(self: Arc<Self>);
}

/// A place in the order of due times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    at: Instant,
    number: u64,
}

#[derive(Default)]
struct Entries {
    by_time: BTreeMap<Place, Arc<dyn Due>>,
    last: u64,
}

/// The order of due times of one silo.
pub(crate) struct Wheel {
    clock: Clock,
    entries: Mutex<Entries>,
    /// Something is due sooner than before.
    sooner: Notify,
}

impl Wheel {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, entries: Mutex::default(), sooner: Notify::new() }
    }

    /// Fires `due` at `at`.
    pub(crate) fn put(&self, at: Instant, due: Arc<dyn Due>) -> Place {
        let mut entries = self.entries.lock();
        entries.last += 1;
        let place = Place { at, number: entries.last };
        let is_first = entries.by_time.first_key_value().is_none_or(|(first, _)| place < *first);
        entries.by_time.insert(place, due);
        drop(entries);
        if is_first {
            self.sooner.notify_one();
        }
        place
    }

    /// Takes out the entry at this place, if it was not fired yet.
    pub(crate) fn take(&self, place: Place) {
        let taken = self.entries.lock().by_time.remove(&place);
        // It may hold much, which is dropped without the lock.
        drop(taken);
    }

    /// Waits until this moment; without one it never ends.
    pub(crate) async fn sleep_until(&self, at: Option<Instant>) {
        let Some(at) = at else { return std::future::pending().await };
        Sleep { wheel: self, at, sleeper: None }.await;
    }

    /// Waits for as long.
    pub(crate) async fn sleep(&self, time: Duration) {
        self.sleep_until(Some(self.clock.mono() + time)).await;
    }

    /// Fires due entries; never ends.
    pub(crate) async fn drive(&self) {
        loop {
            let due = self.entries.lock().by_time.first_key_value().map(|(first, _)| first.at);
            tokio::select! {
                biased;
                () = self.sooner.notified() => {}
                () = self.clock.sleep_until(due) => {
                    for due in self.due(self.clock.mono()) {
                        due.fire();
                    }
                    // Others on this thread may run, however much is due.
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    fn due(&self, now: Instant) -> Vec<Arc<dyn Due>> {
        let mut entries = self.entries.lock();
        let mut due = Vec::new();
        while due.len() < BATCH
            && let Some(first) = entries.by_time.first_entry().filter(|e| e.key().at <= now)
        {
            due.push(first.remove());
        }
        due
    }
}

/// A task that waits for a moment.
struct Sleep<'a> {
    wheel: &'a Wheel,
    at: Instant,
    /// Its place in the wheel, once it was polled.
    sleeper: Option<(Place, Arc<Sleeper>)>,
}

/// The entry of such a task: none once it was fired.
struct Sleeper(Mutex<Option<Waker>>);

impl Due for Sleeper {
    fn fire(self: Arc<Self>) {
        let waker = self.0.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if let Some((_, sleeper)) = &self.sleeper {
            return match &mut *sleeper.0.lock() {
                None => Poll::Ready(()),
                Some(waker) => {
                    waker.clone_from(cx.waker());
                    Poll::Pending
                }
            };
        }
        if self.at <= self.wheel.clock.mono() {
            return Poll::Ready(());
        }
        let sleeper = Arc::new(Sleeper(Mutex::new(Some(cx.waker().clone()))));
        let place = self.wheel.put(self.at, sleeper.clone());
        self.sleeper = Some((place, sleeper));
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if let Some((place, _)) = self.sleeper {
            self.wheel.take(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Note(u64, Arc<Mutex<Vec<u64>>>);

    impl Due for Note {
        fn fire(self: Arc<Self>) {
            self.1.lock().push(self.0);
        }
    }

    #[test]
    fn what_is_due_comes_in_order_and_what_was_taken_out_does_not() {
        let (wheel, fired) = (Wheel::new(Clock::new()), Arc::default());
        let put = |secs, name| {
            let at = Instant::ZERO + Duration::from_secs(secs);
            wheel.put(at, Arc::new(Note(name, Arc::clone(&fired))))
        };
        let [_, stopped, ..] = [put(3, 30), put(2, 20), put(1, 10), put(2, 21)];
        wheel.take(stopped);
        let now = |secs| Instant::ZERO + Duration::from_secs(secs);
        wheel.due(now(2)).into_iter().for_each(Due::fire);
        assert_eq!(*fired.lock(), [10, 21]);
        wheel.due(now(100)).into_iter().for_each(Due::fire);
        assert_eq!(*fired.lock(), [10, 21, 30]);
        assert!(wheel.entries.lock().by_time.is_empty());
    }

    #[tokio::test]
    async fn a_sleep_ends_when_it_is_fired_and_leaves_nothing_when_it_is_dropped() {
        let wheel = Wheel::new(Clock::new());
        let far = Instant::ZERO + Duration::from_secs(9_000);
        let mut sleep = Box::pin(wheel.sleep_until(Some(far)));
        let mut dropped = Box::pin(wheel.sleep_until(Some(far)));
        assert!(futures_now(&mut sleep).await.is_pending());
        assert!(futures_now(&mut dropped).await.is_pending());
        drop(dropped);
        assert_eq!(wheel.entries.lock().by_time.len(), 1);
        wheel.due(far).into_iter().for_each(Due::fire);
        assert!(futures_now(&mut sleep).await.is_ready());
        wheel.sleep_until(Some(Instant::ZERO)).await;
    }

    /// Polls a future once.
    async fn futures_now(future: &mut (impl Future<Output = ()> + Unpin)) -> Poll<()> {
        std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx))).await
    }
}
