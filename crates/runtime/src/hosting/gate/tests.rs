//! Turns go in in the right order, and none is forgotten outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use emmer_net::clock::CoarseInstant;
use emmer_store::BoxFuture;

use super::*;
use crate::cluster::moves::Fields;
use crate::hosting::Activation;
use crate::hosting::activation::{AnyGrain, Home, Life};
use crate::turn::{ActivationError, DeactivationReason, StateError};

impl<F: FnMut()> Watch for F {
    fn watch(&mut self) {
        self();
    }

    fn asker() -> Option<Arc<Asker>> {
        None
    }

    fn doom(_: String) {}
}

const LATE: CoarseInstant = CoarseInstant::LAST;

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn turns_enter_in_the_order_they_came_readers_together() {
    let gate = Gate::new(Some(0));
    let inside = gate.try_exclusive().unwrap();
    let mut readers: Vec<_> = (0..2).map(|_| gate.shared(Asks::until(LATE), || {})).collect();
    let mut writer = gate.exclusive(Asks::until(LATE), || {});
    let mut last = gate.shared(Asks::until(LATE), || {});
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
    let (mut first, mut second) =
        (gate.exclusive(Asks::until(LATE), || {}), gate.exclusive(Asks::until(LATE), || {}));
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
    let mut waiters: Vec<_> = (0..3).map(|_| gate.exclusive(Asks::until(soon), tell)).collect();
    waiters.iter_mut().for_each(|w| assert!(poll(w).is_pending()));
    assert_eq!(told.load(Ordering::Relaxed), 1);
    assert!(gate.line().tick(soon));
    waiters.clear();
    assert!(!gate.line().tick(soon));
    assert!(poll(&mut gate.exclusive(Asks::until(soon), tell)).is_pending());
    assert_eq!(told.load(Ordering::Relaxed), 2);
    drop(inside);
}

/// A call that goes in at once does not tell the silo to look; the next call that waits does.
#[test]
fn a_queue_with_a_waiter_is_watched_whoever_went_in_at_once_before() {
    let gate = Gate::new(Some(0));
    let told = AtomicU64::new(0);
    let tell = || {
        told.fetch_add(1, Ordering::Relaxed);
    };
    let soon = CoarseInstant::from_millis(5);
    let inside = poll(&mut gate.exclusive(Asks::until(soon), tell));
    assert!(inside.is_ready());
    assert_eq!(told.load(Ordering::Relaxed), 0);
    let mut waits = gate.exclusive(Asks::until(soon), tell);
    assert!(poll(&mut waits).is_pending());
    assert_eq!(told.load(Ordering::Relaxed), 1, "nobody looks at its deadline");
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
                            None => gate.shared(Asks::until(LATE), || {}).await,
                        };
                        drop(lock);
                    } else {
                        let mut lock = match gate.try_exclusive() {
                            Some(lock) => lock,
                            None => gate.exclusive(Asks::until(LATE), || {}).await,
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

#[test]
fn the_closer_goes_behind_those_that_wait_and_before_them_when_the_grain_is_broken() {
    for broken in [false, true] {
        let gate: Box<Gate<Home>> = Box::new(Gate::new(Home { life: Life::Active, room: still() }));
        let inside = gate.try_shared().unwrap();
        let mut waits = gate.exclusive(Asks::until(LATE), || {});
        assert!(poll(&mut waits).is_pending());
        assert!(gate.line().take_closer_place(DeactivationReason::Requested));
        assert!(!gate.line().take_closer_place(DeactivationReason::Idle), "it has one closer");
        if broken {
            drop(inside.grain().unwrap_or_else(|_| panic!("it is there")));
        } else {
            inside.grain().unwrap_or_else(|_| panic!("it is there")).done();
        }
        assert!(gate.try_shared().is_none() && gate.try_exclusive().is_none());
        let mut closer = gate.closing();
        if broken {
            assert!(poll(&mut waits).is_pending());
            let Poll::Ready((lock, reason)) = poll(&mut closer) else {
                panic!("the closer goes first")
            };
            assert_eq!(reason, Purpose::End(DeactivationReason::Broken(HALF_WAY.to_owned())));
            drop(lock);
            assert!(poll(&mut waits).is_ready());
        } else {
            assert!(poll(&mut closer).is_pending());
            let Poll::Ready(lock) = poll(&mut waits) else { panic!("who waits goes first") };
            drop(lock);
            let Poll::Ready((_, reason)) = poll(&mut closer) else {
                panic!("it is the closer's turn")
            };
            assert_eq!(reason, Purpose::End(DeactivationReason::Requested));
        }
        assert_eq!(gate.line().waiting(), 0);
    }
}

#[test]
fn a_mover_goes_before_those_that_wait_or_behind_them_and_gives_its_place_back() {
    for before_all in [true, false] {
        let gate = Gate::new(Some(0));
        let inside = gate.try_exclusive().unwrap();
        let mut waits = gate.exclusive(Asks::until(LATE), || {});
        assert!(poll(&mut waits).is_pending());
        assert!(gate.line().take_mover_place(before_all));
        assert!(!gate.line().take_mover_place(before_all), "it has one mover");
        let mut later = gate.exclusive(Asks::until(LATE), || {});
        let mut mover = gate.closing();
        assert!(poll(&mut later).is_pending() && poll(&mut mover).is_pending());
        drop(inside);
        assert!(gate.try_exclusive().is_none() && poll(&mut later).is_pending());
        if before_all {
            assert!(poll(&mut waits).is_pending(), "the mover is first");
            let Poll::Ready((lock, Purpose::Move)) = poll(&mut mover) else { panic!("not first") };
            drop(lock);
            drop(poll(&mut waits));
        } else {
            assert!(poll(&mut mover).is_pending(), "a turn waited before it");
            drop(poll(&mut waits));
            assert!(gate.line().give_mover_place_back());
        }
        assert!(poll(&mut later).is_ready());
        assert_eq!(gate.line().waiting(), 0);
    }
}

#[test]
fn a_mover_ends_the_grain_that_is_to_end_meanwhile() {
    let gate = Gate::new(Some(0));
    let inside = gate.try_exclusive().unwrap();
    assert!(gate.line().take_mover_place(true));
    assert!(!gate.line().take_closer_place(DeactivationReason::Idle), "the mover does it");
    assert!(!gate.line().give_mover_place_back());
    drop(inside);
    let Poll::Ready((_, purpose)) = poll(&mut gate.closing()) else { panic!("it is free") };
    assert_eq!(purpose, Purpose::End(DeactivationReason::Idle));
}

#[test]
fn calls_that_follow_a_grain_go_one_behind_the_other() {
    let gate = Gate::new(Some(0));
    let inside = gate.try_exclusive().unwrap();
    let mut waits: Vec<_> = (0..3).map(|_| gate.exclusive(Asks::until(LATE), || {})).collect();
    assert!(waits.iter_mut().all(|waiter| poll(waiter).is_pending()));
    drop(inside);
    let Poll::Ready(first) = poll(&mut waits[0]) else { panic!("it is the first") };
    let place = gate.line().take_follow_place(false).unwrap();
    drop(first);
    assert!(poll(&mut waits[1]).is_pending(), "the first is not on its way");
    assert!(!gate.line().take_closer_place(DeactivationReason::Idle), "the grain is gone");
    gate.line().give_follow_place_back(place + 1);
    assert!(poll(&mut waits[1]).is_pending(), "another call's place");
    gate.line().give_follow_place_back(place);
    let Poll::Ready(second) = poll(&mut waits[1]) else { panic!("it is the second's turn") };
    gate.line().take_follow_place(false).unwrap();
    drop(second);
    // It is never on its way: its caller keeps the call without polling it.
    for _ in 0..100 {
        assert!(poll(&mut waits[2]).is_ready() || gate.line().tick(CoarseInstant::from_millis(0)));
        if gate.line().waiting() == 0 {
            return;
        }
    }
    panic!("a call that is kept holds up others");
}

#[test]
fn calls_of_shared_turns_follow_a_grain_one_behind_the_other() {
    let gate = Gate::new(Some(0));
    let inside = gate.try_exclusive().unwrap();
    let mut readers: Vec<_> = (0..2).map(|_| gate.shared(Asks::until(LATE), || {})).collect();
    let mut writer = gate.exclusive(Asks::until(LATE), || {});
    assert!(readers.iter_mut().all(|r| poll(r).is_pending()) && poll(&mut writer).is_pending());
    gate.line().set_departed();
    drop(inside);
    for at in 0..2 {
        let Poll::Ready(inside) = poll(&mut readers[at]) else { panic!("it is its turn") };
        let place = gate.line().take_follow_place(true).unwrap();
        drop(inside);
        let later = readers[at + 1..].iter_mut().all(|reader| poll(reader).is_pending());
        assert!(later && poll(&mut writer).is_pending(), "a reader is not on its way");
        gate.line().give_follow_place_back(place);
    }
    assert!(poll(&mut writer).is_ready());
    assert_eq!(gate.line().waiting(), 0);
}

#[test]
fn who_is_polled_by_a_task_of_the_runtime_keeps_the_place_however_late_it_comes() {
    let gate = Gate::new(Some(0));
    let inside = gate.try_exclusive().unwrap();
    let late = Asks { driven: true, ..Asks::until(LATE) };
    let (mut first, mut second) = (gate.exclusive(late, || {}), gate.exclusive(late, || {}));
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
    drop(inside);
    for _ in 0..100 {
        assert!(gate.line().tick(CoarseInstant::from_millis(0)));
        assert!(poll(&mut second).is_pending(), "the second goes before the first");
    }
    assert!(poll(&mut first).is_ready());
    assert!(poll(&mut second).is_ready());
}

#[test]
fn who_is_called_and_does_not_come_loses_the_place_together_with_all_others_that_do_not() {
    let gate = Gate::new(Some(0));
    let soon = CoarseInstant::from_millis(0);
    let inside = gate.try_exclusive().unwrap();
    let mut kept: Vec<_> = (0..50).map(|_| gate.exclusive(Asks::until(LATE), || {})).collect();
    assert!(kept.iter_mut().all(|waiter| poll(waiter).is_pending()));
    let mut alive = gate.exclusive(Asks::until(LATE), || {});
    assert!(poll(&mut alive).is_pending());
    drop(inside);
    // The first is called, and then all, at once.
    for _ in 0..100 {
        assert!(gate.line().tick(soon));
        if let Poll::Ready(lock) = poll(&mut alive) {
            assert_eq!(gate.line().waiting(), 0);
            drop(lock);
            // A turn that comes back is served.
            assert!(poll(&mut kept[49]).is_ready());
            return;
        }
    }
    panic!("kept calls hold the door");
}

/// The search for circles takes 0 for no ticket. The first queue of this process is made here.
#[test]
fn no_ticket_is_zero() {
    let gate = Gate::new(Some(0));
    let _inside = gate.try_exclusive().unwrap();
    let mut waits = gate.exclusive(Asks::until(LATE), || {});
    assert!(poll(&mut waits).is_pending());
    let mut queue = gate.line().queue();
    assert!(queue.get().unwrap().waiters.iter().all(|waiter| waiter.ticket > 0));
}

/// The room of a grain that nothing is asked of.
fn still() -> impl AnyGrain {
    struct Still;

    impl AnyGrain for Still {
        fn create(&mut self, _: &Arc<Activation>) -> Result<(), ActivationError> {
            Ok(())
        }

        fn load(&mut self) -> BoxFuture<'_, Result<(), StateError>> {
            Box::pin(async { Ok(()) })
        }

        fn activate(&mut self, _: Arc<Activation>) -> BoxFuture<'_, Result<(), ActivationError>> {
            Box::pin(async { Ok(()) })
        }

        fn deactivate(&mut self, _: Arc<Activation>, _: DeactivationReason) -> BoxFuture<'_, ()> {
            Box::pin(async {})
        }

        fn arrive(&mut self, _: Arc<Activation>) -> BoxFuture<'_, Result<(), ActivationError>> {
            Box::pin(async { Ok(()) })
        }

        fn may_move(&self) -> bool {
            true
        }

        fn pack(&mut self) -> Result<Fields, String> {
            Ok(Vec::new())
        }

        fn unpack(&mut self, _: &Arc<Activation>, _: &Fields) -> Result<(), String> {
            Ok(())
        }

        fn has_grain(&self) -> bool {
            true
        }

        fn clear(&mut self) {}
    }

    Still
}
