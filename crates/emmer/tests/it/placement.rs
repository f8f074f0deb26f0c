//! Where activations go: the strategies, and directors of an application's own.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use emmer::calls::Rejection;
use emmer::errors::StartError;
use emmer::interface::Interface;
use emmer::metrics::MetricValue;
use emmer::placement::{PlacementContext, PlacementTarget, Strategy};
use emmer::prelude::*;
use emmer::tables::{ClusterId, GrainId, GrainTypeId, SiloAddress};
use emmer::test::{Cluster, World};

use crate::common::class;

/// The sample of the book; its main function runs three silos on real sockets.
#[path = "../../examples/nearest.rs"]
#[allow(missing_docs, unreachable_pub)]
mod nearest;

#[test]
fn the_sample_with_a_director_of_its_own_runs() {
    nearest::main().unwrap();
}

class!(Hashed, HashedGrain, #[placement(hash_based)]);
class!(Told, ToldGrain, #[placement("told", "second")]);
class!(Plain, PlainGrain,);
class!(Near, NearGrain, #[placement(prefer_local)]);
class!(Counted, CountedGrain, #[placement(activation_count)]);

/// The second silo where its data says so; whatever else goes wrong with keys from 100 on.
fn told(target: &PlacementTarget<'_>, context: &PlacementContext<'_>) -> Option<SiloAddress> {
    let Strategy::Custom(custom) = target.strategy else { panic!("another strategy") };
    let key: u64 = target.grain.key().to_string().parse().unwrap();
    match key {
        0..100 if custom.data::<String>().unwrap() == "second" => context.silos.get(1).copied(),
        100 => panic!("no idea"),
        101 => None,
        _ => Some("10.9.9.9:1:1".parse().unwrap()),
    }
}

async fn cluster(world: &World) -> Cluster {
    let describe = |silo: emmer::SiloBuilder| {
        silo.host::<dyn Hashed, HashedGrain>()
            .host::<dyn Told, ToldGrain>()
            .host::<dyn Plain, PlainGrain>()
            .director("told", told)
            .default_placement(Strategy::HashBased)
    };
    world.cluster(3, describe).await
}

fn addresses(cluster: &Cluster) -> Vec<SiloAddress> {
    let mut all: Vec<_> = cluster.nodes().iter().map(emmer::test::Node::address).collect();
    all.sort_unstable();
    all
}

/// Where the hash of a grain says that it is.
fn by_hash(silos: &[SiloAddress], grain_type: &str, key: u64) -> SiloAddress {
    let hash = GrainId::new(GrainTypeId::of(grain_type), key).stable_hash();
    silos[usize::try_from(hash % 3).unwrap()]
}

#[emmer::test(seeds = 3)]
async fn hash_based_grains_are_where_their_hash_says_by_attribute_and_by_default(world: World) {
    let cluster = cluster(&world).await;
    let silos = addresses(&cluster);
    let mut used = BTreeSet::new();
    for key in 0..30u64 {
        let client = cluster.client().await;
        let at = client.grain::<dyn Hashed>(key).silo().await.unwrap();
        assert_eq!(at, by_hash(&silos, <dyn Hashed as Interface>::GRAIN_TYPE, key));
        let plain = client.grain::<dyn Plain>(key).silo().await.unwrap();
        assert_eq!(plain, by_hash(&silos, <dyn Plain as Interface>::GRAIN_TYPE, key));
        used.insert(at);
    }
    assert_eq!(used.len(), 3);
}

#[emmer::test(seeds = 3)]
async fn a_call_that_nobody_serves_is_told_so_by_names(world: World) {
    let hosting = |silo: emmer::SiloBuilder| {
        let silo = silo.configure(|options| options.list_types_to_clients = true);
        silo.host::<dyn Plain, PlainGrain>()
    };
    let cluster = world.cluster(1, hosting).await;
    let own = cluster.node(0).run(async |silo| silo.grain::<dyn Told>(1).silo().await.unwrap_err());
    let client = cluster.client().await;
    let through_gateway = client.grain::<dyn Told>(1).silo().await.unwrap_err();
    for error in [own.await.unwrap(), through_gateway] {
        let CallError::Rejected { why: Rejection::NoSuchGrainType(_), .. } = &error else {
            panic!("{error:?}")
        };
        let said = error.to_string();
        let name = <dyn Plain as Interface>::GRAIN_TYPE;
        let told = <dyn Told as Interface>::GRAIN_TYPE;
        let hosted = format!("no active silo hosts grains of this type. Hosted are: {name} by one");
        assert!(said.starts_with(&format!("{told}/1.silo: ")) && said.contains(&hosted), "{said}");
        let number = GrainTypeId::of(<dyn Told as Interface>::GRAIN_TYPE).to_string();
        assert!(!said.contains(&number), "{said} has the number {number}");
    }
}

#[emmer::test(seeds = 3)]
async fn a_director_places_by_what_the_class_says_and_its_mistakes_end_their_own_calls_only(
    world: World,
) {
    let cluster = cluster(&world).await;
    let silos = addresses(&cluster);
    let client = cluster.client().await;
    for (key, words) in [(100, "panicked: no idea"), (101, "chose none"), (102, "10.9.9.9:1:1")] {
        let error = client.grain::<dyn Told>(key).silo().await.unwrap_err().to_string();
        assert!(error.contains("told") && error.contains(words), "{error}");
    }
    for key in 0..5 {
        assert_eq!(client.grain::<dyn Told>(key).silo().await.unwrap(), silos[1]);
    }
}

/// Three silos. The second one has `filled` activations, and the others know it.
async fn one_has_more(world: &World, filled: u64, limit: usize) -> (Cluster, SiloAddress) {
    let describe = move |silo: emmer::SiloBuilder| {
        silo.configure(move |options| {
            options.limits.activations_max = limit;
            options.collection_age = secs(3_600);
        })
        .host::<dyn Told, ToldGrain>()
        .host::<dyn Near, NearGrain>()
        .host::<dyn Counted, CountedGrain>()
        .host::<dyn Light, LightGrain>()
        .host::<dyn Plain, PlainGrain>()
        .director("told", told)
    };
    let cluster = world.cluster(3, describe).await;
    // The silos count as new for thirty seconds.
    tokio::time::sleep(secs(40)).await;
    let client = cluster.client().await;
    let home = addresses(&cluster)[1];
    for key in 0..filled {
        assert_eq!(client.grain::<dyn Told>(key).silo().await.unwrap(), home);
    }
    tokio::time::sleep(secs(3)).await;
    (cluster, home)
}

#[emmer::test(seeds = 3)]
async fn counted_grains_go_where_fewer_are(world: World) {
    let (cluster, home) = one_has_more(&world, 60, 1_000).await;
    let client = cluster.client().await;
    let mut counts: BTreeMap<SiloAddress, u64> = BTreeMap::new();
    for key in 0..40 {
        *counts.entry(client.grain::<dyn Counted>(key).silo().await.unwrap()).or_default() += 1;
    }
    assert!(!counts.contains_key(&home), "{counts:?}, and {home} had more");
    assert!(counts.len() == 2 && counts.values().all(|count| *count >= 15), "{counts:?}");
}

class!(Light, LightGrain, #[placement(resource_optimized)]);

#[emmer::test(seeds = 3)]
async fn resource_optimized_grains_go_where_fewer_are_when_nothing_else_is_known(world: World) {
    let (cluster, home) = one_has_more(&world, 60, 1_000).await;
    let client = cluster.client().await;
    let mut counts: BTreeMap<SiloAddress, u64> = BTreeMap::new();
    for key in 0..40 {
        *counts.entry(client.grain::<dyn Light>(key).silo().await.unwrap()).or_default() += 1;
    }
    // Sixty is the most, so that silo scores twenty worse than a silo without any.
    assert!(!counts.contains_key(&home), "{counts:?}, and {home} had more");
    assert_eq!(counts.values().sum::<u64>(), 40, "{counts:?}");
    for node in cluster.nodes() {
        let told = node.statistics();
        assert_eq!((told.cpu_percent, told.memory_percent), (None, None), "no machine is here");
    }
}

#[emmer::test(seeds = 3)]
async fn activations_that_were_not_called_for_ten_minutes_do_not_count(world: World) {
    let (cluster, home) = one_has_more(&world, 60, 1_000).await;
    let client = cluster.client().await;
    let share = async |keys: Range<u64>| {
        let mut share = 0;
        for key in keys {
            share += u64::from(client.grain::<dyn Counted>(key).silo().await.unwrap() == home);
        }
        share
    };
    tokio::time::sleep(secs(9 * 60)).await;
    assert_eq!(share(0..30).await, 0, "they were called within ten minutes");
    tokio::time::sleep(secs(3 * 60)).await;
    let later = share(30..60).await;
    assert!(later >= 15, "{later} of 30 went to the silo with the fewest busy ones");
}

#[emmer::test(seeds = 3)]
async fn a_director_is_asked_once_for_a_grain_wherever_its_call_comes_from(world: World) {
    let asked = Arc::new(AtomicU64::new(0));
    let counted = asked.clone();
    let describe = move |silo: emmer::SiloBuilder| {
        let asked = counted.clone();
        let told = move |target: &PlacementTarget<'_>, context: &PlacementContext<'_>| {
            let number = asked.fetch_add(1, Ordering::Relaxed);
            let key: u64 = target.grain.key().to_string().parse().unwrap();
            assert!(key < 500, "no idea");
            if key >= 400 {
                return None;
            }
            context.silos.get(usize::try_from(number % 3).unwrap()).copied()
        };
        silo.host::<dyn Told, ToldGrain>().director("told", told)
    };
    let cluster = world.cluster(3, describe).await;
    let mut counts: BTreeMap<SiloAddress, u64> = BTreeMap::new();
    for node in cluster.nodes() {
        let calls = node.run(async |silo| {
            let mut found = Vec::new();
            for key in 0..60_u64 {
                let key = key + 60 * u64::from(node.address().ip().to_string().ends_with('1'));
                found.push(silo.grain::<dyn Told>(key).silo().await.unwrap());
            }
            found
        });
        for silo in calls.await.unwrap() {
            *counts.entry(silo).or_default() += 1;
        }
    }
    let grains = asked.load(Ordering::Relaxed);
    assert_eq!(grains, 120, "one question for each grain");
    assert!(counts.values().all(|count| *count >= 40), "{counts:?}");
    // So it is when it panics or has no answer, from a silo's own code and through a gateway.
    let failed = cluster.nodes()[0].run(async |silo| {
        for key in (400..415).chain(500..515) {
            silo.grain::<dyn Told>(key).silo().await.unwrap_err();
        }
    });
    failed.await.unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 150, "one for each call that failed");
    let client = cluster.client().await;
    for key in (420..425).chain(520..525) {
        client.grain::<dyn Told>(key).silo().await.unwrap_err();
    }
    assert_eq!(asked.load(Ordering::Relaxed), 160);
}

#[emmer::test(seeds = 3)]
async fn random_grains_of_a_silos_own_code_are_anywhere_with_the_same_probability(world: World) {
    let cluster = world.cluster(3, |silo| silo.host::<dyn Plain, PlainGrain>()).await;
    let calls = cluster.nodes()[0].run(async |silo| {
        let mut counts: BTreeMap<SiloAddress, u64> = BTreeMap::new();
        for key in 0..600 {
            let at = silo.grain::<dyn Plain>(key).silo().await.unwrap();
            *counts.entry(at).or_default() += 1;
        }
        counts
    });
    let counts = calls.await.unwrap();
    // 200 of 600 each; a share beyond 150 to 250 is seen once in 20,000 times.
    let shares: Vec<u64> = counts.values().copied().collect();
    assert!(shares.len() == 3 && shares.iter().all(|n| (150..=250).contains(n)), "{counts:?}");
}

class!(Front, FrontGrain, #[placement(silo_role = "front")]);

#[emmer::test(seeds = 3)]
async fn grains_that_ask_for_a_role_are_on_silos_of_that_role(world: World) {
    let started = Arc::new(AtomicU64::new(0));
    let describe = move |silo: emmer::SiloBuilder| {
        let is_front = started.fetch_add(1, Ordering::Relaxed) != 1;
        let role = if is_front { "front" } else { "back" };
        silo.configure(move |options| options.role = Some(role.to_owned()))
            .host::<dyn Front, FrontGrain>()
    };
    let cluster = world.cluster(3, describe).await;
    let client = cluster.client().await;
    let mut used = BTreeSet::new();
    for key in 0..40 {
        used.insert(client.grain::<dyn Front>(key).silo().await.unwrap());
    }
    let nodes = cluster.nodes();
    assert_eq!(used, BTreeSet::from([nodes[0].address(), nodes[2].address()]));
    // No other silo takes them where no silo of the role is left.
    for node in [0, 2] {
        cluster.stop(node).await;
    }
    let asked = nodes[1]
        .run(async |silo| silo.grain::<dyn Front>(7).silo().timeout(secs(5)).await.unwrap_err());
    let error = asked.await.unwrap();
    assert!(error.to_string().contains("no active silo has the role \"front\""), "{error}");
}

#[emmer::test(seeds = 3)]
async fn a_silo_that_is_full_gets_nothing_while_there_is_room_elsewhere(world: World) {
    let (cluster, home) = one_has_more(&world, 60, 60).await;
    let client = cluster.client().await;
    for key in 0..50 {
        assert_ne!(client.grain::<dyn Plain>(key).silo().await.unwrap(), home);
        // Not even where the call comes from that silo.
        assert_ne!(client.grain::<dyn Near>(1_000 + key).silo().await.unwrap(), home);
        tokio::time::sleep(secs(1)).await;
    }
}

#[emmer::test(seeds = 3)]
async fn a_call_to_a_silo_that_is_full_and_has_not_said_so_is_rejected_as_overloaded(world: World) {
    let describe = |silo: emmer::SiloBuilder| {
        silo.configure(|options| {
            options.limits.activations_max = 5;
            options.load_period = secs(3_600);
        })
        .host::<dyn Told, ToldGrain>()
        .director("told", told)
    };
    let cluster = world.cluster(3, describe).await;
    let client = cluster.client().await;
    let home = addresses(&cluster)[1];
    for key in 0..5 {
        assert_eq!(client.grain::<dyn Told>(key).silo().await.unwrap(), home);
    }
    let refused = client.grain::<dyn Told>(5).silo().await.unwrap_err();
    assert!(matches!(refused, CallError::Overloaded { .. }), "{refused}");
}

#[tokio::test]
async fn a_class_whose_director_is_missing_is_refused_before_anything_is_opened() {
    let store = || format!("sqlite:///nowhere/{}.db", ASKED.fetch_add(1, Ordering::Relaxed));
    let silo = || Silo::builder().store(store()).cluster_id(ClusterId::new("c").unwrap());
    let lacking = silo().host::<dyn Told, ToldGrain>().director("tolt", told).start().await;
    let Err(error @ StartError::NoDirector { .. }) = lacking else {
        panic!("it started, or looked at the store")
    };
    let text = error.to_string();
    assert!(
        text.contains(<dyn Told as Interface>::GRAIN_TYPE) && text.contains("director(\"told\""),
        "{text}"
    );
    let by_default =
        silo().host::<dyn Plain, PlainGrain>().default_placement(Strategy::custom("other"));
    let Err(error) = by_default.start().await else { panic!("it started") };
    assert!(error.to_string().contains(<dyn Plain as Interface>::GRAIN_TYPE), "{error}");
}

static ASKED: AtomicU64 = AtomicU64::new(0);

/// Messages that the silos have sent each other.
fn messages(cluster: &Cluster) -> u64 {
    let samples = cluster.nodes().iter().flat_map(|node| node.watch().metrics());
    let sent = samples.filter_map(|sample| match sample.value {
        MetricValue::Count(sent) if sample.metric.name == "emmer_messages_total" => {
            (sample.labels == ["sent"]).then_some(sent)
        }
        _ => None,
    });
    sent.sum()
}

class!(ByChance, ByChanceGrain,);

/// The silo that answers for the grain in the directory has it: the call, and its answer.
#[emmer::test]
async fn the_first_call_of_a_grain_is_one_message_between_silos(world: World) {
    const GRAINS: u64 = 600;
    let cluster = world.cluster(3, |silo| silo.host::<dyn ByChance, ByChanceGrain>()).await;
    // The silos on which the grains are, as silo `n` calls them.
    let ask = async |n: usize, keys: Range<u64>| {
        let calls = async move |silo: GrainFactory| {
            let mut on: BTreeMap<SiloAddress, u64> = BTreeMap::new();
            for key in keys {
                *on.entry(silo.grain::<dyn ByChance>(key).silo().await.unwrap()).or_default() += 1;
            }
            on
        };
        cluster.node(n).run(calls).await.unwrap()
    };
    // Connections are made, and types are known.
    for n in 0..3 {
        ask(n, GRAINS..GRAINS + 50).await;
    }
    world.advance(std::time::Duration::from_secs(5)).await;
    for n in [0, 1] {
        let before = messages(&cluster);
        let on = ask(n, 0..GRAINS).await;
        let sent = messages(&cluster) - before;
        assert!(on.len() == 3 && on.values().all(|grains| *grains > GRAINS / 5), "{on:?}");
        let elsewhere = GRAINS - on[&cluster.node(n).address()];
        // Few are about other things.
        assert!(sent <= 2 * elsewhere + 40, "{sent} messages for {elsewhere} grains elsewhere");
    }
}
