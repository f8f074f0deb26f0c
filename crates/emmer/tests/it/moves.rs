//! Grains that move from silo to silo.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use emmer::prelude::*;
use emmer::tables::Duty;
use emmer::test::{Cluster, World};

#[grain_interface(key = u64)]
trait Walker {
    /// Adds `n` in memory. Returns the sum.
    async fn add(&mut self, n: u64) -> u64;
    async fn write(&mut self) -> Result<(), StateError>;
    async fn look(&self) -> Look;
    async fn go(&self, to: String);
    async fn go_as_placed(&self);
    /// Asks `times` times.
    async fn insist(&self, to: String, times: u32);
    /// Holds the grain.
    async fn hold(&mut self, ms: u64);
    async fn refuse(&mut self, refuses: bool);
    async fn start_timer(&mut self);
    async fn stop_timer(&mut self);
    async fn pick(&mut self, text: String);
    async fn grow(&mut self, bytes: usize);
    async fn append(&mut self, n: u64) -> Result<u64, StateError>;
}

/// Everything that a walker knows.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
struct Look {
    at: String,
    total: u64,
    exists: bool,
    steps: Vec<String>,
    plain: u64,
    activated: u64,
    journal: u64,
}

#[derive(Clone, Copy, serde::Serialize, serde::Deserialize)]
struct Added(u64);

#[derive(Default, serde::Serialize, serde::Deserialize)]
struct Sum(u64);

impl emmer::state::Apply<Added> for Sum {
    fn apply(&mut self, event: &Added) {
        self.0 += event.0;
    }
}

/// A field that another silo cannot read.
#[derive(Clone, Default, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
struct Picky(String);

impl TryFrom<String> for Picky {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        match text.as_str() {
            "bad" => Err("as planned"),
            "panics" => std::panic::resume_unwind(Box::new("as planned")),
            _ => Ok(Self(text)),
        }
    }
}

impl From<Picky> for String {
    fn from(Picky(text): Picky) -> Self {
        text
    }
}

#[derive(Grain)]
struct WalkerGrain {
    #[context]
    ctx: Ctx,
    #[state("total")]
    total: Persistent<u64>,
    #[journal("sum")]
    sum: Journal<Added, Sum>,
    /// The silos that it was on.
    #[carry]
    steps: Vec<String>,
    #[carry]
    refuses: bool,
    #[carry]
    ballast: String,
    #[carry]
    picky: Picky,
    timer: Option<Timer>,
    plain: u64,
    activated: u64,
}

thread_local! {
    /// A world has one thread: the silos on which ticks ran, and when.
    static TICKS: RefCell<Vec<(String, u64)>> = const { RefCell::new(Vec::new()) };
}

impl WalkerGrain {
    fn here(&self) -> String {
        self.ctx.silo().map(|silo| silo.to_string()).unwrap_or_default()
    }

    async fn tick(&mut self) {
        let at = self.ctx.now().as_millis() / 1_000;
        TICKS.with_borrow_mut(|ticks| ticks.push((self.here(), at as u64)));
    }
}

impl Lifecycle for WalkerGrain {
    async fn activate(&mut self, ctx: &Ctx) -> Result<(), ActivationError> {
        self.activated += 1;
        self.steps.push(self.here());
        self.timer = Some(ctx.timer(secs(10)).every(secs(10)).run(Self::tick));
        Ok(())
    }

    fn may_move(&self) -> bool {
        !self.refuses
    }
}

#[grain]
impl Walker for WalkerGrain {
    async fn add(&mut self, n: u64) -> u64 {
        *self.total += n;
        self.plain += n;
        *self.total
    }

    async fn write(&mut self) -> Result<(), StateError> {
        self.total.write().await
    }

    async fn look(&self) -> Look {
        Look {
            at: self.here(),
            total: *self.total,
            exists: self.total.exists(),
            steps: self.steps.clone(),
            plain: self.plain,
            activated: self.activated,
            journal: self.sum.0,
        }
    }

    async fn go(&self, to: String) {
        self.ctx.move_to(to.parse().unwrap());
    }

    async fn go_as_placed(&self) {
        self.ctx.move_by_placement();
    }

    async fn insist(&self, to: String, times: u32) {
        for _ in 0..times {
            self.ctx.move_to(to.parse().unwrap());
            self.ctx.move_by_placement();
        }
    }

    async fn hold(&mut self, ms: u64) {
        tokio::time::sleep(millis(ms)).await;
    }

    async fn refuse(&mut self, refuses: bool) {
        self.refuses = refuses;
    }

    async fn start_timer(&mut self) {
        self.ctx.timer(secs(1)).every(secs(1)).run(Self::tick);
    }

    async fn stop_timer(&mut self) {
        self.timer.as_ref().unwrap().stop();
    }

    async fn pick(&mut self, text: String) {
        self.picky = Picky(text);
    }

    async fn grow(&mut self, bytes: usize) {
        self.ballast = "x".repeat(bytes);
    }

    async fn append(&mut self, n: u64) -> Result<u64, StateError> {
        self.sum.append(Added(n)).await?;
        Ok(self.sum.0)
    }
}

/// Calls walkers from inside the cluster.
#[grain_interface(key = u64)]
trait Pusher {
    async fn push(&self, calls: u64, grains: u64);
}

#[derive(Grain)]
#[placement(random)]
struct PusherGrain {
    #[context]
    ctx: Ctx,
}

#[grain]
impl Pusher for PusherGrain {
    async fn push(&self, calls: u64, grains: u64) {
        for call in 0..calls {
            let walker = self.ctx.grains().grain::<dyn Walker>(call % grains);
            walker.add(1).await.unwrap();
            tokio::time::sleep(millis(1 + call * 5 % 11)).await;
        }
    }
}

fn walkers(silo: emmer::SiloBuilder) -> emmer::SiloBuilder {
    silo.host::<dyn Walker, WalkerGrain>().host::<dyn Pusher, PusherGrain>()
}

/// The silo that the grain is on, and another one.
fn places(cluster: &Cluster, look: &Look) -> (usize, usize) {
    let all = || 0..cluster.nodes().len();
    let at = all().find(|n| cluster.node(*n).address().to_string() == look.at).unwrap();
    (at, all().find(|n| *n != at).unwrap())
}

#[emmer::test(seeds = 8)]
async fn a_grain_moves_with_its_memory(world: World) {
    let cluster = world.cluster(3, walkers).await;
    let walker = cluster.client().await.grain::<dyn Walker>(1u64);
    walker.add(5).await.unwrap();
    walker.write().await.unwrap();
    walker.append(7).await.unwrap();
    // Only in memory.
    walker.add(3).await.unwrap();
    let before = walker.look().await.unwrap();
    let (from, to) = places(&cluster, &before);
    let there = cluster.node(to).address().to_string();
    walker.go(there.clone()).await.unwrap();
    world.advance(secs(1)).await;
    let after = walker.look().await.unwrap();
    let steps = vec![before.at.clone(), there.clone()];
    let expected = Look { at: there.clone(), steps, plain: 0, activated: 1, ..before.clone() };
    assert_eq!(after, expected);
    assert!(after.exists && after.total == 8 && after.journal == 7);
    // The etags came along: writes go on without a read.
    walker.add(1).await.unwrap();
    walker.write().await.unwrap();
    assert_eq!(walker.append(1).await.unwrap(), 8);
    let on = |node: usize| cluster.node(node).statistics().activations;
    assert_eq!((on(from), on(to)), (0, 1));
    // And back.
    walker.go(before.at.clone()).await.unwrap();
    world.advance(secs(1)).await;
    let back = walker.look().await.unwrap();
    assert_eq!((back.at, back.total, back.journal), (before.at, 9, 8));
    assert_eq!((on(from), on(to)), (1, 0));
}

/// Callers on every silo and outside add all the time, while the grain moves again and again: no
/// call fails, and the sum in memory is exact.
#[emmer::test(seeds = 20)]
async fn calls_follow_a_grain_and_each_runs_once(world: World) {
    let cluster = world.cluster(3, walkers).await;
    let grains: u64 = 6;
    let mut callers = Vec::new();
    for n in 0..6usize {
        let client = cluster.client().await;
        let client = move |key: u64| client.grain::<dyn Walker>(key);
        callers.push(tokio::spawn(async move {
            for call in 0..150u64 {
                let walker = client((call + n as u64) % grains);
                walker.add(1).await.unwrap();
                tokio::time::sleep(millis(1 + (call * 7 + n as u64) % 13)).await;
            }
        }));
    }
    for n in 0..6u64 {
        let pusher = cluster.client().await.grain::<dyn Pusher>(n);
        callers.push(tokio::spawn(async move {
            pusher.push(150, grains).timeout(secs(120)).await.unwrap();
        }));
    }
    let mover = cluster.client().await;
    let mut moved = 0;
    while callers.iter().any(|caller| !caller.is_finished()) {
        let walker = mover.grain::<dyn Walker>(world.bits() % grains);
        let to = cluster.node((world.bits() % 3) as usize).address().to_string();
        walker.go(to).await.unwrap();
        moved += 1;
        world.advance(millis(world.bits() % 20)).await;
    }
    for caller in callers {
        caller.await.unwrap();
    }
    assert!(moved > 30, "{moved}");
    let mut sum = 0;
    for key in 0..grains {
        sum += mover.grain::<dyn Walker>(key).add(0).await.unwrap();
    }
    assert_eq!(sum, 12 * 150);
}

#[emmer::test(seeds = 4)]
async fn a_timer_continues_with_its_time_left(world: World) {
    let cluster = world.cluster(2, walkers).await;
    let walker = cluster.client().await.grain::<dyn Walker>(1u64);
    let before = walker.look().await.unwrap();
    let (_, to) = places(&cluster, &before);
    let there = cluster.node(to).address().to_string();
    TICKS.take();
    world.advance(secs(7)).await;
    walker.go(there.clone()).await.unwrap();
    world.advance(secs(2)).await;
    assert_eq!(walker.look().await.unwrap().at, there);
    assert!(TICKS.take().is_empty());
    world.advance(secs(2)).await;
    let ticks = TICKS.take();
    assert_eq!(ticks.len(), 1, "{ticks:?}");
    assert_eq!(ticks[0].0, there);
    world.advance(secs(20)).await;
    assert_eq!(TICKS.take().len(), 2);
}

#[emmer::test(seeds = 2)]
async fn a_timer_that_was_stopped_stays_so(world: World) {
    let cluster = world.cluster(2, walkers).await;
    let walker = cluster.client().await.grain::<dyn Walker>(1u64);
    let before = walker.look().await.unwrap();
    let (_, to) = places(&cluster, &before);
    let there = cluster.node(to).address().to_string();
    walker.stop_timer().await.unwrap();
    TICKS.take();
    walker.go(there.clone()).await.unwrap();
    world.advance(secs(40)).await;
    assert_eq!(walker.look().await.unwrap().at, there);
    assert!(TICKS.take().is_empty());
}

#[emmer::test(seeds = 4)]
async fn a_grain_stays_that_cannot_move(world: World) {
    let cluster = world.cluster(2, walkers).await;
    let client = cluster.client().await;
    let stays = async |key: u64, what: &str| {
        let walker = client.grain::<dyn Walker>(key);
        let before = walker.look().await.unwrap();
        let (_, to) = places(&cluster, &before);
        walker.go(cluster.node(to).address().to_string()).await.unwrap();
        world.advance(secs(5)).await;
        assert_eq!(walker.look().await.unwrap(), before, "{what}");
    };
    let walker = |key: u64| client.grain::<dyn Walker>(key);
    walker(1).refuse(true).await.unwrap();
    stays(1, "it refuses").await;
    walker(2).start_timer().await.unwrap();
    stays(2, "a timer that no hook starts").await;
    walker(3).grow(2 << 20).await.unwrap();
    stays(3, "its memory is too large").await;
    for (key, text) in [(6, "bad"), (7, "panics")] {
        walker(key).pick(text.to_owned()).await.unwrap();
        stays(key, text).await;
    }
    let busy = tokio::spawn({
        let busy = walker(4);
        async move { busy.hold(40_000).timeout(secs(60)).await }
    });
    world.advance(secs(1)).await;
    let nowhere = cluster.node(0).address().to_string();
    walker(5).go(nowhere.clone()).await.unwrap();
    world.advance(secs(1)).await;
    assert_eq!(walker(5).look().await.unwrap().at, nowhere);
    busy.await.unwrap().unwrap();
}

/// Silos leave one after the other and come back, under load. What is only in memory outlives all
/// of it, and no call fails.
#[emmer::test(seeds = 6)]
async fn busy_grains_move_away_from_a_silo_that_leaves(world: World) {
    let mut cluster = world.cluster(3, walkers).await;
    let client = cluster.client().await;
    let walker = |key: u64| client.grain::<dyn Walker>(key);
    let grains = 60;
    for key in 0..grains {
        walker(key).add(1).await.unwrap();
    }
    let stop = Arc::new(AtomicBool::new(false));
    let caller = {
        let (client, stop) = (cluster.client().await, stop.clone());
        tokio::spawn(async move {
            let mut rounds = 0;
            while !stop.load(Ordering::Relaxed) {
                for key in 0..grains {
                    let called = client.grain::<dyn Walker>(key).add(1).await;
                    assert_eq!(called.unwrap(), rounds + 2, "walker {key}");
                    tokio::time::sleep(millis(2)).await;
                }
                rounds += 1;
            }
            rounds
        })
    };
    for n in 0..3 {
        world.advance(secs(2)).await;
        cluster.stop(n).await;
        world.advance(secs(2)).await;
        cluster.restart(n).await;
    }
    world.advance(secs(2)).await;
    stop.store(true, Ordering::Relaxed);
    let rounds = caller.await.unwrap();
    assert!(rounds > 5, "{rounds}");
    for key in 0..grains {
        let look = walker(key).look().await.unwrap();
        assert_eq!(look.total, rounds + 1);
    }
}

/// Everything stands still but a grain that moves, and the connection breaks, or a silo dies, at
/// any moment of it. The grain is somewhere, with its memory or as after a death, and soon.
#[emmer::test(seeds = 60)]
async fn a_move_that_breaks_off_leaves_the_grain_somewhere(world: World) {
    let cluster = world.cluster(4, walkers).await;
    let client = cluster.client().await;
    let walker = client.grain::<dyn Walker>(1u64);
    walker.add(5).await.unwrap();
    let before = walker.look().await.unwrap();
    let (from, to) = places(&cluster, &before);
    walker.go(cluster.node(to).address().to_string()).await.unwrap();
    // Less than the time of a whole move.
    tokio::time::sleep(std::time::Duration::from_micros(world.bits() % 1_500)).await;
    match world.seed() % 6 {
        0 => cluster.kill(to),
        1 => cluster.kill(from),
        2 => cluster.cut(from, to),
        3 => cluster.cut(to, from),
        4 => cluster.forget_connections(from, to),
        _ => cluster.unplug(to),
    }
    world.advance(secs(1)).await;
    cluster.heal();
    // A call may be lost with its own connection.
    let after = loop {
        match walker.look().timeout(secs(60)).await {
            Ok(look) => break look,
            Err(lost) => assert!(matches!(lost, CallError::Unreachable { .. }), "{lost}"),
        }
        assert!(world.elapsed() < secs(300));
    };
    let is_whole = after.total == 5;
    let is_new = after.total == 0 && after.activated == 1 && after.steps.len() == 1;
    assert!(is_whole || is_new, "{after:?}");
    world.advance(secs(60)).await;
    let now = walker.add(1).timeout(secs(30)).await.unwrap();
    assert_eq!(now, after.total + 1);
    assert_eq!(cluster.activations(), 1);
}

/// A silo joins two that have all grains. They give it some, slowly, and then rest.
#[emmer::test(seeds = 2)]
async fn grains_move_to_a_silo_that_joins(world: World) {
    let mut cluster = world
        .cluster(2, |silo| {
            walkers(silo).configure(|o| {
                o.balance = true;
                o.collection_quantum = Some(secs(5));
            })
        })
        .await;
    let client = cluster.client().await;
    let grains = 600u64;
    for key in 0..grains {
        client.grain::<dyn Walker>(key).add(1).await.unwrap();
    }
    let new = cluster.add().await;
    world.advance(secs(30)).await;
    let at_first = cluster.node(new).statistics().activations;
    assert!(at_first < 60, "{at_first} within half a minute");
    world.advance(secs(400)).await;
    let on = |n: usize| cluster.node(n).statistics().activations;
    let counts = [on(0), on(1), on(new)];
    assert_eq!(counts.iter().sum::<u64>(), grains);
    assert!(counts.iter().max() <= Some(&(grains / 3 * 6 / 5)), "{counts:?}");
    let arrived = cluster.node(new).statistics().arrived;
    world.advance(secs(120)).await;
    assert_eq!(cluster.node(new).statistics().arrived, arrived, "the silos rest");
    for key in 0..grains {
        let look = client.grain::<dyn Walker>(key).look().await.unwrap();
        assert_eq!(look.total, 1);
        assert!(look.steps.len() <= 2, "it moved once: {:?}", look.steps);
    }
}

/// A drained silo leaves the others even, and gets its part back: grains that a drain has moved are
/// free to move for the balance, which moves none of them twice.
#[emmer::test(seeds = 2)]
async fn a_silo_that_was_drained_gets_its_part_back(world: World) {
    let cluster = world
        .cluster(3, |silo| {
            walkers(silo).configure(|o| {
                o.balance = true;
                o.balance_share = 20;
            })
        })
        .await;
    let client = cluster.client().await;
    let grains = 900u64;
    for key in 0..grains {
        client.grain::<dyn Walker>(key).add(1).await.unwrap();
    }
    let on = |n: usize| cluster.node(n).statistics().activations;
    world.advance(secs(3)).await;
    cluster.node(1).drain().await.unwrap();
    assert_eq!(on(0) + on(2), grains);
    assert!(on(0).abs_diff(on(2)) < grains / 15, "{} and {}", on(0), on(2));
    cluster.node(1).uncordon().await.unwrap();
    world.advance(secs(240)).await;
    let counts = [on(0), on(1), on(2)];
    assert!(counts.iter().max() <= Some(&(grains / 3 * 6 / 5)), "{counts:?}");
    for key in 0..grains {
        let look = client.grain::<dyn Walker>(key).look().await.unwrap();
        assert!(look.total == 1 && look.steps.len() <= 3, "two moves at most: {look:?}");
    }
}

/// A silo is drained under load and stays a member, empty; then it is used again.
#[emmer::test(seeds = 4)]
async fn a_silo_is_drained_and_stays(world: World) {
    let cluster = world.cluster(3, walkers).await;
    let client = cluster.client().await;
    let grains = 60u64;
    for key in 0..grains {
        client.grain::<dyn Walker>(key).add(1).await.unwrap();
    }
    let stop = Arc::new(AtomicBool::new(false));
    let caller = {
        let (client, stop) = (cluster.client().await, stop.clone());
        tokio::spawn(async move {
            let mut rounds = 1;
            while !stop.load(Ordering::Relaxed) {
                rounds += 1;
                for key in 0..grains {
                    let called = client.grain::<dyn Walker>(key).add(1).await;
                    assert_eq!(called.unwrap(), rounds, "walker {key}");
                    tokio::time::sleep(millis(2)).await;
                }
            }
        })
    };
    let node = cluster.node(1);
    let had = node.statistics().activations;
    assert!(had > 5, "{had}");
    assert_eq!(node.drain().await.unwrap(), had);
    for key in 100..160u64 {
        client.grain::<dyn Walker>(key).add(1).await.unwrap();
    }
    world.advance(secs(2)).await;
    assert_eq!(node.statistics().activations, 0);
    assert!(!node.has_ended());
    assert_eq!(node.duty(), Duty::Drained);
    node.uncordon().await.unwrap();
    world.advance(secs(2)).await;
    for key in 200..260u64 {
        client.grain::<dyn Walker>(key).add(1).await.unwrap();
    }
    assert!(node.statistics().activations > 5);
    stop.store(true, Ordering::Relaxed);
    caller.await.unwrap();
}

#[emmer::test(seeds = 2)]
async fn a_grain_that_asks_again_and_again_gets_one_move(world: World) {
    let cluster = world.cluster(2, walkers).await;
    let walker = cluster.client().await.grain::<dyn Walker>(1u64);
    let before = walker.look().await.unwrap();
    let (from, to) = places(&cluster, &before);
    let tasks = cluster.node(from).tasks();
    let there = cluster.node(to).address().to_string();
    walker.insist(there.clone(), 10_000).await.unwrap();
    assert!(cluster.node(from).tasks() < tasks + 20, "{}", cluster.node(from).tasks());
    world.advance(secs(2)).await;
    assert_eq!(walker.look().await.unwrap().at, there);
    walker.go_as_placed().await.unwrap();
    world.advance(secs(2)).await;
    walker.add(1).await.unwrap();
}
