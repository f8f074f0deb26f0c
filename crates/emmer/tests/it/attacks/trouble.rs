//! Clocks that drift and jump, cuts of one direction, a store in trouble: no turn is stale, and no
//! healthy silo dies.
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};

use emmer::membership::Config;
use emmer::prelude::*;
use emmer::test::{Cluster, Failure, World};

use super::imp::Dice;

/// The activation of each grain that began last.
static LATEST: LazyLock<Mutex<HashMap<String, u64>>> = LazyLock::new(Mutex::default);
static STALE: LazyLock<Mutex<Vec<String>>> = LazyLock::new(Mutex::default);
static NEXT: AtomicU64 = AtomicU64::new(1);
static POLLS: AtomicU64 = AtomicU64::new(0);

#[grain_interface(key = String)]
pub trait Watched {
    async fn alone(&mut self, steps: u64, ms: u64) -> u64;
    async fn shared(&self, steps: u64, ms: u64) -> u64;
    async fn rest(&mut self) -> u64;
}

#[derive(Grain)]
struct WatchedGrain {
    #[context]
    ctx: Ctx,
    #[state("n")]
    n: Persistent<u64>,
    activation: u64,
}

impl WatchedGrain {
    /// Code of this activation runs now.
    fn runs(&self, what: &str) {
        POLLS.fetch_add(1, Ordering::Relaxed);
        let key = self.ctx.key().to_string();
        let latest = LATEST.lock().unwrap().get(&key).copied();
        if latest.is_some_and(|latest| latest != self.activation) {
            let on = self.ctx.silo();
            STALE.lock().unwrap().push(format!("{key}: {what} on {on:?} after {latest:?} began"));
        }
    }

    async fn steps(&self, steps: u64, ms: u64) -> u64 {
        self.runs("begin");
        for _ in 0..steps {
            tokio::time::sleep(millis(ms)).await;
            self.runs("go on");
        }
        self.activation + *self.n
    }
}

impl Lifecycle for WatchedGrain {
    async fn activate(&mut self, ctx: &Ctx) -> Result<(), ActivationError> {
        self.activation = NEXT.fetch_add(1, Ordering::Relaxed);
        LATEST.lock().unwrap().insert(ctx.key().to_string(), self.activation);
        self.steps(1, 17).await;
        Ok(())
    }
    async fn deactivate(&mut self, _: &Ctx, _: DeactivationReason) {
        self.steps(1, 17).await;
    }
}

#[grain]
impl Watched for WatchedGrain {
    async fn alone(&mut self, steps: u64, ms: u64) -> u64 {
        self.steps(steps, ms).await
    }
    async fn shared(&self, steps: u64, ms: u64) -> u64 {
        self.steps(steps, ms).await
    }
    async fn rest(&mut self) -> u64 {
        self.ctx.deactivate_on_idle();
        self.steps(0, 0).await
    }
}

async fn cluster(world: &World, size: usize, fast: bool) -> Cluster {
    let change = move |options: &mut emmer::options::SiloOptions| {
        if fast {
            options.membership = Config::fast();
        }
        options.collection_age = secs(3);
        options.collection_quantum = Some(millis(500));
    };
    let describe =
        move |silo: emmer::SiloBuilder| silo.configure(change).host::<dyn Watched, WatchedGrain>();
    world.cluster(size, describe).await
}

/// Clocks whose rates differ by just below 2 %, and that show any time.
fn bend_clocks(cluster: &Cluster, dice: &mut Dice) {
    for node in cluster.nodes() {
        node.clock().drift(i32::try_from(dice.roll(19_800)).unwrap() - 9_900);
        node.clock().set_wall_by(i64::try_from(dice.roll(2_000_000_000)).unwrap() - 1_000_000_000);
    }
}

/// Calls of some tasks, until they are aborted.
fn load(client: &Client, seed: u64, prefix: &str) -> tokio::task::JoinSet<()> {
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..6 {
        let (client, prefix, mut dice) =
            (client.grains(), prefix.to_owned(), Dice(seed * 1_000 + task));
        tasks.spawn(async move {
            loop {
                let grain = client.grain::<dyn Watched>(format!("{prefix}{}", dice.roll(8)));
                let within = millis(200 + dice.roll(9_000));
                let (steps, ms) = (dice.roll(9), dice.roll(400));
                let _ = match dice.roll(4) {
                    0 => grain.rest().timeout(within).await,
                    1 => grain.shared(steps, ms).timeout(within).await,
                    _ => grain.alone(steps, ms).timeout(within).await,
                };
                tokio::time::sleep(millis(dice.roll(200))).await;
            }
        });
    }
    tasks
}

/// Cuts one silo off from all others, in one direction.
fn cut_one_way(cluster: &Cluster, n: usize, to: bool) {
    for other in (0..cluster.nodes().len()).filter(|other| *other != n) {
        if to { cluster.cut(other, n) } else { cluster.cut(n, other) }
    }
}

fn ip(cluster: &Cluster, n: usize) -> IpAddr {
    cluster.node(n).address().ip()
}

/// One fault of any kind, on any silo.
async fn trouble(world: &World, cluster: &Cluster, dice: &mut Dice) {
    let size = cluster.nodes().len() as u64;
    let (n, m) = (dice.roll(size) as usize, dice.roll(size) as usize);
    match dice.roll(9) {
        0 => cluster.pause(n),
        1 => (0..cluster.nodes().len()).for_each(|n| cluster.resume(n)),
        2 if n != m => cluster.cut(n, m),
        3 => cut_one_way(cluster, n, true),
        4 => cut_one_way(cluster, n, false),
        5 => cluster.cut_from_store(n),
        6 if n != m => world.net().reset(ip(cluster, n), ip(cluster, m)),
        7 => {
            world.store().be_slow(millis(50 + dice.roll(700)));
            world.advance(millis(dice.roll(4_000))).await;
            world.store().recover();
        }
        _ => cluster.heal(),
    }
}

/// All is well again: every silo that has not ended is Active for all others, and every grain can
/// be called.
async fn all_is_well(world: &World, cluster: &Cluster, client: &Client, prefix: &str) {
    cluster.heal();
    world.store().recover();
    (0..cluster.nodes().len()).for_each(|n| cluster.resume(n));
    world.advance(secs(90)).await;
    let alive: Vec<_> = cluster.nodes().iter().filter(|node| !node.has_ended()).collect();
    for node in &alive {
        let view = node.view();
        let mut active: Vec<_> = view
            .iter()
            .filter(|(_, s)| *s == emmer::tables::SiloStatus::Active)
            .map(|r| r.0)
            .collect();
        let mut wanted: Vec<_> = alive.iter().map(|node| node.address()).collect();
        active.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(active, wanted, "Active in the view of {}", node.address());
    }
    for key in 0..if alive.is_empty() { 0 } else { 8 } {
        let grain = client.grain::<dyn Watched>(format!("{prefix}{key}"));
        grain.alone(0, 0).timeout(secs(25)).await.unwrap();
    }
}

fn nothing_was_stale(prefix: &str) {
    let stale: Vec<_> =
        STALE.lock().unwrap().iter().filter(|s| s.contains(prefix)).cloned().collect();
    assert!(stale.is_empty(), "{} times: {}", stale.len(), stale[0]);
    assert!(POLLS.load(Ordering::Relaxed) > 100, "hardly anything ran");
}

#[emmer::test(seeds = 5)]
async fn no_turn_is_stale_whatever_the_clocks_show(world: World) {
    let mut dice = Dice(world.seed() * 7_919);
    let prefix = format!("t1-{}-", world.seed());
    let cluster = cluster(&world, 2 + dice.roll(4) as usize, world.seed().is_multiple_of(3)).await;
    let client = cluster.client().await;
    bend_clocks(&cluster, &mut dice);
    let work = load(&client, world.seed(), &prefix);
    for _ in 0..14 {
        world.advance(millis(dice.roll(6_000))).await;
        trouble(&world, &cluster, &mut dice).await;
    }
    all_is_well(&world, &cluster, &client, &prefix).await;
    drop(work);
    nothing_was_stale(&prefix);
}

/// A store that is away, slow, silent or unsure; one silo without it; one pair that does not hear
/// each other.
#[emmer::test(seeds = 5)]
async fn nobody_dies_of_the_store(world: World) {
    let mut dice = Dice(world.seed() * 104_729);
    let prefix = format!("t2-{}-", world.seed());
    let size = 1 + world.seed();
    let cluster = cluster(&world, size as usize, world.seed().is_multiple_of(3)).await;
    let client = cluster.client().await;
    bend_clocks(&cluster, &mut dice);
    let work = load(&client, world.seed(), &prefix);
    for _ in 0..8 {
        match dice.roll(7) {
            0 => world.store().be_silent(),
            1 => world.store().fail(Failure::LostAnswer),
            2 => world.store().fail(Failure::Unavailable),
            3 => world.store().fail(Failure::Conflict),
            4 => world.store().be_slow(millis(300 + dice.roll(4_000))),
            5 if size > 2 => cluster.cut(0, 1),
            _ => cluster.cut_from_store(dice.roll(size) as usize),
        }
        world.advance(millis(dice.roll(40_000))).await;
        world.store().recover();
        cluster.heal();
        world.advance(millis(dice.roll(20_000))).await;
    }
    for node in cluster.nodes() {
        assert!(!node.has_ended(), "{} ended: {}", node.address(), node.terminated().await);
    }
    all_is_well(&world, &cluster, &client, &prefix).await;
    drop(work);
    nothing_was_stale(&prefix);
}

/// Trouble of one silo never kills another one.
#[emmer::test(seeds = 5)]
async fn nobody_dies_of_the_trouble_of_another(world: World) {
    let mut dice = Dice(world.seed() * 15_485_863);
    let prefix = format!("t3-{}-", world.seed());
    let cluster = cluster(&world, 3 + dice.roll(4) as usize, world.seed().is_multiple_of(3)).await;
    let client = cluster.client().await;
    let work = load(&client, world.seed(), &prefix);
    for _ in 0..8 {
        match dice.roll(5) {
            0 => cluster.isolate(0),
            1 => cut_one_way(&cluster, 0, true),
            2 => cut_one_way(&cluster, 0, false),
            3 => cluster.pause(0),
            _ => cluster.cut_from_store(0),
        }
        world.advance(millis(dice.roll(9_000))).await;
        cluster.resume(0);
        cluster.heal();
        world.advance(millis(dice.roll(5_000))).await;
    }
    for node in &cluster.nodes()[1..] {
        assert!(!node.has_ended(), "{} ended: {}", node.address(), node.terminated().await);
    }
    all_is_well(&world, &cluster, &client, &prefix).await;
    drop(work);
    nothing_was_stale(&prefix);
}
