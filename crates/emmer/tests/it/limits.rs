//! Every limit has a least value: below it nothing starts and the error says why, at it a cluster
//! works.

use std::time::Duration;

use emmer::errors::{ConnectError, StartError};
use emmer::options::{ClientOptions, Limits, OptionError, SiloOptions};
use emmer::prelude::*;
use emmer::store::MemoryStore;
use emmer::test::World;

#[grain_interface(key = String)]
trait Counter {
    async fn add(&mut self, n: u64) -> Result<u64, StateError>;
    async fn read(&self) -> u64;
}

#[derive(Grain)]
struct CounterGrain {
    #[state("total")]
    total: Persistent<u64>,
}

#[grain]
impl Counter for CounterGrain {
    async fn add(&mut self, n: u64) -> Result<u64, StateError> {
        self.total.modify(|t| *t += n);
        self.total.write().await?;
        Ok(*self.total)
    }

    async fn read(&self) -> u64 {
        *self.total
    }
}

/// The limits by name, new ones included.
fn names() -> Vec<String> {
    let all = serde_json::to_value(Limits::default()).unwrap();
    all.as_object().unwrap().keys().cloned().collect()
}

fn value_of(limits: &Limits, name: &str) -> u64 {
    serde_json::to_value(limits).unwrap()[name].as_u64().unwrap()
}

/// `limits` with one of them changed, if its type can hold the value.
fn with(limits: &Limits, name: &str, value: u64) -> Option<Limits> {
    let mut all = serde_json::to_value(limits).unwrap();
    all[name] = value.into();
    serde_json::from_value(all).ok()
}

/// The largest value that the type of a limit holds.
fn most(name: &str) -> u64 {
    let mut types = [u64::MAX, u32::MAX.into(), u8::MAX.into()].into_iter();
    types.find(|most| with(&Limits::default(), name, *most).is_some()).unwrap()
}

/// Errors of a silo and a client that start with these options. Neither comes as far as its store.
async fn refusals(
    silo: impl FnOnce(&mut SiloOptions),
    client: impl FnOnce(&mut ClientOptions),
) -> [OptionError; 2] {
    let store = || -> std::sync::Arc<dyn emmer::store::SystemStore> {
        std::sync::Arc::new(MemoryStore::new())
    };
    let started = Silo::builder().store(store()).configure(silo).start().await;
    let connected = Client::builder().store(store()).configure(client).connect().await;
    match (started, connected) {
        (Err(StartError::Option(silo)), Err(ConnectError::Option(client))) => [silo, client],
        other => panic!("no option was refused: {other:?}"),
    }
}

#[tokio::test]
async fn below_its_least_value_no_limit_is_accepted() {
    for name in names() {
        let least = value_of(&Limits::LEAST, &name);
        for value in [0, least - 1] {
            let limits = with(&Limits::default(), &name, value).unwrap();
            let own = limits.clone();
            for refused in refusals(|o| o.limits = limits, |o| o.limits = own).await {
                assert_eq!(refused.option, format!("limits.{name}"));
                assert_eq!(
                    refused.reason,
                    format!("is {value}: it must be at least {least}"),
                    "{name}"
                );
            }
        }
    }
}

type SetTime = fn(&mut SiloOptions, Duration);

const TIMES: [(&str, SetTime); 8] = [
    ("response_timeout", |o, time| o.response_timeout = time),
    ("collection_age", |o, time| o.collection_age = time),
    ("collection_quantum", |o, time| o.collection_quantum = Some(time)),
    ("load_period", |o, time| o.load_period = time),
    ("activation_timeout", |o, time| o.activation_timeout = time),
    ("deactivation_timeout", |o, time| o.deactivation_timeout = time),
    ("shutdown_timeout", |o, time| o.shutdown_timeout = time),
    ("connect_timeout", |o, time| o.connect_timeout = time),
];

type SetNumber = fn(&mut SiloOptions, usize);

const OF_THE_DIRECTORY: [(&str, SetNumber); 5] = [
    ("directory.points_per_silo", |o, n| {
        o.directory.points_per_silo = u32::try_from(n).unwrap_or(u32::MAX);
    }),
    ("directory.pending_max", |o, n| o.directory.pending_max = n),
    ("directory.entries_max", |o, n| o.directory.entries_max = n),
    ("directory.questions_max", |o, n| o.directory.questions_max = n),
    ("directory.report_batch_max", |o, n| o.directory.report_batch_max = n),
];

#[tokio::test]
async fn no_time_and_no_list_of_nothing_is_accepted() {
    for (name, set) in TIMES {
        for time in [Duration::ZERO, Duration::from_micros(9_999)] {
            let [refused, _] = refusals(|o| set(o, time), |o| o.connect_timeout = time).await;
            let time = emmer::membership::humantime::print(time);
            let says = format!("is {time}: it must be at least 10ms");
            assert_eq!((refused.option.as_str(), refused.reason), (name, says));
        }
    }
    for (name, set) in OF_THE_DIRECTORY {
        let [refused, client] = refusals(|o| set(o, 0), |o| o.gateways_max = 0).await;
        let says = "is 0: it must be at least 1".to_owned();
        assert_eq!((refused.option.as_str(), &refused.reason), (name, &says));
        assert_eq!((client.option.as_str(), &client.reason), ("gateways_max", &says));
    }
    for (choices, says) in [(0, "at least 1"), (65, "at most 64")] {
        let [refused, _] =
            refusals(|o| o.activation_count_choices = choices, |o| o.gateways_max = 0).await;
        assert_eq!(refused.option, "activation_count_choices");
        assert_eq!(refused.reason, format!("is {choices}: it must be {says}"));
    }
    let many = |o: &mut SiloOptions| o.directory.points_per_silo = u32::MAX;
    let [refused, client] = refusals(many, |o| o.gateways_max = usize::MAX).await;
    assert_eq!(refused.reason, "is 4294967295: it must be at most 1024");
    assert_eq!(client.reason, format!("is {}: it must be at most 1024", usize::MAX));
}

/// Three silos and a client with these options; the client and each silo call one grain, which is
/// on one of the silos.
async fn a_cluster_works(world: &World, what: &str, change: impl Fn(&mut SiloOptions) + 'static) {
    let describe =
        move |silo: emmer::SiloBuilder| silo.configure(&change).host::<dyn Counter, CounterGrain>();
    let cluster = world.cluster(3, describe).await;
    let key = format!("{what}, {:?}", world.elapsed());
    let outside = cluster.client().await;
    let counted = outside.grain::<dyn Counter>(key.as_str()).add(1).await;
    assert_eq!(counted.unwrap_or_else(|e| panic!("{what}: {e}")), 1);
    for n in 0..3 {
        let calling = key.clone();
        let calls =
            async move |client: GrainFactory| client.grain::<dyn Counter>(calling).add(1).await;
        let counted = cluster.node(n).run(calls).await.unwrap();
        assert_eq!(counted.unwrap_or_else(|e| panic!("{what}, silo {n}: {e}")), 2 + n as u64);
    }
    // It would come back to the gateways of the next cluster.
    outside.close().await;
    for n in 0..3 {
        cluster.stop(n).await;
    }
}

#[emmer::test]
async fn at_its_least_value_every_limit_lets_a_cluster_work(world: World) {
    for name in names() {
        let limits = with(&Limits::default(), &name, value_of(&Limits::LEAST, &name)).unwrap();
        a_cluster_works(&world, &name, move |o| o.limits = limits.clone()).await;
    }
    a_cluster_works(&world, "all limits", |o| o.limits = Limits::LEAST).await;
    for (name, set) in OF_THE_DIRECTORY {
        a_cluster_works(&world, name, move |o| set(o, 1)).await;
    }
    for (name, set) in TIMES {
        a_cluster_works(&world, name, move |o| set(o, millis(10))).await;
    }
}

#[emmer::test]
async fn without_any_end_every_limit_lets_a_cluster_work(world: World) {
    for name in names() {
        let limits = with(&Limits::default(), &name, most(&name)).unwrap();
        a_cluster_works(&world, &name, move |o| o.limits = limits.clone()).await;
    }
    for (name, set) in OF_THE_DIRECTORY {
        let most = if name == "directory.points_per_silo" { 1_024 } else { usize::MAX };
        a_cluster_works(&world, name, move |o| set(o, most)).await;
    }
    for (name, set) in TIMES {
        a_cluster_works(&world, name, move |o| set(o, Duration::MAX)).await;
    }
}

/// First calls wait for the reads of their states, and the reads for each other, in order.
#[emmer::test]
async fn a_silo_asks_a_store_for_few_things_at_once(world: World) {
    let cluster = world
        .cluster(1, |silo| {
            silo.host::<dyn Counter, CounterGrain>()
                .configure(|options| options.limits.store_requests_max = 10)
        })
        .await;
    let client = cluster.client().await;
    world.store().be_slow(millis(100));
    let begun = world.elapsed();
    let calls = (0..100).map(|key| {
        let (grain, world) = (client.grain::<dyn Counter>(format!("{key:03}")), &world);
        async move {
            assert_eq!(grain.read().await.unwrap(), 0);
            (world.elapsed() - begun, key)
        }
    });
    let ends = futures_util::future::join_all(calls).await;
    assert!(ends.is_sorted(), "in the order of their calls: {ends:?}");
    let (first, last) = (ends[0].0, ends[99].0);
    assert!(first < millis(150), "{first:?}");
    // Ten reads at once, each takes 100 ms.
    assert!(last > millis(990) && last < millis(1_100), "{last:?}");
}
