//! Clients whose gateway is gone without a goodbye do not wait for it until their deadlines.

use emmer::CallError;
use emmer::prelude::*;
use emmer::test::{Cluster, World};

#[grain_interface(key = u64)]
trait Sleeper {
    async fn nap(&mut self, seconds: u64);
    async fn silo(&self) -> String;
}

#[derive(Grain, Default)]
struct SleeperGrain {
    #[context]
    ctx: Option<Ctx>,
}

#[grain]
impl Sleeper for SleeperGrain {
    async fn nap(&mut self, seconds: u64) {
        tokio::time::sleep(secs(seconds)).await;
    }

    async fn silo(&self) -> String {
        let silo = self.ctx.as_ref().and_then(|ctx| ctx.silo());
        silo.map(|silo| silo.to_string()).unwrap_or_default()
    }
}

async fn cluster(world: &World, silos: usize) -> Cluster {
    world.cluster(silos, |silo| silo.host::<dyn Sleeper, SleeperGrain>()).await
}

/// A grain on the silo `n`.
async fn on(cluster: &Cluster, client: &Client, n: usize) -> u64 {
    let wanted = cluster.node(n).address().to_string();
    for key in 0..100 {
        if client.grain::<dyn Sleeper>(key).silo().await.unwrap() == wanted {
            return key;
        }
    }
    unreachable!("a hundred grains, and none on {wanted}")
}

/// Far longer than a death takes, and far shorter than the calls have.
const TOLD_WITHIN: std::time::Duration = secs(20);

#[emmer::test(seeds = 5)]
async fn a_gateway_that_dies_while_it_leaves_keeps_nobody_waiting(world: World) {
    let cluster = cluster(&world, 3).await;
    let client = cluster.client().await;
    let key = on(&cluster, &client, 0).await;
    let waiting = async {
        let begun = world.elapsed();
        let answer = client.grain::<dyn Sleeper>(key).nap(50).timeout(secs(100)).await;
        (answer, world.elapsed().saturating_sub(begun))
    };
    let leaving = async {
        world.advance(secs(1)).await;
        cluster.stop(0).await;
    };
    let dying = async {
        world.advance(secs(3)).await;
        cluster.unplug(0);
    };
    let ((answer, took), (), ()) = tokio::join!(waiting, leaving, dying);
    assert!(
        matches!(answer, Err(CallError::Unreachable { maybe_executed: true, .. })),
        "{answer:?}"
    );
    assert!(took < TOLD_WITHIN, "{took:?}");
}

#[emmer::test(seeds = 5)]
async fn the_only_gateway_that_dies_keeps_nobody_waiting(world: World) {
    let mut cluster = cluster(&world, 1).await;
    let client = cluster.client().await;
    let key = on(&cluster, &client, 0).await;
    cluster.add().await;
    cluster.add().await;
    assert_eq!(client.gateways(), [cluster.node(0).address()]);
    let waiting = async {
        let begun = world.elapsed();
        let answer = client.grain::<dyn Sleeper>(key).nap(50).timeout(secs(100)).await;
        (answer, world.elapsed().saturating_sub(begun))
    };
    let dying = async {
        world.advance(millis(100)).await;
        cluster.unplug(0);
    };
    let ((answer, took), ()) = tokio::join!(waiting, dying);
    assert!(
        matches!(answer, Err(CallError::Unreachable { maybe_executed: true, .. })),
        "{answer:?}"
    );
    assert!(took < TOLD_WITHIN, "{took:?}");
}

/// The news of its death overtakes its last answers: callers wait for them.
#[emmer::test(seeds = 5)]
async fn what_a_gateway_answers_before_it_leaves_arrives(world: World) {
    let model = emmer::test::NetModel {
        delay_min: millis(1),
        delay_max: millis(150),
        ..Default::default()
    };
    world.net().set_model(model);
    let mut cluster = cluster(&world, 3).await;
    let client = cluster.client().await;
    for _ in 0..4 {
        let key = on(&cluster, &client, 0).await;
        let waiting = async { client.grain::<dyn Sleeper>(key).nap(2).timeout(secs(30)).await };
        let leaving = async {
            world.advance(secs(1)).await;
            cluster.stop(0).await;
        };
        let (answer, ()) = tokio::join!(waiting, leaving);
        answer.unwrap();
        cluster.restart(0).await;
        world.advance(secs(12)).await;
    }
}
