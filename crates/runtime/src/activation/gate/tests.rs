//! Who goes in, in which order, and that nobody is forgotten outside.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::*;

const LATE: CoarseInstant = CoarseInstant::LAST;

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn turns_enter_in_the_order_they_came_readers_together() {
    let gate = Gate::new(Some(0));
    let inside = gate.try_exclusive().unwrap();
    let mut readers: Vec<_> = (0..2).map(|_| gate.shared(LATE, || {})).collect();
    let mut writer = gate.exclusive(LATE, || {});
    let mut last = gate.shared(LATE, || {});
    assert!(readers.iter_mut().all(|r| poll(r).is_pending()));
    assert!(poll(&mut writer).is_pending() && poll(&mut last).is_pending());
    assert_eq!(gate.line().waiting(), 4);
    drop(inside);
    assert!(poll(&mut writer).is_pending(), "readers came first");
    assert!(gate.try_shared().is_none(), "nobody goes past the queue");
    let together: Vec<_> = readers.iter_mut().map(poll).collect();
    assert!(together.iter().all(Poll::is_ready) && poll(&mut writer).is_pending());
    drop(together);
    let alone = poll(&mut writer);
    assert!(alone.is_ready() && poll(&mut last).is_pending());
    drop(alone);
    assert!(poll(&mut last).is_ready());
    assert_eq!(gate.line().waiting(), 0);
}

#[test]
fn who_gives_up_lets_the_next_one_in() {
    let gate = Gate::new(Some(0));
    let inside = gate.try_exclusive().unwrap();
    let (mut first, mut second) = (gate.exclusive(LATE, || {}), gate.exclusive(LATE, || {}));
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
    drop(inside);
    drop(first);
    assert!(poll(&mut second).is_ready());
}

#[test]
fn the_silo_is_told_once_to_look_at_deadlines_and_may_stop_when_nobody_waits() {
    let gate = Gate::new(Some(0));
    let inside = gate.try_exclusive().unwrap();
    let told = AtomicU64::new(0);
    let tell = || {
        told.fetch_add(1, Ordering::Relaxed);
    };
    let soon = CoarseInstant::from_millis(5);
    let mut waiters: Vec<_> = (0..3).map(|_| gate.exclusive(soon, tell)).collect();
    waiters.iter_mut().for_each(|w| assert!(poll(w).is_pending()));
    assert_eq!(told.load(Ordering::Relaxed), 1);
    assert!(gate.line().wake_overdue(soon));
    waiters.clear();
    assert!(!gate.line().wake_overdue(soon));
    assert!(poll(&mut gate.exclusive(soon, tell)).is_pending());
    assert_eq!(told.load(Ordering::Relaxed), 2);
    drop(inside);
}

#[test]
fn no_turn_is_lost_and_none_runs_beside_another() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
    let gate = Arc::new(Gate::new(Some(0u64)));
    let tasks: Vec<_> = (0..32)
        .map(|i| {
            let gate = gate.clone();
            runtime.spawn(async move {
                for n in 0..2_000 {
                    if (i + n) % 5 == 0 {
                        let lock = match gate.try_shared() {
                            Some(lock) => lock,
                            None => gate.shared(LATE, || {}).await,
                        };
                        drop(lock);
                    } else {
                        let mut lock = match gate.try_exclusive() {
                            Some(lock) => lock,
                            None => gate.exclusive(LATE, || {}).await,
                        };
                        let held = lock.take().unwrap_or_default();
                        if n % 64 == 0 {
                            tokio::task::yield_now().await;
                        }
                        *lock = Some(held + 1);
                    }
                }
            })
        })
        .collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert_eq!(*gate.try_exclusive().unwrap(), Some(32 * 2_000 * 4 / 5));
}
