//! Silos that an operator cordons, drains and stops.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use emmer::SiloBuilder;
use emmer::options::ClientOptions;
use emmer::prelude::*;
use emmer::store::{DutyChange, DutyError, SiloTable};
use emmer::tables::{Duty, Timestamp};
use emmer::test::{Cluster, Failure, World};

#[grain_interface(key = u64)]
trait Tally {
    async fn add(&mut self, n: u64) -> u64;
    /// Sets the duration in milliseconds of this activation's deactivate hook.
    async fn end_slowly(&mut self, ms: u64);
}

#[derive(Grain, Default)]
struct TallyGrain {
    #[carry]
    sum: u64,
    last_words: Option<Duration>,
}

#[grain]
impl Tally for TallyGrain {
    async fn add(&mut self, n: u64) -> u64 {
        self.sum += n;
        self.sum
    }

    async fn end_slowly(&mut self, ms: u64) {
        self.last_words = Some(millis(ms));
    }
}

impl Lifecycle for TallyGrain {
    async fn deactivate(&mut self, _: &Ctx, _: DeactivationReason) {
        if let Some(pause) = self.last_words {
            tokio::time::sleep(pause).await;
        }
    }
}

fn tallies(silo: SiloBuilder) -> SiloBuilder {
    silo.host::<dyn Tally, TallyGrain>()
}

/// An operator's command, which knows nothing but the store and a gateway.
async fn command(world: &World, cluster: &Cluster, n: usize, duty: Duty) {
    let table = SiloTable::new(world.store().tables(), ClientOptions::default().cluster_id);
    let change = DutyChange {
        silo: cluster.node(n).address(),
        duty,
        from: None,
        writer: "a command",
        because: "a person",
        at: Timestamp::from_millis(1),
    };
    let (written, _) = table.change_duty(&change).await.unwrap();
    assert!(written.is_new);
    cluster.client().await.table_has_changed();
}

async fn call_new_grains(client: &Client, keys: std::ops::Range<u64>) {
    for key in keys {
        assert_eq!(client.grain::<dyn Tally>(key).add(1).await.unwrap(), 1);
    }
}

#[emmer::test(seeds = 3)]
async fn the_cluster_obeys_a_command_in_the_table(world: World) {
    let cluster = world.cluster(3, tallies).await;
    let client = cluster.client().await;
    command(&world, &cluster, 1, Duty::Cordoned).await;
    world.advance(secs(2)).await;
    for node in cluster.nodes() {
        let cordoned = node.address() == cluster.node(1).address();
        assert_eq!(node.duty(), if cordoned { Duty::Cordoned } else { Duty::Full });
    }
    call_new_grains(&client, 0..60).await;
    assert_eq!(cluster.node(1).statistics().activations, 0, "it takes no new grain");
    command(&world, &cluster, 1, Duty::Full).await;
    world.advance(secs(2)).await;
    call_new_grains(&client, 100..160).await;
    let taken = cluster.node(1).statistics().activations;
    assert!(taken > 5, "{taken}");
    // Without a word to any silo, all of them see it within a minute.
    let table = SiloTable::new(world.store().tables(), ClientOptions::default().cluster_id);
    let silo = cluster.node(2).address();
    let change = DutyChange {
        silo,
        duty: Duty::Draining,
        from: None,
        writer: "a command",
        because: "a person",
        at: Timestamp::from_millis(1),
    };
    table.change_duty(&change).await.unwrap();
    world.advance(secs(75)).await;
    assert_eq!(cluster.node(2).duty(), Duty::Drained);
    assert_eq!(cluster.node(2).statistics().activations, 0);
}

/// No call fails while a silo leaves on an operator's word, and none is lost.
#[emmer::test(seeds = 3)]
async fn a_silo_leaves_at_a_command(world: World) {
    let cluster = world.cluster(3, tallies).await;
    let client = cluster.client().await;
    let grains = 40u64;
    call_new_grains(&client, 0..grains).await;
    let stop = Arc::new(AtomicBool::new(false));
    let caller = {
        let stop = stop.clone();
        tokio::spawn(async move {
            let mut round = 1;
            while !stop.load(Ordering::Relaxed) {
                round += 1;
                for key in 0..grains {
                    let sum = client.grain::<dyn Tally>(key).add(1).await;
                    assert_eq!(sum.unwrap(), round, "grain {key}");
                    tokio::time::sleep(millis(1)).await;
                }
            }
        })
    };
    command(&world, &cluster, 2, Duty::Leaving).await;
    let ended = cluster.node(2).run_until_stopped().await;
    assert!(matches!(ended, Some(Ok(()))), "a process that was told to stop has done well");
    world.advance(secs(1)).await;
    stop.store(true, Ordering::Relaxed);
    caller.await.unwrap();
    let error = cluster.node(2).cordon().await.unwrap_err();
    assert!(matches!(error, DutyError::NotActive(..)), "{error}");
}

#[emmer::test(seeds = 2)]
async fn the_last_silos_serve_new_grains_although_they_are_cordoned(world: World) {
    let cluster = world.cluster(2, tallies).await;
    let client = cluster.client().await;
    cluster.node(0).cordon().await.unwrap();
    cluster.node(1).cordon().await.unwrap();
    world.advance(secs(2)).await;
    call_new_grains(&client, 0..40).await;
    // One that is drained is worse than one that is cordoned.
    cluster.node(1).drain().await.unwrap();
    world.advance(secs(2)).await;
    call_new_grains(&client, 100..140).await;
    assert_eq!(cluster.node(1).statistics().activations, 0);
}

#[emmer::test(seeds = 2)]
async fn a_drain_ends_when_it_is_taken_back(world: World) {
    let cluster = world.cluster(2, tallies).await;
    let client = cluster.client().await;
    for key in 0..1_200u64 {
        let tally = client.grain::<dyn Tally>(key);
        tally.add(1).await.unwrap();
        tally.end_slowly(1_000).await.unwrap();
    }
    // They are idle: they end, and do not move.
    world.advance(secs(90)).await;
    let node = cluster.node(0);
    let had = node.statistics().activations;
    assert!(had > 300, "{had}");
    let drain = node.drain();
    let back = async {
        world.advance(millis(100)).await;
        node.uncordon().await.unwrap();
    };
    let (moved, ()) = tokio::join!(drain, back);
    moved.unwrap();
    world.advance(secs(3)).await;
    let left = node.statistics().activations;
    assert!((1..had).contains(&left), "{left} of {had} are left");
    assert_eq!(node.duty(), Duty::Full);
}

#[emmer::test(seeds = 2)]
async fn a_duty_that_the_table_did_not_take_changes_nothing(world: World) {
    let cluster = world.cluster(2, tallies).await;
    let client = cluster.client().await;
    world.store().fail(Failure::Unavailable);
    let error = cluster.node(1).cordon().await.unwrap_err();
    assert!(matches!(error, DutyError::Store(_)), "{error}");
    world.store().recover();
    world.advance(secs(5)).await;
    assert_eq!(cluster.node(1).duty(), Duty::Full);
    call_new_grains(&client, 0..60).await;
    assert!(cluster.node(1).statistics().activations > 5);
}

/// The store is away when the silo has become empty: it says so later.
#[emmer::test(seeds = 2)]
async fn a_drained_silo_says_so_when_the_store_is_back(world: World) {
    let cluster = world.cluster(2, tallies).await;
    let client = cluster.client().await;
    call_new_grains(&client, 0..40).await;
    command(&world, &cluster, 1, Duty::Draining).await;
    world.store().fail_next_write("VersionRow", Failure::Unavailable);
    world.advance(secs(30)).await;
    assert_eq!(cluster.node(1).duty(), Duty::Drained);
    assert_eq!(cluster.node(1).statistics().activations, 0);
}

/// A client may say that the table has changed as often as it likes.
#[emmer::test(seeds = 2)]
async fn a_flood_of_news_costs_two_reads_a_second(world: World) {
    let cluster = world.cluster(1, tallies).await;
    let client = cluster.client().await;
    world.advance(secs(5)).await;
    let (before, _) = world.store().requests();
    for _ in 0..2_000 {
        client.table_has_changed();
        world.advance(millis(5)).await;
    }
    let (reads, _) = world.store().requests();
    assert!(reads - before < 40, "{} reads in ten seconds", reads - before);
}

/// A silo that joined later gets its share at once, and the givers say when they are done.
#[emmer::test(seeds = 2)]
async fn silos_give_grains_once_when_an_operator_asks(world: World) {
    let mut cluster = world.cluster(2, tallies).await;
    let client = cluster.client().await;
    let grains = 600u64;
    call_new_grains(&client, 0..grains).await;
    let new = cluster.add().await;
    world.advance(secs(3)).await;
    assert_eq!(cluster.node(new).statistics().activations, 0);
    command(&world, &cluster, 0, Duty::Giving).await;
    command(&world, &cluster, 1, Duty::Giving).await;
    world.advance(secs(30)).await;
    for node in cluster.nodes() {
        let has = node.statistics().activations;
        assert_eq!(node.duty(), Duty::Full);
        assert!((180..=220).contains(&has), "{has} of 600 on one of three");
    }
    for key in 0..grains {
        assert_eq!(client.grain::<dyn Tally>(key).add(1).await.unwrap(), 2);
    }
}

/// The last word counts, also while the silo does what an earlier one asked for.
#[emmer::test(seeds = 4)]
async fn the_last_word_of_an_operator_counts(world: World) {
    let cluster = world.cluster(2, tallies).await;
    let client = cluster.client().await;
    let node = cluster.node(1);
    for round in 0..6 {
        call_new_grains(&client, round * 100..round * 100 + 40).await;
        node.drain().await.unwrap();
        node.drain().await.unwrap();
        assert_eq!(node.duty(), Duty::Drained);
        node.uncordon().await.unwrap();
        command(&world, &cluster, 1, Duty::Draining).await;
        node.uncordon().await.unwrap();
        command(&world, &cluster, 1, Duty::Draining).await;
        world.advance(secs(3)).await;
        assert_eq!(node.duty(), Duty::Drained);
        assert_eq!(node.statistics().activations, 0);
        node.uncordon().await.unwrap();
    }
    // The hooks of its grains take longer than the silo has.
    for key in 1_000..1_080u64 {
        let tally = client.grain::<dyn Tally>(key);
        tally.add(1).await.unwrap();
        tally.end_slowly(600_000).await.unwrap();
    }
    world.advance(secs(90)).await;
    command(&world, &cluster, 1, Duty::Draining).await;
    world.advance(secs(2)).await;
    command(&world, &cluster, 1, Duty::Leaving).await;
    let began = world.elapsed();
    assert!(matches!(node.run_until_stopped().await, Some(Ok(()))));
    assert!(world.elapsed() - began < secs(62), "{:?}", world.elapsed() - began);
}
