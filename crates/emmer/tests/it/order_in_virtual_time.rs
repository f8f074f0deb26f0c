//! Calls without a waiting caller arrive in the order in which they were made, also at the limits.

use emmer::prelude::*;
use emmer::test::{NetModel, World};

const CALLS: u64 = 100;

#[grain_interface(key = u64)]
trait Parcels {
    async fn take(&mut self, what: u64, content: Vec<u8>);
    /// Lets the others wait.
    async fn weigh(&mut self, what: u64, content: Vec<u8>);
    async fn taken(&self) -> Vec<u64>;
    /// Asks to move to this silo.
    async fn go(&self, to: String);
    async fn at(&self) -> String;
}

#[derive(Grain)]
struct ParcelsGrain {
    #[context]
    ctx: Ctx,
    #[carry]
    taken: Vec<u64>,
}

#[grain]
impl Parcels for ParcelsGrain {
    async fn take(&mut self, what: u64, _content: Vec<u8>) {
        self.taken.push(what);
    }

    async fn weigh(&mut self, what: u64, content: Vec<u8>) {
        tokio::time::sleep(millis(content.len() as u64 / 10_000)).await;
        self.taken.push(what);
    }

    async fn taken(&self) -> Vec<u64> {
        self.taken.clone()
    }

    async fn go(&self, to: String) {
        self.ctx.move_to(to.parse().unwrap());
    }

    async fn at(&self) -> String {
        self.ctx.silo().unwrap().to_string()
    }
}

/// Refused calls are missing; the others arrive in order.
#[emmer::test(seeds = 8)]
async fn what_arrives_of_unawaited_calls_arrives_in_order(world: World) {
    let tight = world.seed().is_multiple_of(2);
    let describe = move |silo: emmer::SiloBuilder| {
        silo.host::<dyn Parcels, ParcelsGrain>().configure(move |o| {
            if tight {
                o.limits.outgoing_bytes_max = 64 << 10;
                o.limits.activation_queue_max = 40;
                o.limits.silo_calls_in_flight_max = 64;
            }
        })
    };
    let cluster = world.cluster(3, describe).await;
    world.net().set_model(NetModel { delay_max: millis(5), split: 0.2, ..NetModel::default() });
    let mut refused = 0;
    for key in 0..3 {
        let draws: Vec<u64> = (0..CALLS).map(|_| world.bits()).collect();
        let calls = async move |client: GrainFactory| {
            let parcels = client.grain::<dyn Parcels>(key);
            let mut sent = 0;
            for (what, draw) in (0..).zip(draws) {
                let content = vec![1; [70_000, 9_000, 3, 3, 3][usize::try_from(draw % 5).unwrap()]];
                let waits = draw & 64 == 0;
                let end = if waits {
                    parcels.weigh(what, content).send()
                } else {
                    parcels.take(what, content).send()
                };
                sent += u64::from(end.is_ok());
                if draw % 50 == 0 {
                    tokio::time::sleep(millis(draw % 7)).await;
                }
            }
            sent
        };
        let sent = cluster.node(0).run(calls).await.unwrap();
        world.advance(secs(60)).await;
        let ask = async move |client: GrainFactory| client.grain::<dyn Parcels>(key).taken().await;
        let taken = cluster.node(1).run(ask).await.unwrap().unwrap();
        assert!(taken.windows(2).all(|pair| pair[0] < pair[1]), "grain {key}: {taken:?}");
        assert!(
            tight || taken.len() as u64 == CALLS,
            "grain {key}: {} of {sent} sent",
            taken.len()
        );
        refused += CALLS - taken.len() as u64;
    }
    assert_eq!(refused > 0, tight, "{refused} calls were refused");
}

#[grain_interface(key = String)]
trait Ward {
    async fn rest(&self);
    async fn rest_alone(&mut self);
    async fn begun(&self) -> u64;
}

#[derive(Grain)]
#[placement(random)]
struct WardGrain {
    begun: std::sync::atomic::AtomicU64,
}

impl WardGrain {
    async fn rest_long(&self) {
        self.begun.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        tokio::time::sleep(secs(20)).await;
    }
}

#[grain]
impl Ward for WardGrain {
    async fn rest(&self) {
        self.rest_long().await;
    }

    async fn rest_alone(&mut self) {
        self.rest_long().await;
    }

    async fn begun(&self) -> u64 {
        self.begun.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// One-way calls to a grain that is not in memory wait for the start of the first one, not for its
/// end: on this silo, placed on another, and through a client.
#[emmer::test(seeds = 4)]
async fn unawaited_calls_to_a_cold_grain_run_side_by_side(world: World) {
    let cluster = world.cluster(3, |silo| silo.host::<dyn Ward, WardGrain>()).await;
    let client = cluster.client().await;
    let keys: Vec<String> = (0..8).map(|n| format!("ward {n}")).collect();
    let sent = keys.clone();
    let send = async move |client: GrainFactory| {
        for key in &sent {
            let ward = client.grain::<dyn Ward>(key);
            (0..5).for_each(|_| ward.rest().send().unwrap());
        }
    };
    cluster.node(0).run(send).await.unwrap();
    let far = client.grain::<dyn Ward>("far");
    (0..5).for_each(|_| far.rest().send().unwrap());
    world.advance(secs(5)).await;
    for key in keys.iter().map(String::as_str).chain(["far"]) {
        assert_eq!(client.grain::<dyn Ward>(key).begun().await.unwrap(), 5, "{key}");
    }
}

/// Behind a first call that does not end the others wait where they are seen.
#[emmer::test(seeds = 4)]
async fn unawaited_calls_behind_a_hung_one_are_in_the_queue_of_their_grain(world: World) {
    let cluster = world.cluster(3, |silo| silo.host::<dyn Ward, WardGrain>()).await;
    let send = async move |client: GrainFactory| {
        for n in 0..8 {
            let ward = client.grain::<dyn Ward>(format!("hung {n}"));
            (0..5).for_each(|_| ward.rest_alone().send().unwrap());
        }
    };
    cluster.node(0).run(send).await.unwrap();
    world.advance(secs(5)).await;
    let waiting = |n: usize| cluster.node(n).longest_queues(100);
    let waiting: Vec<u32> = (0..3).flat_map(waiting).map(|queue| queue.waiting).collect();
    assert_eq!(waiting, [4; 8]);
}

/// Calls of the silo that a grain comes to are on their way to the silo that it leaves.
#[emmer::test(seeds = 8)]
async fn calls_of_the_silo_that_a_grain_comes_to_keep_their_order(world: World) {
    let cluster = world.cluster(3, |silo| silo.host::<dyn Parcels, ParcelsGrain>()).await;
    world.net().set_model(NetModel { delay_max: millis(3), ..NetModel::default() });
    let client = cluster.client().await;
    for key in 0..12u64 {
        let parcels = client.grain::<dyn Parcels>(key);
        let from = parcels.at().await.unwrap();
        let node = cluster.nodes().iter().find(|node| node.address().to_string() != from).unwrap();
        let send = async move |client: GrainFactory| {
            for what in 0..CALLS {
                client.grain::<dyn Parcels>(key).take(what, Vec::new()).send().unwrap();
                if what % 5 == 0 {
                    tokio::time::sleep(millis(1)).await;
                }
            }
        };
        let go = async {
            world.advance(millis(3 + key % 6)).await;
            parcels.go(node.address().to_string()).await.unwrap();
        };
        let (sent, ()) = tokio::join!(node.run(send), go);
        sent.unwrap();
        world.advance(secs(1)).await;
        assert_eq!(parcels.at().await.unwrap(), node.address().to_string(), "it has moved");
        let taken = parcels.taken().await.unwrap();
        assert_eq!(taken, (0..CALLS).collect::<Vec<_>>(), "grain {key}");
    }
}
