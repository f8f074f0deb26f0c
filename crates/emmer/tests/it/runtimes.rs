//! Callers whose runtime is not the silo's, or ends before their calls.

use std::future::IntoFuture;
use std::time::Duration;

use emmer::prelude::*;
use tokio::runtime::{Builder, Runtime};

use crate::common::{self, Counter, CounterRef, silo, store};

async fn client(store: &std::sync::Arc<dyn emmer::store::SystemStore>) -> Client {
    Client::builder().store(store.clone()).connect().await.unwrap()
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Polls a future on a thread that has no runtime.
fn without_runtime<T: Send>(future: impl Future<Output = T> + Send) -> T {
    std::thread::scope(|scope| scope.spawn(|| parking(future)).join().unwrap())
}

/// Parks the thread between polls.
fn parking<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut cx = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        if let std::task::Poll::Ready(done) = future.as_mut().poll(&mut cx) {
            return done;
        }
        std::thread::park();
    }
}

/// Calls on the grain until one turn of it has begun that waits.
async fn until_held(counter: &CounterRef) {
    while counter.silo().timeout(millis(20)).await.is_ok() {}
}

#[test]
fn a_turn_may_sleep_whose_caller_has_no_runtime() {
    let home = runtime();
    let (a, outside) = home.block_on(async {
        let store = store();
        let a = silo(&store).await;
        (a, client(&store).await)
    });
    for client in [a.grains(), outside.grains()] {
        let counter = client.grain::<dyn Counter>("no runtime");
        // The second finds the activation, the first does not.
        for _ in 0..2 {
            without_runtime(counter.hold(5).into_future()).unwrap();
        }
        without_runtime(counter.add(1).into_future()).unwrap();
        counter.hold(1).send().unwrap();
    }
    let counter = a.grains().grain::<dyn Counter>("no runtime");
    assert_eq!(without_runtime(counter.total().into_future()).unwrap(), 2);
    assert_eq!(a.statistics().activations, 1);
    home.block_on(a.stop()).unwrap();
}

#[test]
fn a_turn_that_has_begun_outlives_the_runtime_of_its_caller() {
    let home = runtime();
    let a = home.block_on(async { silo(&store()).await });
    let counter = a.grains().grain::<dyn Counter>("outlives");
    home.block_on(counter.add(1).into_future()).unwrap();
    let activated = a.statistics().activated;
    for _ in 0..5 {
        let short = runtime();
        short.spawn(counter.hold(200).into_future());
        home.block_on(until_held(&counter));
        short.shutdown_background();
        assert_eq!(home.block_on(counter.add(0).into_future()).unwrap(), 1);
    }
    assert_eq!(
        a.statistics().activated,
        activated,
        "a turn that was left half way ends its activation"
    );
    home.block_on(a.stop()).unwrap();
}

#[test]
fn a_connection_outlives_the_runtime_of_the_caller_that_needed_it_first() {
    let home = runtime();
    let silos = home.block_on(async { common::cluster(2).await.1 });
    let far = silos[1].grains().grain::<dyn Counter>("far");
    home.block_on(far.add(1).into_future()).unwrap();
    let at = home.block_on(far.silo().into_future()).unwrap();
    let other = silos.iter().find(|silo| silo.address().to_string() != at).unwrap();
    let counter = other.grains().grain::<dyn Counter>("far");
    let short = runtime();
    assert_eq!(short.block_on(counter.total().into_future()).unwrap(), 1);
    drop(short);
    for _ in 0..10 {
        assert_eq!(home.block_on(counter.total().into_future()).unwrap(), 1);
    }
}

#[test]
fn a_call_ends_although_the_runtime_of_its_client_is_gone() {
    let (home, of_client) = (runtime(), runtime());
    let store = store();
    let a = home.block_on(silo(&store));
    let outside = of_client.block_on(client(&store));
    let counter = outside.grains().grain::<dyn Counter>("gone");
    home.block_on(counter.add(1).into_future()).unwrap();
    let waits = home.spawn(counter.hold(600_000).timeout(Duration::from_secs(60)).into_future());
    home.block_on(until_held(&a.grains().grain::<dyn Counter>("gone")));
    drop(of_client);
    let ended = home.block_on(waits).unwrap().unwrap_err();
    assert!(ended.maybe_executed(), "{ended}");
    let late = home
        .block_on(counter.total().timeout(Duration::from_millis(50)).into_future())
        .unwrap_err();
    assert!(!matches!(late, CallError::Internal { .. }), "{late}");
}

#[test]
fn a_call_ends_although_the_runtime_of_its_silo_is_gone() {
    let (home, other) = (runtime(), runtime());
    let a = home.block_on(async { silo(&store()).await });
    let counter = a.grains().grain::<dyn Counter>("silo gone");
    other.block_on(counter.add(1).into_future()).unwrap();
    let runs = other.spawn(counter.hold(600_000).timeout(Duration::from_secs(60)).into_future());
    other.block_on(until_held(&counter));
    let waits = other.spawn(counter.add(1).timeout(Duration::from_secs(60)).into_future());
    drop(home);
    let ended = other.block_on(runs).unwrap().unwrap_err();
    assert!(ended.maybe_executed(), "{ended}");
    other.block_on(waits).unwrap().unwrap_err();
    other.block_on(counter.hold(1).into_future()).unwrap_err();
}

#[test]
fn a_silo_whose_runtime_is_gone_stops_at_once() {
    let (home, other) = (runtime(), runtime());
    let a = home.block_on(async { silo(&store()).await });
    drop(home);
    other.block_on(a.stop()).unwrap();
    assert!(a.has_ended());
}

#[tokio::test]
async fn a_stop_that_is_dropped_goes_on() {
    let a = silo(&store()).await;
    let mut stop = Box::pin(a.stop());
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(stop.as_mut().poll(&mut cx).is_pending());
    drop(stop);
    a.terminated().await;
}
