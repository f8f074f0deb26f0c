//! Faults that users of other actor systems report, tried here in virtual time.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::time::Duration;

use emmer::metrics::MetricValue;
use emmer::observe::Readiness;
use emmer::prelude::*;
use emmer::tables::{SiloStatus, Timestamp};
use emmer::test::{Cluster, Failure, World};
use futures_util::future::join_all;

thread_local! {
    /// A world has one thread: how often the reminder of each grain was told, and when last.
    static TICKS: RefCell<BTreeMap<u64, Vec<Timestamp>>> = const { RefCell::new(BTreeMap::new()) };
}

#[grain_interface(key = u64)]
trait Inner {
    /// Writes on top of the value that it read when it was activated.
    async fn write(&mut self) -> Result<u64, StateError>;
    async fn lives(&self) -> u64;
    /// Its `deactivate` hook never ends.
    async fn rest(&mut self);
    async fn ticks_every(&self, period: Duration) -> bool;
    /// Writes in a timer, a moment later.
    async fn write_soon(&mut self);
    /// Never ends.
    async fn hang(&self);
}

#[derive(Grain)]
struct InnerGrain {
    #[context]
    ctx: Ctx,
    #[state("number")]
    number: Persistent<u64>,
    hangs: bool,
    timer: Option<Timer>,
}

impl InnerGrain {
    async fn add(&mut self) -> Result<u64, StateError> {
        *self.number += 1;
        self.number.write().await?;
        Ok(*self.number)
    }
}

#[grain]
impl Inner for InnerGrain {
    async fn write(&mut self) -> Result<u64, StateError> {
        self.add().await
    }

    async fn lives(&self) -> u64 {
        *self.number
    }

    async fn rest(&mut self) {
        self.hangs = true;
        self.ctx.deactivate_on_idle();
    }

    async fn ticks_every(&self, period: Duration) -> bool {
        self.ctx.remind("tick").every(period).await.is_ok()
    }

    async fn write_soon(&mut self) {
        self.timer = Some(self.ctx.timer(millis(10)).run(Self::write_now));
    }

    async fn hang(&self) {
        std::future::pending::<()>().await;
    }
}

#[grain]
impl InnerGrain {
    async fn write_now(&mut self) -> Result<(), StateError> {
        self.add().await.map(drop)
    }

    #[reminder("tick")]
    async fn on_tick(&mut self, _: Tick) -> Result<(), StateError> {
        let (key, now) = (self.ctx.key().to_string(), self.ctx.now());
        if let Ok(key) = key.parse() {
            TICKS.with_borrow_mut(|ticks| ticks.entry(key).or_default().push(now));
        }
        self.add().await.map(drop)
    }
}

impl Lifecycle for InnerGrain {
    async fn deactivate(&mut self, _: &Ctx, _: DeactivationReason) {
        if self.hangs {
            std::future::pending::<()>().await;
        }
    }
}

/// Calls the grain of another that it makes fail.
#[grain_interface(key = u64)]
trait Outer {
    /// Number of calls before this one, and what the inner grain answered.
    async fn ask(&mut self) -> (u64, Result<u64, String>);
}

#[derive(Grain)]
struct OuterGrain {
    #[context]
    ctx: Ctx,
    asked: u64,
}

#[grain]
impl Outer for OuterGrain {
    async fn ask(&mut self) -> (u64, Result<u64, String>) {
        self.asked += 1;
        let key: u64 = self.ctx.key().to_string().parse().unwrap_or_default();
        let answer = self.ctx.grains().grain::<dyn Inner>(key).write().await;
        (self.asked - 1, answer.map_err(|error| error.to_string()))
    }
}

async fn silos(world: &World, count: usize) -> Cluster {
    TICKS.take();
    let describe = |silo: emmer::SiloBuilder| {
        silo.host::<dyn Inner, InnerGrain>().host::<dyn Outer, OuterGrain>()
    };
    world.cluster(count, describe).await
}

fn active(cluster: &Cluster, n: usize) -> usize {
    let view = cluster.node(n).view();
    view.iter().filter(|(_, status)| *status == SiloStatus::Active).count()
}

/// The key is called from the other silo meanwhile. The call waits for the hook as long as the silo
/// does (`deactivation_timeout`, 30 s), and then continues.
#[emmer::test(seeds = 3)]
async fn a_deactivate_hook_that_never_ends_holds_its_key_for_a_stated_time(world: World) {
    let cluster = silos(&world, 2).await;
    let key = 7;
    let client = cluster.client().await;
    client.grain::<dyn Inner>(key).rest().await.unwrap();
    let begun = world.elapsed();
    for n in [0, 1] {
        let call = async |client: GrainFactory| {
            client.grain::<dyn Inner>(key).lives().timeout(secs(60)).await
        };
        let answer = cluster.node(n).run(call).await;
        assert!(answer.as_ref().is_some_and(Result::is_ok), "{answer:?}");
    }
    let waited = world.elapsed() - begun;
    assert!(waited <= secs(31), "{waited:?}");
    assert_eq!(cluster.activations(), 1);
}

/// A supervisor that starts the process again at once, on its address, fifty times.
#[emmer::test]
async fn fifty_kills_and_restarts_at_the_same_address_leave_one_silo_each(world: World) {
    let mut cluster = silos(&world, 3).await;
    let client = cluster.client().await;
    for round in 0..50 {
        cluster.kill(1);
        world.advance(millis(world.bits() % 200)).await;
        cluster.restart(1).await;
        assert!(!cluster.node(0).has_ended() && !cluster.node(2).has_ended(), "round {round}");
    }
    world.advance(secs(2)).await;
    for n in 0..3 {
        assert_eq!(active(&cluster, n), 3, "silo {n}");
    }
    for key in 0..30 {
        client.grain::<dyn Inner>(key).write().timeout(secs(2)).await.unwrap();
    }
}

/// Half of the silos come back at other addresses, as pods do.
#[emmer::test(seeds = 3)]
async fn half_of_the_silos_at_new_addresses_serve_every_key_soon(world: World) {
    let mut cluster = silos(&world, 4).await;
    let client = cluster.client().await;
    for key in 0..40 {
        client.grain::<dyn Inner>(key).write().await.unwrap();
    }
    for n in [1, 3] {
        cluster.unplug(n);
    }
    for _ in 0..2 {
        cluster.add().await;
    }
    world.advance(secs(10)).await;
    for n in [0, 2, 4, 5] {
        assert_eq!(active(&cluster, n), 4, "silo {n}");
    }
    for key in 0..40 {
        let written = client.grain::<dyn Inner>(key).write().timeout(secs(2)).await.unwrap();
        assert_eq!(written, 2, "key {key}");
    }
}

/// All silos are lost at once, and others start at other addresses: `docs/membership.md` says how
/// long their joins take. An older client finds them.
#[emmer::test(seeds = 3)]
async fn the_first_call_after_all_silos_were_lost_and_started_elsewhere(world: World) {
    let mut cluster = silos(&world, 3).await;
    let client = cluster.client().await;
    client.grain::<dyn Inner>(1).write().await.unwrap();
    let lost = world.elapsed();
    for n in 0..3 {
        cluster.unplug(n);
    }
    for _ in 0..3 {
        cluster.add().await;
    }
    let mut tries = 0;
    loop {
        let written = client.grain::<dyn Inner>(1).write().timeout(secs(5)).await;
        if let Ok(written) = written {
            assert_eq!(written, 2, "what was written is there");
            break;
        }
        tries += 1;
        assert!(tries < 100, "no call is answered");
        world.advance(millis(200)).await;
    }
    let took = world.elapsed() - lost;
    // One after the other: each ignores the lost silos by itself, and two of them can vote.
    assert!(took <= secs(60), "{took:?}");
}

/// The reminders of a silo without the store are late, those of the others are not. All continue
/// when it has the store again, and its metrics show the trouble meanwhile.
#[emmer::test]
async fn a_silo_without_the_store_for_ten_minutes_resumes_its_reminders(world: World) {
    let cluster = silos(&world, 3).await;
    let client = cluster.client().await;
    for key in 0..60 {
        let is_set = client.grain::<dyn Inner>(key).ticks_every(secs(60)).await.unwrap();
        assert!(is_set);
    }
    world.advance(secs(90)).await;
    TICKS.take();
    cluster.cut_from_store(2);
    world.advance(secs(60)).await;
    let errors = |n: usize| {
        let all = cluster.node(n).watch().metrics();
        let failed = all.iter().filter(|sample| {
            sample.title().starts_with("emmer_store_requests_total")
                && sample.labels.iter().any(|label| label == "error")
        });
        failed.filter(|sample| !matches!(sample.value, MetricValue::Count(0))).count()
    };
    assert!(errors(2) > 0 && errors(0) == 0, "{} {}", errors(2), errors(0));
    assert_eq!(cluster.node(0).watch().readiness(), Readiness::Ready);
    world.advance(secs(540)).await;
    let during = TICKS.take();
    cluster.heal();
    world.advance(secs(120)).await;
    let after = TICKS.take();
    let count = |key: &u64| during.get(key).map_or(0, Vec::len);
    let in_time = (0..60).filter(|key| count(key) >= 8).count();
    assert!(in_time >= 15, "{in_time} of 60 reminders were told every minute");
    for key in 0..60 {
        let ticks = after.get(&key).map_or(0, Vec::len);
        assert!((1..=4).contains(&ticks), "{key} was told {ticks} times in two minutes");
    }
}

/// In a call from another grain, in a timer and in a reminder: the grain that lost is made again,
/// and no other.
#[emmer::test]
async fn a_write_conflict_ends_the_grain_that_lost_and_no_other(world: World) {
    let cluster = silos(&world, 2).await;
    let client = cluster.client().await;
    const KEY: u64 = 987_654;
    let (outer, inner) = (client.grain::<dyn Outer>(KEY), client.grain::<dyn Inner>(KEY));
    assert_eq!(outer.ask().await.unwrap(), (0, Ok(1)));
    let conflict = || world.store().fail_next_write("987654", Failure::Conflict);
    conflict();
    let (asked, answer) = outer.ask().await.unwrap();
    let is_conflict = answer.as_ref().is_err_and(|why| why.contains("changed by another process"));
    assert!(asked == 1 && is_conflict, "{asked} {answer:?}");
    // The caller is the same activation, and the callee reads the stored value.
    assert_eq!(outer.ask().await.unwrap(), (2, Ok(2)));
    conflict();
    inner.write_soon().await.unwrap();
    world.advance(secs(1)).await;
    assert_eq!(outer.ask().await.unwrap(), (3, Ok(3)));
    assert!(inner.ticks_every(secs(30)).await.unwrap());
    world.advance(secs(29)).await;
    conflict();
    world.advance(secs(2)).await;
    // A tick that failed is repeated.
    world.advance(secs(15)).await;
    assert_eq!(inner.lives().await.unwrap(), 4);
    assert_eq!(outer.ask().await.unwrap(), (4, Ok(5)));
}

/// A turn that never ends keeps its own key, and nothing else.
#[emmer::test]
async fn a_turn_that_never_ends_keeps_its_own_key_only(world: World) {
    let cluster = silos(&world, 2).await;
    let client = cluster.client().await;
    assert!(client.grain::<dyn Inner>(1).hang().timeout(secs(2)).await.is_err());
    assert!(client.grain::<dyn Inner>(1).write().timeout(secs(2)).await.is_err());
    for key in 2..30 {
        client.grain::<dyn Inner>(key).write().timeout(secs(2)).await.unwrap();
    }
    // Its silo leaves in the time that it states, and the key is free.
    let serves = |n: &usize| cluster.node(*n).statistics().calls_serving > 0;
    let holder = (0..2).find(serves).unwrap();
    let begun = world.elapsed();
    cluster.stop(holder).await;
    let took = world.elapsed() - begun;
    assert!(took <= secs(60), "{took:?}");
    client.grain::<dyn Inner>(1).write().timeout(secs(10)).await.unwrap();
}

/// The answers of one silo's directory to another are lost while thousands of grains are called for
/// the first time: every registration is found, used or given back.
#[emmer::test]
async fn registrations_whose_answers_are_lost_leave_one_activation_each(world: World) {
    const KEYS: u64 = 3_000;
    let cluster = silos(&world, 3).await;
    let client = cluster.client().await;
    cluster.cut(1, 0);
    let call = |key| client.grain::<dyn Inner>(key).lives().timeout(secs(1)).into_future();
    let answered = join_all((0..KEYS).map(call)).await;
    let failed = answered.iter().filter(|answer| answer.is_err()).count();
    assert!(failed > 0, "no answer was lost");
    cluster.heal();
    world.advance(secs(10)).await;
    for key in 0..KEYS {
        client.grain::<dyn Inner>(key).lives().timeout(secs(5)).await.unwrap();
    }
    assert_eq!(cluster.activations(), KEYS);
}

/// A silo is killed that had a thousand hot grains, and all are called at once. The store is read
/// about once for each, and grains of the other silos answer meanwhile.
#[emmer::test(seeds = 3)]
async fn hot_grains_of_a_killed_silo_keep_no_other_grain_waiting(world: World) {
    const KEYS: u64 = 1_000;
    let mut cluster = silos(&world, 1).await;
    let client = cluster.client().await;
    let write = |key| client.grain::<dyn Inner>(key).write().into_future();
    for written in join_all((0..KEYS).map(write)).await {
        assert_eq!(written.unwrap(), 1);
    }
    for _ in 0..2 {
        cluster.add().await;
    }
    world.advance(secs(10)).await;
    cluster.kill(0);
    world.advance(secs(2)).await;
    for key in KEYS..KEYS + 20 {
        client.grain::<dyn Inner>(key).write().timeout(secs(5)).await.unwrap();
    }
    let store = world.store();
    let (reads, _) = store.requests();
    store.limit_connections(4);
    store.be_slow(millis(5));
    let answered = Cell::new(false);
    let hot = async {
        let call = |key| client.grain::<dyn Inner>(key).lives().timeout(secs(20)).into_future();
        let answers = join_all((0..KEYS).map(call)).await;
        answered.set(true);
        answers.into_iter().for_each(|number| assert_eq!(number.unwrap(), 1));
    };
    let others = async {
        for key in (KEYS..KEYS + 20).cycle() {
            if answered.get() {
                break;
            }
            let called = world.elapsed();
            client.grain::<dyn Inner>(key).lives().timeout(secs(5)).await.unwrap();
            let took = world.elapsed() - called;
            assert!(took <= millis(20), "{took:?}");
            world.advance(millis(10)).await;
        }
    };
    tokio::join!(hot, others);
    let read = store.requests().0 - reads;
    assert!(read <= KEYS + KEYS / 5, "{read} reads");
}

/// Longest time for which a connection that a firewall has forgotten fails calls.
const SILENT_FOR: Duration = millis(4_500);

/// One call after the other, each given up long before the connection counts as silent.
#[emmer::test(seeds = 3)]
async fn a_forgotten_connection_is_left_whatever_the_timeout_of_calls(world: World) {
    for timeout in [millis(100), secs(2)] {
        let cluster = silos(&world, 2).await;
        let client = cluster.client().await;
        let call = || client.grain::<dyn Inner>(3).lives().timeout(timeout).into_future();
        client.grain::<dyn Inner>(3).lives().await.unwrap();
        cluster.forget_all_connections();
        let begun = world.elapsed();
        while call().await.is_err() {
            let waited = world.elapsed() - begun;
            assert!(waited <= SILENT_FOR + timeout, "{timeout:?}: {waited:?}");
        }
    }
}

/// Calls without an answer tell nothing by themselves.
#[emmer::test(seeds = 3)]
async fn a_forgotten_connection_is_left_by_a_client_that_only_sends(world: World) {
    let cluster = silos(&world, 2).await;
    let client = cluster.client().await;
    let sent = client.grain::<dyn Inner>(3);
    sent.write().send().unwrap();
    world.advance(secs(1)).await;
    cluster.forget_all_connections();
    // The first call on a silent connection starts the time of its silence.
    sent.write().send().unwrap();
    let begun = world.elapsed();
    let observer = cluster.client().await;
    let seen = || observer.grain::<dyn Inner>(3).lives().timeout(secs(2)).into_future();
    while !seen().await.is_ok_and(|number| number >= 2) {
        let waited = world.elapsed() - begun;
        assert!(waited <= SILENT_FOR + millis(500), "{waited:?}");
        sent.write().send().unwrap();
        world.advance(millis(50)).await;
    }
}
