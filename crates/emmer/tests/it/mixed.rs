//! Silos that host different grain types.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use emmer::interface::Interface;
use emmer::placement::{PlacementContext, PlacementTarget};
use emmer::prelude::*;
use emmer::tables::{GrainId, GrainTypeId, SiloAddress};
use emmer::test::{Cluster, NetModel, World};
use emmer::{Client, SiloBuilder};

use crate::common::class;

class!(Apple, AppleGrain,);
class!(Berry, BerryGrain,);
class!(Cherry, CherryGrain, #[placement(hash_based)]);
class!(Date, DateGrain, #[placement(silo_role = "back")]);
class!(Elder, ElderGrain, #[placement("first")]);
class!(Fig, FigGrain, #[placement(stateless_worker = 2)]);

fn first(_: &PlacementTarget<'_>, context: &PlacementContext<'_>) -> Option<SiloAddress> {
    context.silos.first().copied()
}

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A cluster of silos, each of the kind that `kinds` gives for its number.
async fn cluster(
    world: &World,
    silos: usize,
    kinds: impl Fn(u64, SiloBuilder) -> SiloBuilder + 'static,
) -> Cluster {
    let started = AtomicU64::new(0);
    let describe = move |silo: SiloBuilder| kinds(started.fetch_add(1, Ordering::Relaxed), silo);
    world.cluster(silos, describe).await
}

/// Apples only, berries only, both, and nothing at all.
fn fruit(n: u64, silo: SiloBuilder) -> SiloBuilder {
    match n % 4 {
        0 => silo.host::<dyn Apple, AppleGrain>(),
        1 => silo.host::<dyn Berry, BerryGrain>(),
        2 => silo.host::<dyn Apple, AppleGrain>().host::<dyn Berry, BerryGrain>(),
        _ => silo,
    }
}

fn addresses(cluster: &Cluster, nodes: &[usize]) -> BTreeSet<SiloAddress> {
    nodes.iter().map(|node| cluster.node(*node).address()).collect()
}

#[emmer::test(seeds = 10)]
async fn a_call_comes_to_a_silo_that_hosts_the_grain_from_wherever_it_is_made(world: World) {
    let cluster = cluster(&world, 4, fruit).await;
    let mut apples = BTreeMap::<u64, SiloAddress>::new();
    let mut berries = BTreeMap::<u64, SiloAddress>::new();
    for node in 0..4 {
        let called = cluster.node(node).run(async move |silo| {
            let mut called = Vec::new();
            // Every second grain is new, the others were called from elsewhere before.
            for key in 0..20 * (node as u64 + 1) {
                let apple = silo.grain::<dyn Apple>(key).silo().await.unwrap();
                let berry = silo.grain::<dyn Berry>(key).silo().await.unwrap();
                called.push((key, apple, berry));
            }
            called
        });
        for (key, apple, berry) in called.await.unwrap() {
            assert_eq!(*apples.entry(key).or_insert(apple), apple, "apple {key} from {node}");
            assert_eq!(*berries.entry(key).or_insert(berry), berry, "berry {key} from {node}");
        }
    }
    for key in 0..200 {
        let client = cluster.client().await;
        apples.entry(key).or_insert(client.grain::<dyn Apple>(key).silo().await.unwrap());
        berries.entry(key).or_insert(client.grain::<dyn Berry>(key).silo().await.unwrap());
    }
    let used = |places: BTreeMap<u64, SiloAddress>| places.into_values().collect::<BTreeSet<_>>();
    assert_eq!(used(apples), addresses(&cluster, &[0, 2]));
    assert_eq!(used(berries), addresses(&cluster, &[1, 2]));
}

#[emmer::test(seeds = 10)]
async fn what_nobody_hosts_is_rejected_at_once_with_the_names_of_what_is_hosted(world: World) {
    let cluster = cluster(&world, 4, fruit).await;
    world.advance(secs(3)).await;
    for node in 0..4 {
        let before = world.elapsed();
        let failed = cluster
            .node(node)
            .run(async |silo| silo.grain::<dyn Cherry>(1).silo().await.unwrap_err());
        let failure = failed.await.unwrap();
        assert!(matches!(failure, CallError::Rejected { .. }), "{failure:?}");
        let [apple, berry] =
            [<dyn Apple as Interface>::GRAIN_TYPE, <dyn Berry as Interface>::GRAIN_TYPE];
        let told = format!("Hosted are: {apple} by 2 silos, {berry} by 2 silos");
        assert!(failure.to_string().contains(&told), "{failure}");
        assert!(world.elapsed() - before < secs(1), "it took {:?}", world.elapsed() - before);
    }
}

#[emmer::test(seeds = 10)]
async fn a_type_whose_only_host_is_away_is_waited_for(world: World) {
    let mut cluster = cluster(&world, 2, |n, silo| match n % 2 {
        0 => silo.host::<dyn Apple, AppleGrain>(),
        _ => silo.host::<dyn Berry, BerryGrain>(),
    })
    .await;
    let client = cluster.client().await;
    client.grain::<dyn Berry>(1).silo().await.unwrap();
    cluster.kill(1);
    world.advance(secs(10)).await;
    let asked = tokio::spawn(async move {
        client.grain::<dyn Berry>(1).silo().timeout(secs(50)).await.unwrap()
    });
    world.advance(secs(20)).await;
    assert!(!asked.is_finished());
    cluster.describe(|silo| silo.host::<dyn Berry, BerryGrain>());
    cluster.restart(1).await;
    assert_eq!(asked.await.unwrap(), cluster.node(1).address());
}

/// The silo that has the hash of a cherry among `silos`.
fn by_hash(silos: &BTreeSet<SiloAddress>, key: u64) -> SiloAddress {
    let grain_type = GrainTypeId::of(<dyn Cherry as Interface>::GRAIN_TYPE);
    let place = GrainId::new(grain_type, key).stable_hash() % silos.len() as u64;
    *silos.iter().nth(usize::try_from(place).unwrap()).unwrap()
}

/// The first hosts nothing; the others differ by their role.
fn placed(n: u64, silo: SiloBuilder) -> SiloBuilder {
    let role = if n < 3 { "front" } else { "back" };
    let silo = silo.configure(move |options| options.role = Some(role.to_owned()));
    if n == 0 {
        return silo;
    }
    silo.host::<dyn Cherry, CherryGrain>()
        .host::<dyn Date, DateGrain>()
        .host::<dyn Elder, ElderGrain>()
        .host::<dyn Fig, FigGrain>()
        .director("first", first)
}

#[emmer::test(seeds = 5)]
async fn a_silo_places_grains_that_it_does_not_host_as_their_class_says(world: World) {
    let cluster = cluster(&world, 5, placed).await;
    world.advance(secs(3)).await;
    let called = cluster.node(0).run(async |silo| {
        let mut called = Vec::new();
        for key in 0..40 {
            let cherry = silo.grain::<dyn Cherry>(key).silo().await.unwrap();
            let date = silo.grain::<dyn Date>(key).silo().await.unwrap();
            let mut figs = BTreeSet::new();
            for _ in 0..40 {
                figs.insert(silo.grain::<dyn Fig>(1).silo().await.unwrap());
            }
            called.push((key, cherry, date, figs));
        }
        let elder = silo.grain::<dyn Elder>(1).silo().await.unwrap_err();
        (called, elder)
    });
    let (called, elder) = called.await.unwrap();
    let hosting = addresses(&cluster, &[1, 2, 3, 4]);
    let mut dates = BTreeSet::new();
    for (key, cherry, date, figs) in called {
        assert_eq!(cherry, by_hash(&hosting, key));
        dates.insert(date);
        // Workers are registered nowhere and remembered nowhere: each call goes anywhere.
        assert!(figs.len() > 1 && figs.is_subset(&hosting), "{figs:?}");
    }
    assert_eq!(dates, addresses(&cluster, &[3, 4]));
    let told = elder.to_string();
    assert!(told.contains("no placement director is registered as \"first\""), "{told}");
    let there = cluster.node(1).run(async |silo| silo.grain::<dyn Elder>(1).silo().await.unwrap());
    assert_eq!(Some(&there.await.unwrap()), hosting.first());
}

/// Calls grains of one type until it is stopped. Returns the number of answered calls.
macro_rules! caller {
    ($name:ident, $interface:ident) => {
        async fn $name(client: Client, stop: Arc<AtomicU64>) -> u64 {
            let mut calls = 0;
            while stop.load(Ordering::Relaxed) == 0 {
                let key = calls % 50;
                let called = client.grain::<dyn $interface>(key).silo().timeout(secs(30)).await;
                if let Err(failure) = called {
                    panic!("call {calls} failed: {failure}");
                }
                calls += 1;
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
            calls
        }
    };
}

caller!(call_apples, Apple);
caller!(call_berries, Berry);

#[emmer::test(seeds = 10)]
async fn a_rolling_upgrade_that_brings_a_grain_type_and_takes_it_back_loses_no_call(world: World) {
    let mut cluster = world.cluster(3, |silo| silo.host::<dyn Apple, AppleGrain>()).await;
    let stops = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
    let apples = tokio::spawn(call_apples(cluster.client().await, stops[0].clone()));
    cluster.describe(|silo| silo.host::<dyn Apple, AppleGrain>().host::<dyn Berry, BerryGrain>());
    let mut berries = None;
    for node in 0..3 {
        cluster.stop(node).await;
        cluster.restart(node).await;
        if berries.is_none() {
            // The others have to have heard of it: no call waits for a type that no silo was known
            // to host.
            world.advance(secs(2)).await;
            let client = cluster.client().await;
            berries = Some(tokio::spawn(call_berries(client, stops[1].clone())));
        }
        world.advance(secs(1)).await;
    }
    cluster.describe(|silo| silo.host::<dyn Apple, AppleGrain>());
    for node in 0..3 {
        if node == 2 {
            stops[1].store(1, Ordering::Relaxed);
            assert!(berries.take().unwrap().await.unwrap() > 1_000);
        }
        cluster.stop(node).await;
        cluster.restart(node).await;
        world.advance(secs(1)).await;
    }
    stops[0].store(1, Ordering::Relaxed);
    assert!(apples.await.unwrap() > 1_000);
}

#[emmer::test(seeds = 20)]
async fn a_silo_that_is_new_calls_at_once_what_it_alone_hosts(world: World) {
    let mut cluster = world.cluster(3, |silo| silo.host::<dyn Apple, AppleGrain>()).await;
    cluster.describe(|silo| silo.host::<dyn Apple, AppleGrain>().host::<dyn Berry, BerryGrain>());
    // It knows that it is Active long before the others.
    let delay_max = Duration::from_millis(200);
    world.net().set_model(NetModel { delay_max, ..NetModel::default() });
    let new = cluster.add().await;
    let called = cluster.node(new).run(async |silo| {
        for key in 0..30 {
            silo.grain::<dyn Berry>(key).silo().await.unwrap();
        }
    });
    assert!(called.await.is_some());
}
