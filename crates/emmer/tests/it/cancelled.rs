//! Turns that ask whether a caller still waits for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use emmer::prelude::*;
use emmer::test::World;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio_util::sync::CancellationToken;

#[grain_interface(key = u64)]
trait Patient {
    /// Waits for a minute, or until no caller waits for it; calls behind it wait too.
    async fn wait(&mut self, deep: u64) -> bool;
    /// As `wait`, among others, each with a waker of its own.
    async fn wait_in_a_crowd(&mut self) -> bool;
    /// A timer's turn does.
    async fn wait_by_timer(&mut self);
}

/// Counts turns: those that were given up, and those that ended by themselves.
#[derive(Default)]
struct Counts {
    given_up: AtomicU64,
    done: AtomicU64,
}

#[derive(Grain)]
struct PatientGrain {
    timer: Option<Timer>,
    #[service]
    counts: Arc<Counts>,
    #[context]
    ctx: Ctx,
}

impl PatientGrain {
    fn count(&self, given_up: bool) -> bool {
        let counter = if given_up { &self.counts.given_up } else { &self.counts.done };
        counter.fetch_add(1, Ordering::Relaxed);
        given_up
    }

    async fn tick(&mut self) {
        let given_up = tokio::select! {
            () = self.ctx.cancelled() => true,
            () = tokio::time::sleep(Duration::from_secs(60)) => false,
        };
        self.count(given_up);
    }
}

#[grain]
impl Patient for PatientGrain {
    async fn wait(&mut self, deep: u64) -> bool {
        if deep > 0 {
            let next = self.ctx.me::<dyn Patient>().key() + 1;
            let next = self.ctx.grains().grain::<dyn Patient>(next);
            let token = self.ctx.cancellation().await;
            let failed = next.wait(deep - 1).timeout(secs(100)).cancel_on(token).await.is_err();
            return self.count(failed);
        }
        let given_up = tokio::select! {
            () = self.ctx.cancelled() => true,
            () = tokio::time::sleep(Duration::from_secs(60)) => false,
        };
        self.count(given_up)
    }

    async fn wait_in_a_crowd(&mut self) -> bool {
        let waits = |given_up: bool| {
            let ctx = self.ctx.clone();
            async move {
                match given_up {
                    true => ctx.cancelled().await,
                    false => tokio::time::sleep(Duration::from_secs(60)).await,
                }
                given_up
            }
        };
        let mut all: FuturesUnordered<_> = [true, false, true].into_iter().map(waits).collect();
        let first = all.next().await.unwrap();
        let second = all.next().await.unwrap();
        self.count(first && second)
    }

    async fn wait_by_timer(&mut self) {
        self.timer = Some(self.ctx.timer(Duration::from_secs(1)).run(Self::tick));
    }
}

#[emmer::test(seeds = 3)]
async fn whoever_gives_up_is_seen_along_the_whole_chain(world: World) {
    let counts = Arc::new(Counts::default());
    let given = counts.clone();
    let cluster = world
        .cluster(3, move |silo| {
            silo.shared_service(given.clone()).host::<dyn Patient, PatientGrain>()
        })
        .await;
    let client = cluster.client().await;
    let given_up = || counts.given_up.swap(0, Ordering::Relaxed);
    let done = || counts.done.swap(0, Ordering::Relaxed);
    // By its own timeout, by a token, and by being dropped.
    let patient = client.grain::<dyn Patient>(1);
    assert!(patient.wait(3).timeout(secs(5)).await.is_err());
    world.advance(Duration::from_secs(1)).await;
    assert_eq!((given_up(), done()), (4, 0), "a timeout");
    let token = CancellationToken::new();
    let cancelling = token.clone();
    let (failed, ()) =
        tokio::join!(async { patient.wait(3).cancel_on(token).await.is_err() }, async {
            world.advance(Duration::from_secs(2)).await;
            cancelling.cancel();
        });
    assert!(failed);
    world.advance(Duration::from_secs(1)).await;
    assert_eq!((given_up(), done()), (4, 0), "a token");
    let call = patient.wait(3).timeout(secs(100));
    assert!(tokio::time::timeout(secs(2), call).await.is_err());
    world.advance(Duration::from_secs(1)).await;
    assert_eq!((given_up(), done()), (4, 0), "a drop");
    // A client that closes takes its connections with it.
    let closing = cluster.client().await;
    let lost = closing.grain::<dyn Patient>(20);
    let (failed, ()) =
        tokio::join!(async { lost.wait(0).timeout(secs(100)).await.is_err() }, async {
            world.advance(Duration::from_secs(2)).await;
            closing.close().await;
        });
    assert!(failed);
    world.advance(Duration::from_secs(1)).await;
    assert_eq!((given_up(), done()), (1, 0), "a lost connection");
    // Each of several in one turn, with wakers of their own.
    assert!(patient.wait_in_a_crowd().timeout(secs(5)).await.is_err());
    world.advance(Duration::from_secs(1)).await;
    assert_eq!((given_up(), done()), (1, 0), "a crowd");
    // No caller gives up.
    assert!(!patient.wait(3).timeout(secs(100)).await.unwrap());
    assert_eq!((given_up(), done()), (0, 4));
}

#[emmer::test]
async fn turns_that_nobody_waits_for_are_never_given_up(world: World) {
    let counts = Arc::new(Counts::default());
    let given = counts.clone();
    let cluster = world
        .cluster(1, move |silo| {
            silo.shared_service(given.clone()).host::<dyn Patient, PatientGrain>()
        })
        .await;
    let client = cluster.client().await;
    client.grain::<dyn Patient>(1).wait(0).send().unwrap();
    client.grain::<dyn Patient>(2).wait_by_timer().await.unwrap();
    world.advance(Duration::from_secs(100)).await;
    assert_eq!(counts.given_up.load(Ordering::Relaxed), 0);
    assert_eq!(counts.done.load(Ordering::Relaxed), 2);
}
