//! Idle grains end before there are too many.

use emmer::prelude::*;
use emmer::test::World;

#[grain_interface(key = u64)]
trait Few {
    async fn touch(&mut self) -> u64;
}

/// A class of which a silo has ten at most.
#[derive(Grain)]
#[grain(active_max = 10)]
struct FewGrain {
    touches: u64,
}

#[grain]
impl Few for FewGrain {
    async fn touch(&mut self) -> u64 {
        self.touches += 1;
        self.touches
    }
}

#[grain_interface(key = u64)]
trait Many {
    async fn touch(&mut self) -> u64;
}

#[derive(Grain)]
struct ManyGrain {
    touches: u64,
}

#[grain]
impl Many for ManyGrain {
    async fn touch(&mut self) -> u64 {
        self.touches += 1;
        self.touches
    }
}

#[grain_interface(key = u64)]
trait Stored {
    async fn touch(&mut self) -> u64;
}

#[derive(Grain)]
struct StoredGrain {
    #[state("touches")]
    touches: Persistent<u64>,
}

#[grain]
impl Stored for StoredGrain {
    async fn touch(&mut self) -> u64 {
        *self.touches += 1;
        *self.touches
    }
}

fn crowd(silo: emmer::SiloBuilder) -> emmer::SiloBuilder {
    silo.host::<dyn Few, FewGrain>()
        .host::<dyn Many, ManyGrain>()
        .host::<dyn Stored, StoredGrain>()
        .configure(|o| o.limits.activations_max = 1_000)
}

#[emmer::test(seeds = 3)]
async fn a_class_has_as_many_grains_as_it_says_and_keeps_the_latest(world: World) {
    let cluster = world.cluster(1, crowd).await;
    let client = cluster.client().await;
    for key in 0..40u64 {
        assert_eq!(client.grain::<dyn Few>(key).touch().await.unwrap(), 1);
        world.advance(secs(1)).await;
    }
    for key in 0..20u64 {
        client.grain::<dyn Many>(key).touch().await.unwrap();
    }
    world.advance(secs(2)).await;
    assert_eq!(cluster.activations(), 10 + 20, "other classes have no limit");
    for key in 32..40u64 {
        assert_eq!(client.grain::<dyn Few>(key).touch().await.unwrap(), 2, "{key} was called last");
    }
    assert_eq!(client.grain::<dyn Few>(0u64).touch().await.unwrap(), 1, "it had ended");
}

#[emmer::test(seeds = 3)]
async fn a_silo_makes_room_before_it_is_full(world: World) {
    let cluster = world.cluster(1, crowd).await;
    let client = cluster.client().await;
    for key in 0..450u64 {
        client.grain::<dyn Stored>(key).touch().await.unwrap();
    }
    world.advance(secs(5)).await;
    for key in 0..425u64 {
        client.grain::<dyn Many>(key).touch().await.unwrap();
    }
    world.advance(secs(5)).await;
    assert_eq!(cluster.activations(), 875, "there is room");
    for key in 425..500u64 {
        client.grain::<dyn Many>(key).touch().await.unwrap();
        world.advance(millis(300)).await;
    }
    let left = cluster.activations();
    assert!((850..900).contains(&left), "{left}");
    // Those without state end first, although others were idle for longer.
    for key in 0..450u64 {
        assert_eq!(client.grain::<dyn Stored>(key).touch().await.unwrap(), 2, "{key}");
    }
    assert_eq!(client.grain::<dyn Many>(499u64).touch().await.unwrap(), 2);
    assert_eq!(client.grain::<dyn Many>(0u64).touch().await.unwrap(), 1, "it had ended");
}

/// A silo that has used its share of memory, and has no idle grain, serves those that it has.
#[tokio::test]
async fn a_silo_short_of_memory_takes_nothing_new() {
    let silo = Silo::builder()
        .store("memory://crowds-memory")
        .host::<dyn Many, ManyGrain>()
        .configure(|o| {
            o.memory_max = 1;
            o.load_period = millis(100);
        })
        .start()
        .await
        .unwrap();
    let first = silo.grain::<dyn Many>(0u64);
    first.touch().await.unwrap();
    let refused = async {
        for key in 1u64.. {
            match silo.grain::<dyn Many>(key).touch().await {
                Ok(_) => tokio::time::sleep(millis(20)).await,
                Err(refused) => return refused,
            }
        }
        unreachable!()
    };
    let refused = tokio::time::timeout(secs(60), refused).await.expect("memory is measured");
    assert!(matches!(refused, CallError::Overloaded { .. }), "{refused}");
    assert!(refused.to_string().contains("memory_max"), "{refused}");
    assert_eq!(first.touch().await.unwrap(), 2);
    silo.stop().await.unwrap();
}
