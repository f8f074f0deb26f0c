//! Calls without a waiting caller arrive in the order in which they were made, also at the limits.

use std::future::Future;
use std::task::Poll;

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

/// The silo that makes the calls, as seen from the move of their grain.
#[derive(Clone, Copy, PartialEq)]
enum Caller {
    Source,
    Target,
    Third,
}

/// Moves grains while one silo calls each of them one way: by one reference, by a new one for each
/// call, or by both in turn. Others on that silo await calls meanwhile, and so learn where the
/// grain is.
async fn calls_keep_their_order(world: World, caller: Caller) {
    let cluster = world.cluster(3, |silo| silo.host::<dyn Parcels, ParcelsGrain>()).await;
    world.net().set_model(NetModel { delay_max: millis(3), ..NetModel::default() });
    let client = cluster.client().await;
    for key in 0..12u64 {
        let parcels = client.grain::<dyn Parcels>(key);
        let from = parcels.at().await.unwrap();
        let named = |node: &&emmer::test::Node| node.address().to_string() == from;
        let source = cluster.nodes().iter().find(named).unwrap();
        let mut others = cluster.nodes().iter().filter(|node| !named(node));
        let (target, third) = (others.next().unwrap(), others.next().unwrap());
        let node = match caller {
            Caller::Source => source,
            Caller::Target => target,
            Caller::Third => third,
        };
        let send = async move |client: GrainFactory| {
            let kept = client.grain::<dyn Parcels>(key);
            let mut unpolled = Vec::new();
            for what in 0..CALLS {
                if what % 10 == 3 {
                    // Polled once, and kept: only the call itself may suffer.
                    let mut call = Box::pin(client.grain::<dyn Parcels>(key).at().into_future());
                    std::future::poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_ready())).await;
                    unpolled.push(call);
                }
                let is_kept = key % 3 == 0 || (key % 3 == 1 && what % 2 == 0);
                let fresh = client.grain::<dyn Parcels>(key);
                let parcels = if is_kept { &kept } else { &fresh };
                if key % 2 == 1 && what % 7 == 6 {
                    parcels.take(what, Vec::new()).await.unwrap();
                } else {
                    parcels.take(what, Vec::new()).send().unwrap();
                }
                if what % 5 == 0 {
                    tokio::time::sleep(millis(1)).await;
                }
            }
            tokio::time::sleep(secs(3)).await;
            let taken = kept.taken().await.unwrap();
            drop(unpolled);
            taken
        };
        let ask = async move |client: GrainFactory| {
            for _ in 0..20 {
                client.grain::<dyn Parcels>(key).at().await.unwrap();
                tokio::time::sleep(millis(1)).await;
            }
        };
        let go = async {
            world.advance(millis(3 + key % 6)).await;
            parcels.go(target.address().to_string()).await.unwrap();
        };
        let (sent, asked, ()) = tokio::join!(node.run(send), node.run(ask), go);
        assert_eq!(sent.unwrap(), (0..CALLS).collect::<Vec<_>>(), "grain {key}");
        asked.unwrap();
        assert_eq!(parcels.at().await.unwrap(), target.address().to_string(), "it has moved");
    }
}

/// Calls that follow it from there meet no newer ones.
#[emmer::test(seeds = 4)]
async fn a_grain_returns_to_its_silo_after_a_second_at_the_earliest(world: World) {
    let cluster = world.cluster(2, |silo| silo.host::<dyn Parcels, ParcelsGrain>()).await;
    let parcels = cluster.client().await.grain::<dyn Parcels>(1u64);
    let from = parcels.at().await.unwrap();
    let mut addresses = cluster.nodes().iter().map(|node| node.address().to_string());
    let to = addresses.rfind(|address| *address != from).unwrap();
    parcels.go(to.clone()).await.unwrap();
    world.advance(millis(100)).await;
    assert_eq!(parcels.at().await.unwrap(), to);
    parcels.go(from.clone()).await.unwrap();
    world.advance(millis(850)).await;
    assert_eq!(parcels.at().await.unwrap(), to);
    world.advance(secs(1)).await;
    assert_eq!(parcels.at().await.unwrap(), from);
}

/// Their calls are on their way to the silo that the grain leaves.
#[emmer::test(seeds = 8)]
async fn calls_of_the_silo_that_a_grain_comes_to_keep_their_order(world: World) {
    calls_keep_their_order(world, Caller::Target).await;
}

/// Their calls wait in the queue of the grain that is gone.
#[emmer::test(seeds = 8)]
async fn calls_of_the_silo_that_a_grain_leaves_keep_their_order(world: World) {
    calls_keep_their_order(world, Caller::Source).await;
}

/// Their calls go by the silo that the grain leaves, until the silo has learned the new place.
#[emmer::test(seeds = 8)]
async fn calls_of_a_third_silo_keep_their_order(world: World) {
    calls_keep_their_order(world, Caller::Third).await;
}

/// Every silo calls a grain that moves again and again. Some calls are awaited; those of other
/// references of their silo, and those that are not awaited, are in order with them.
#[emmer::test(seeds = 24)]
async fn calls_of_all_silos_keep_their_order_while_their_grain_moves_on(world: World) {
    let cluster = world.cluster(4, |silo| silo.host::<dyn Parcels, ParcelsGrain>()).await;
    world.net().set_model(NetModel { delay_max: millis(3), ..NetModel::default() });
    let client = cluster.client().await;
    let key = world.bits();
    let parcels = client.grain::<dyn Parcels>(key);
    parcels.at().await.unwrap();
    let send = |caller: u64| {
        async move |client: GrainFactory| {
            let kept = client.grain::<dyn Parcels>(key);
            for what in 0..400 {
                let fresh = client.grain::<dyn Parcels>(key);
                let parcels = if (what / 7 + caller).is_multiple_of(3) { &fresh } else { &kept };
                let what = caller * 1_000 + what;
                if what % 11 == 6 && caller % 2 == 1 {
                    parcels.take(what, Vec::new()).await.unwrap();
                } else {
                    parcels.take(what, Vec::new()).send().unwrap();
                }
                if what.is_multiple_of(3) {
                    tokio::time::sleep(millis(4)).await;
                }
            }
        }
    };
    let callers = (0..).zip(cluster.nodes()).map(|(n, node)| node.run(send(n)));
    let mut moves = 0;
    let go = async {
        for _ in 0..10 {
            world.advance(millis(5 + world.bits() % 90)).await;
            let to = &cluster.nodes()[usize::try_from(world.bits() % 4).unwrap()];
            parcels.go(to.address().to_string()).await.unwrap();
            moves += 1;
        }
    };
    let (sent, ()) = tokio::join!(futures_util::future::join_all(callers), go);
    sent.into_iter().for_each(|sent| sent.unwrap());
    world.advance(secs(3)).await;
    let taken = parcels.taken().await.unwrap();
    for caller in 0..4 {
        let of: Vec<_> = taken.iter().filter(|what| **what / 1_000 == caller).copied().collect();
        let all: Vec<_> = (0..400).map(|what| caller * 1_000 + what).collect();
        let differs = of.iter().zip(&all).position(|(of, all)| of != all);
        let from = differs.unwrap_or(of.len()).saturating_sub(3);
        let window = |all: &[u64]| all.iter().skip(from).take(24).copied().collect::<Vec<_>>();
        assert!(of == all, "caller {caller}: {:?} and not {:?}", window(&of), window(&all));
    }
}
