//! Outages of the store: whatever turns hold meanwhile, a silo comes back.

use std::cell::Cell;
use std::time::Duration;

use emmer::prelude::*;
use emmer::test::{Failure, World};
use futures_util::future::join_all;

#[grain_interface(key = u64)]
trait Counter {
    async fn add(&mut self, n: u64) -> Result<u64, StateError>;
}

#[derive(Grain, Default)]
struct CounterGrain {
    #[state("total")]
    total: Persistent<u64>,
}

#[grain]
impl Counter for CounterGrain {
    async fn add(&mut self, n: u64) -> Result<u64, StateError> {
        *self.total += n;
        self.total.write().await?;
        Ok(*self.total)
    }
}

/// The way in which a store is away.
#[derive(Clone, Copy, Debug)]
enum Away {
    /// Nothing is connected.
    Refusing,
    /// Nothing is answered.
    Silent,
    /// Each request takes almost its maximum time.
    Stalling,
}

impl Away {
    /// Longest time from the end of an outage to the first answered call. A silent store never
    /// answers earlier requests: such a request ends by its own timeout of two seconds.
    const fn back_within(self) -> Duration {
        match self {
            Self::Refusing | Self::Stalling => Duration::from_secs(2),
            Self::Silent => Duration::from_secs(4),
        }
    }
}

/// Silos, callers, and connections of each silo to the store, fewer than turns want. One connection
/// is a lock that is held while a request runs.
const LOADS: [(usize, u64, usize); 3] = [(1, 1, 1), (1, 12, 8), (2, 12, 1)];

/// Checks that a silo answers calls again soon after the store does.
async fn comes_back(world: &World, load: (usize, u64, usize), how: Away, outage: u64) {
    let (silos, callers, connections) = load;
    let cluster = world.cluster(silos, |silo| silo.host::<dyn Counter, CounterGrain>()).await;
    let client = cluster.client().await;
    let store = world.store();
    store.limit_connections(connections);
    let answered = Cell::new(None);
    let caller = |caller: u64| {
        let (client, answered) = (&client, &answered);
        async move {
            for n in 0.. {
                let grain = client.grain::<dyn Counter>(caller * 1_000 + n % 20);
                if grain.add(1).timeout(secs(5)).await.is_ok() {
                    answered.set(Some(world.elapsed()));
                }
                world.advance(millis(20)).await;
            }
        }
    };
    let outage_and_recovery = async {
        world.advance(secs(5)).await;
        match how {
            Away::Refusing => store.fail(Failure::Unavailable),
            Away::Silent => store.be_silent(),
            Away::Stalling => store.be_slow(millis(1_990)),
        }
        world.advance(secs(outage)).await;
        store.recover();
        let back = world.elapsed();
        answered.set(None);
        while answered.get().is_none() {
            world.advance(millis(5)).await;
            let waited = world.elapsed() - back;
            let bound = how.back_within();
            assert!(waited <= bound, "{load:?}, {how:?} for {outage} s: back after {waited:?}");
        }
    };
    tokio::select! {
        _ = join_all((0..callers).map(caller)) => {}
        () = outage_and_recovery => {}
    }
    cluster.nodes().iter().for_each(|node| assert!(!node.has_ended()));
}

#[test]
fn turns_that_stand_still_keep_no_silo_from_coming_back() {
    for load in LOADS {
        for how in [Away::Refusing, Away::Silent, Away::Stalling] {
            for outage in [12, 60] {
                emmer::test::run_seed(1, async move |world: World| {
                    comes_back(&world, load, how, outage).await;
                });
            }
        }
    }
}
