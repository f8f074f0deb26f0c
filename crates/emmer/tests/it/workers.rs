//! Stateless workers: several activations on each silo, where the calls come from.

use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, IntoFuture, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use emmer::DeactivationReason;
use emmer::prelude::*;
use emmer::tables::SiloAddress;
use emmer::test::{Cluster, World};
use serde::{Deserialize, Serialize};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::common;

/// Maximum workers of one mill on a silo.
const MILLS: u64 = 3;

#[grain_interface(key = u64)]
trait Mill {
    /// Works alone for this time. Returns its worker and its silo.
    async fn grind(&mut self, millis: u64) -> (u64, SiloAddress);
    /// Number of turns that wait for each other: this one calls its own grain until `deeper` is 0.
    async fn nest(&mut self, deeper: u64) -> Result<u64, NestError>;
    async fn jam(&mut self, after_millis: u64);
}

/// The call further in failed.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct NestError(String);

/// Tells the workers apart.
struct Number(u64);

impl Default for Number {
    fn default() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

#[derive(Grain)]
#[placement(stateless_worker = 3)]
#[grain(idle = "2s")]
struct MillGrain {
    number: Number,
    #[context]
    ctx: Ctx,
}

/// Number of calls to grind that came to their end, by the key of their mill.
static GROUND: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());

/// Why workers ended, by the key of their mill.
static ENDED: Mutex<BTreeMap<u64, Vec<DeactivationReason>>> = Mutex::new(BTreeMap::new());

fn key_of(ctx: &Ctx) -> u64 {
    ctx.key().to_string().parse().unwrap()
}

impl Lifecycle for MillGrain {
    async fn deactivate(&mut self, ctx: &Ctx, reason: DeactivationReason) {
        ENDED.lock().unwrap().entry(key_of(ctx)).or_default().push(reason);
    }
}

#[grain]
impl Mill for MillGrain {
    async fn grind(&mut self, millis: u64) -> (u64, SiloAddress) {
        if millis > 0 {
            tokio::time::sleep(Duration::from_millis(millis)).await;
        }
        *GROUND.lock().unwrap().entry(key_of(&self.ctx)).or_default() += 1;
        (self.number.0, self.ctx.silo().unwrap())
    }

    async fn nest(&mut self, deeper: u64) -> Result<u64, NestError> {
        if deeper == 0 {
            return Ok(1);
        }
        let again = self.ctx.grains().grain::<dyn Mill>(key_of(&self.ctx));
        Ok(1 + again.nest(deeper - 1).await.map_err(|error| NestError(format!("{error:?}")))?)
    }

    async fn jam(&mut self, after_millis: u64) {
        tokio::time::sleep(Duration::from_millis(after_millis)).await;
        panic!("jammed")
    }
}

/// As many workers as there are processors.
#[grain_interface(key = u64)]
trait Press {
    async fn press(&self);
}

#[derive(Grain, Default)]
#[placement(stateless_worker)]
struct PressGrain {}

#[grain]
impl Press for PressGrain {
    async fn press(&self) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn cluster(world: &World, silos: usize) -> Cluster {
    world.cluster(silos, |silo| silo.host::<dyn Mill, MillGrain>()).await
}

/// A key of this test alone: notes by key lie in this process.
fn own_key(world: &World, test: u64) -> u64 {
    test << 32 | world.bits() >> 32
}

/// Answers of calls of 100 ms that are made at once.
async fn grind_at_once(mill: &MillRef, calls: usize) -> Vec<(u64, SiloAddress)> {
    let mut under_way = JoinSet::new();
    for _ in 0..calls {
        under_way.spawn(mill.grind(100).into_future());
    }
    under_way.join_all().await.into_iter().map(|said| said.unwrap()).collect()
}

fn different(said: &[(u64, SiloAddress)]) -> u64 {
    said.iter().map(|(worker, _)| worker).collect::<BTreeSet<_>>().len() as u64
}

#[emmer::test(seeds = 3)]
async fn workers_run_side_by_side_up_to_their_number_and_other_calls_wait(world: World) {
    let cluster = cluster(&world, 1).await;
    let before = world.elapsed();
    let said = cluster.node(0).run(async |silo| grind_at_once(&silo.grain::<dyn Mill>(1), 7).await);
    assert_eq!(different(&said.await.unwrap()), MILLS);
    let took = (world.elapsed() - before).as_millis();
    assert!((300..320).contains(&took), "seven calls of 100 ms by three workers took {took} ms");
    assert_eq!(cluster.activations(), MILLS);
}

#[emmer::test(seeds = 3)]
async fn a_worker_that_is_free_is_taken_before_one_more_is_made(world: World) {
    let cluster = cluster(&world, 1).await;
    let said = cluster.node(0).run(async |silo| {
        let (mill, mut said) = (silo.grain::<dyn Mill>(1), Vec::new());
        for millis in [0, 5].repeat(10) {
            said.push(mill.grind(millis).await.unwrap());
        }
        assert_eq!(different(&said), 1);
        said.extend(grind_at_once(&mill, 3).await);
        for millis in [5, 0].repeat(3) {
            assert_eq!(mill.grind(millis).await.unwrap(), said[0], "the oldest one");
        }
        said
    });
    assert_eq!(different(&said.await.unwrap()), MILLS);
}

#[emmer::test(seeds = 3)]
async fn without_a_number_there_are_as_many_as_processors_and_each_runs_one_call(world: World) {
    let cluster = world.cluster(1, |silo| silo.host::<dyn Press, PressGrain>()).await;
    let before = world.elapsed();
    let pressed = cluster.node(0).run(async |silo| {
        let (press, mut under_way) = (silo.grain::<dyn Press>(1), JoinSet::new());
        (0..8).for_each(|_| drop(under_way.spawn(press.press().into_future())));
        under_way.join_all().await.into_iter().for_each(|done| done.unwrap());
    });
    pressed.await.unwrap();
    let took = (world.elapsed() - before).as_millis();
    assert!((200..220).contains(&took), "eight calls of 100 ms by four workers took {took} ms");
}

#[emmer::test(seeds = 3)]
async fn callers_that_give_up_leave_no_worker_taken(world: World) {
    let cluster = cluster(&world, 1).await;
    let key = own_key(&world, 1);
    let said = cluster.node(0).run(async |silo| {
        let (mill, mut under_way) = (silo.grain::<dyn Mill>(key), JoinSet::new());
        for _ in 0..9 {
            // Three run, the others wait and are given up before they are called.
            under_way.spawn(mill.grind(100).timeout(Duration::from_millis(50)).into_future());
        }
        assert!(under_way.join_all().await.iter().all(Result::is_err));
        let dropped = mill.grind(100).into_future();
        drop(tokio::time::timeout(Duration::from_millis(10), dropped).await);
        tokio::time::sleep(secs(1)).await;
        grind_at_once(&mill, 3).await
    });
    assert_eq!(different(&said.await.unwrap()), MILLS);
    let ground = GROUND.lock().unwrap()[&key];
    assert_eq!(ground, 3 + 3, "those that ran, and no other");
}

#[emmer::test(seeds = 3)]
async fn calls_that_are_kept_and_not_polled_hold_up_no_other(world: World) {
    let cluster = cluster(&world, 1).await;
    let later = cluster.node(0).run(async |silo| {
        let (mill, mut busy) = (silo.grain::<dyn Mill>(1), JoinSet::new());
        (0..MILLS).for_each(|_| drop(busy.spawn(mill.grind(100).into_future())));
        tokio::time::sleep(Duration::from_millis(10)).await;
        let mut kept: Vec<_> = (0..5).map(|_| mill.grind(0).into_future()).collect();
        for call in &mut kept {
            let waits = poll_fn(|cx| Poll::Ready(Pin::new(&mut *call).poll(cx).is_pending())).await;
            assert!(waits, "all workers are busy");
        }
        busy.join_all().await;
        let later = mill.grind(0).timeout(secs(2)).await;
        drop(kept);
        later
    });
    later.await.unwrap().unwrap();
}

#[emmer::test(seeds = 3)]
async fn calls_that_wait_have_their_turn_in_the_order_in_which_they_came(world: World) {
    let cluster = cluster(&world, 1).await;
    let order = cluster.node(0).run(async |silo| {
        let (mill, mut under_way) = (silo.grain::<dyn Mill>(1), JoinSet::new());
        let order = Arc::new(Mutex::new(Vec::new()));
        for number in 0..9 {
            let (call, order) = (mill.grind(100).into_future(), order.clone());
            under_way.spawn(async move {
                call.await.unwrap();
                order.lock().unwrap().push(number);
            });
        }
        under_way.join_all().await;
        Arc::into_inner(order).unwrap().into_inner().unwrap()
    });
    assert!(order.await.unwrap().into_iter().eq(0..9));
}

#[emmer::test(seeds = 3)]
async fn no_more_calls_wait_for_workers_than_may(world: World) {
    let describe = |silo: emmer::SiloBuilder| {
        silo.configure(|options| options.limits.activation_queue_max = 2)
            .host::<dyn Mill, MillGrain>()
    };
    let cluster = world.cluster(1, describe).await;
    let said = cluster.node(0).run(async |silo| {
        let (mill, mut under_way) = (silo.grain::<dyn Mill>(1), JoinSet::new());
        (0..7).for_each(|_| drop(under_way.spawn(mill.grind(100).into_future())));
        under_way.join_all().await
    });
    let said = said.await.unwrap();
    let refused =
        said.iter().filter(|said| matches!(said, Err(CallError::Overloaded { .. }))).count();
    assert_eq!((refused, said.iter().filter(|said| said.is_ok()).count()), (2, 5), "{said:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_of_many_threads_never_share_a_worker_while_another_is_free() {
    let silo = Silo::builder().store(common::store()).on_terminate(|_| {});
    let silo = silo.host::<dyn Meeting, MeetingGrain>().start().await.unwrap();
    let meeting = silo.grain::<dyn Meeting>(1);
    for round in 0..300 {
        let mut under_way = JoinSet::new();
        for _ in 0..3 {
            let meeting = meeting.clone();
            under_way.spawn(async move { meeting.meet(round).timeout(secs(20)).await });
        }
        for met in under_way.join_all().await {
            met.unwrap_or_else(|error| panic!("round {round}: {error}"));
        }
    }
    silo.stop().await.unwrap();
}

/// Three calls meet, which takes three workers.
#[grain_interface(key = u64)]
trait Meeting {
    async fn meet(&mut self, round: u64);
}

#[derive(Grain, Default)]
#[placement(stateless_worker = 3)]
struct MeetingGrain {}

#[grain]
impl Meeting for MeetingGrain {
    async fn meet(&mut self, round: u64) {
        static ROUNDS: Mutex<BTreeMap<u64, Arc<Barrier>>> = Mutex::new(BTreeMap::new());
        let new = || Arc::new(Barrier::new(3));
        let barrier = ROUNDS.lock().unwrap().entry(round).or_insert_with(new).clone();
        barrier.wait().await;
    }
}

#[emmer::test(seeds = 3)]
async fn each_silo_has_workers_of_its_own_and_asks_nobody(world: World) {
    let cluster = cluster(&world, 3).await;
    for node in cluster.nodes() {
        let before = world.elapsed();
        let said = node.run(async |silo| {
            let mut said = BTreeSet::new();
            for key in 0..20 {
                said.insert(silo.grain::<dyn Mill>(key).grind(0).await.unwrap().1);
            }
            said
        });
        assert_eq!(said.await.unwrap(), BTreeSet::from([node.address()]));
        assert_eq!(world.elapsed(), before, "a question to another silo takes time");
    }
    assert_eq!(cluster.activations(), 60);
}

#[emmer::test(seeds = 3)]
async fn workers_that_are_idle_go(world: World) {
    let cluster = cluster(&world, 1).await;
    let key = own_key(&world, 2);
    let work = async |silo: GrainFactory| {
        grind_at_once(&silo.grain::<dyn Mill>(key), 5).await;
    };
    cluster.node(0).run(work).await.unwrap();
    assert_eq!(cluster.activations(), MILLS);
    world.advance(secs(60)).await;
    assert_eq!(cluster.activations(), 0);
    assert_eq!(ENDED.lock().unwrap()[&key], [const { DeactivationReason::Idle }; 3]);
    cluster.node(0).run(work).await.unwrap();
    assert_eq!(cluster.activations(), MILLS, "they come again");
}

#[emmer::test(seeds = 3)]
async fn a_panic_ends_one_worker_and_no_other(world: World) {
    let cluster = cluster(&world, 1).await;
    let after = cluster.node(0).run(async |silo| {
        let mill = silo.grain::<dyn Mill>(1);
        let (first, second, jam) = tokio::join!(
            mill.grind(100).into_future(),
            mill.grind(100).into_future(),
            mill.jam(0).into_future()
        );
        assert!(matches!(jam, Err(CallError::Panicked { .. })), "{jam:?}");
        let before = [first.unwrap(), second.unwrap()];
        let after = grind_at_once(&mill, 3).await;
        assert!(before.iter().all(|worker| after.contains(worker)), "{before:?}, {after:?}");
        after
    });
    assert_eq!(different(&after.await.unwrap()), MILLS);
    assert_eq!(cluster.activations(), MILLS);
}

#[emmer::test(seeds = 3)]
async fn a_call_that_waits_has_the_place_of_a_worker_that_went(world: World) {
    let cluster = cluster(&world, 1).await;
    let waited = cluster.node(0).run(async |silo| {
        let mill = silo.grain::<dyn Mill>(1);
        let before = world.elapsed();
        let waiting = async { mill.grind(0).await.map(|_| world.elapsed() - before) };
        let (jam, first, second, waited) = tokio::join!(
            mill.jam(100).into_future(),
            mill.grind(10_000).into_future(),
            mill.grind(10_000).into_future(),
            waiting
        );
        first.and(second).unwrap();
        assert!(jam.is_err());
        waited.unwrap()
    });
    let waited = waited.await.unwrap().as_millis();
    assert!((100..200).contains(&waited), "it waited {waited} ms");
}

#[emmer::test(seeds = 3)]
async fn a_silo_that_stops_lets_its_workers_end_what_they_do(world: World) {
    let cluster = cluster(&world, 2).await;
    let key = own_key(&world, 3);
    let client = cluster.client().await;
    let mill = client.grain::<dyn Mill>(key);
    let home = mill.grind(0).await.unwrap().1;
    let node = cluster.nodes().iter().position(|node| node.address() == home).unwrap();
    let calls = grind_at_once(&mill, 3);
    let stop = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        cluster.stop(node).await;
    };
    let (said, ()) = tokio::join!(calls, stop);
    assert_eq!(different(&said), MILLS, "they were at work when the silo stopped");
    let ended = ENDED.lock().unwrap()[&key].clone();
    assert_eq!(ended, [const { DeactivationReason::ShuttingDown }; 3]);
    let elsewhere = mill.grind(0).await.unwrap().1;
    assert_ne!(elsewhere, home);
}

#[emmer::test(seeds = 3)]
async fn a_worker_may_call_its_own_grain_while_others_are_left(world: World) {
    let cluster = cluster(&world, 1).await;
    let nested = cluster.node(0).run(async |silo| {
        let mill = silo.grain::<dyn Mill>(1);
        let mut nested = Vec::new();
        for deeper in 0..MILLS {
            nested.push(mill.nest(deeper).await.unwrap());
        }
        // The fourth call has no worker. It fails at its deadline, and so do the calls behind it.
        mill.nest(MILLS).timeout(secs(1)).await.unwrap_err();
        // Two work, the third calls its grain, and one of the two will take that call.
        let (first, second, third) = tokio::join!(
            mill.grind(300).into_future(),
            mill.grind(300).into_future(),
            mill.nest(1).into_future()
        );
        first.and(second).unwrap();
        nested.push(third.unwrap());
        nested
    });
    assert_eq!(nested.await.unwrap(), [1, 2, 3, 2]);
}

#[emmer::test(seeds = 3)]
async fn no_more_workers_are_made_than_the_silo_has_room_for(world: World) {
    let describe = |silo: emmer::SiloBuilder| {
        silo.configure(|options| options.limits.activations_max = 2).host::<dyn Mill, MillGrain>()
    };
    let cluster = world.cluster(1, describe).await;
    let said = cluster.node(0).run(async |silo| grind_at_once(&silo.grain::<dyn Mill>(1), 6).await);
    assert_eq!(different(&said.await.unwrap()), 2);
    let refused = cluster.node(0).run(async |silo| silo.grain::<dyn Mill>(2).grind(0).await);
    let refused = refused.await.unwrap();
    assert!(matches!(refused, Err(CallError::Overloaded { .. })), "{refused:?}");
}

#[emmer::test(seeds = 3)]
async fn a_full_silo_has_calls_served_elsewhere_and_takes_them_again_later(world: World) {
    let describe = |silo: emmer::SiloBuilder| {
        silo.configure(|options| options.limits.activations_max = 20).host::<dyn Mill, MillGrain>()
    };
    let cluster = world.cluster(2, describe).await;
    let node = cluster.node(0);
    let grain_of = async |key| node.run(async |silo| silo.grain::<dyn Mill>(key)).await.unwrap();
    let silo_of = async |mill: &MillRef| {
        let at = node.run(async |_| mill.grind(0).await.unwrap().1);
        at.await.unwrap()
    };
    for key in 0..20 {
        assert_eq!(silo_of(&grain_of(key).await).await, node.address());
    }
    // A report later it is passed over. Two seconds of idleness are not over.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let key = own_key(&world, 4);
    let mill = grain_of(key).await;
    for _ in 0..3 {
        assert_eq!(silo_of(&mill).await, cluster.node(1).address());
    }
    let sent = node.run(async |_| (0..3).for_each(|_| mill.grind(800).send().unwrap()));
    sent.await.unwrap();
    tokio::time::sleep(secs(1)).await;
    assert_eq!(GROUND.lock().unwrap()[&key], 6, "three at once, after three one by one");
    world.advance(secs(60)).await;
    assert_eq!(silo_of(&mill).await, node.address(), "nothing is remembered of where it was");
}

#[emmer::test(seeds = 3)]
async fn clients_and_one_way_calls_have_workers_too(world: World) {
    let cluster = cluster(&world, 3).await;
    let client = cluster.client().await;
    let mill = client.grain::<dyn Mill>(7);
    let said = grind_at_once(&mill, 6).await;
    assert_eq!(different(&said), MILLS);
    let homes: BTreeSet<_> = said.iter().map(|(_, silo)| *silo).collect();
    assert_eq!(homes.len(), 1, "all came through one gateway");
    // A long one holds up no other.
    let key = own_key(&world, 5);
    let sent = cluster.node(0).run(async |silo| {
        for millis in [20_000, 10, 10, 10, 10, 10, 10] {
            silo.grain::<dyn Mill>(key).grind(millis).send().unwrap();
        }
    });
    sent.await.unwrap();
    tokio::time::sleep(secs(1)).await;
    assert_eq!(GROUND.lock().unwrap()[&key], 6);
    for _ in 0..6 {
        client.grain::<dyn Mill>(key).grind(10).send().unwrap();
    }
    tokio::time::sleep(secs(1)).await;
    assert_eq!(GROUND.lock().unwrap()[&key], 12);
    // The gateway dies: another one has workers as well.
    let home = *homes.first().unwrap();
    let node = cluster.nodes().iter().position(|node| node.address() == home).unwrap();
    cluster.kill(node);
    let after = loop {
        if let Ok((_, silo)) = mill.grind(0).await {
            break silo;
        }
    };
    assert_ne!(after, home);
}

#[grain_interface(key = u64)]
trait Lame {
    async fn limp(&mut self);
}

/// Its only worker never comes to life.
#[derive(Grain, Default)]
#[placement(stateless_worker = 1)]
struct LameGrain;

impl Lifecycle for LameGrain {
    async fn activate(&mut self, _: &Ctx) -> Result<(), ActivationError> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        Err(ActivationError::new("lame"))
    }
}

#[grain]
impl Lame for LameGrain {
    async fn limp(&mut self) {}
}

/// A call comes at the very moment in which a worker ends, again and again: waiting calls must not
/// have to let it pass.
#[emmer::test(seeds = 5)]
async fn a_call_that_waits_is_next_where_activations_fail_and_calls_keep_coming(world: World) {
    let cluster = world.cluster(1, |silo| silo.host::<dyn Lame, LameGrain>()).await;
    // The number of other tasks that run between the end of the worker's time and the call.
    for behind in 0..12_u64 {
        let took = cluster.node(0).run(async move |silo| {
            let lame = silo.grain::<dyn Lame>(behind);
            let first = tokio::spawn(lame.limp().into_future());
            tokio::task::yield_now().await;
            let begun = tokio::time::Instant::now();
            let waits = tokio::spawn({
                let lame = lame.clone();
                async move {
                    lame.limp().await.unwrap_err();
                    begun.elapsed()
                }
            });
            let others = tokio::spawn(async move {
                for _ in 0..1_000 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    for _ in 0..behind {
                        tokio::task::yield_now().await;
                    }
                    // Now, not behind tasks that are ready to run.
                    let mut call = lame.limp().into_future();
                    let looked = poll_fn(|cx| Poll::Ready(Pin::new(&mut call).poll(cx)));
                    if looked.await.is_pending() {
                        tokio::spawn(call);
                    }
                }
            });
            first.await.unwrap().unwrap_err();
            let took = waits.await.unwrap();
            others.abort();
            took
        });
        let took = took.await.unwrap();
        assert!(took <= Duration::from_millis(20), "behind {behind}: it waited for {took:?}");
    }
}
