//! The records of silos in the store, in virtual time.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use emmer::options::RecordOptions;
use emmer::prelude::*;
use emmer::store::{
    HistoryTable, MetricsTable, Recorded, Reported, StatisticsKind, StatisticsTable,
};
use emmer::tables::{ClusterId, Timestamp};
use emmer::test::{Cluster, Failure, World, hours};

use crate::common::{Counter, CounterGrain};

#[grain_interface(key = String)]
trait Stateless {
    async fn ping(&self);
}

#[derive(Grain, Default)]
struct StatelessGrain;

#[grain]
impl Stateless for StatelessGrain {
    async fn ping(&self) {}
}

fn id() -> ClusterId {
    ClusterId::new("dev").unwrap()
}

async fn recording(world: &World, silos: usize, records: fn(&mut RecordOptions)) -> Cluster {
    // Rows have the names of silos; all hosts of a world have one name.
    let number = Cell::new(0);
    let describe = move |silo: emmer::SiloBuilder| {
        number.set(number.get() + 1);
        let name = format!("silo {}", number.get());
        let silo = silo.configure(emmer::test::at_rest).configure(move |options| {
            options.name = Some(name);
            options.records = RecordOptions::default();
            records(&mut options.records);
        });
        silo.host::<dyn Counter, CounterGrain>().host::<dyn Stateless, StatelessGrain>()
    };
    world.cluster(silos, describe).await
}

/// The time by the clock of the first silo.
fn now(cluster: &Cluster) -> Timestamp {
    let micros = cluster.node(0).clock().wall_micros();
    Timestamp::from_millis(i64::try_from(micros / 1_000).unwrap())
}

/// Everything that silos have reported, by the silo's address and time.
async fn reports(world: &World, now: Timestamp) -> BTreeMap<(String, Timestamp), Vec<Reported>> {
    let table = StatisticsTable::new(world.store().tables(), id(), StatisticsKind::Silos);
    let all = table.between(now - hours(30), now).await.unwrap();
    let mut reports: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for one in all {
        reports.entry((one.source.address.to_string(), one.source.at)).or_default().push(one);
    }
    reports
}

async fn history(world: &World) -> Vec<Recorded> {
    let mut all = HistoryTable::new(world.store().tables(), id()).read().await.unwrap();
    all.sort_by_key(|one| (one.version, one.number));
    all
}

#[emmer::test(seeds = 3)]
async fn each_silo_reports_once_in_its_period_and_none_with_another(world: World) {
    let cluster = recording(&world, 6, |_| {}).await;
    for key in 0..5 {
        let key = key.to_string();
        let add = cluster.node(0).run(async |client| {
            client.grain::<dyn Counter>(key.as_str()).add(1).await.unwrap();
        });
        add.await.unwrap();
        world.advance(secs(240)).await;
    }
    let metrics = MetricsTable::new(world.store().tables(), id()).silos().await.unwrap();
    assert_eq!(metrics.len(), 6);
    assert_eq!(metrics.iter().map(|silo| silo.activations).sum::<u64>(), cluster.activations());
    let now = now(&cluster);
    for silo in &metrics {
        assert!(now.saturating_since(silo.shared.at) <= secs(30), "{silo:?}");
    }
    let reports = reports(&world, now).await;
    let mut by_silo: BTreeMap<_, Vec<Timestamp>> = BTreeMap::new();
    for (silo, at) in reports.keys() {
        by_silo.entry(silo).or_default().push(*at);
    }
    assert_eq!(by_silo.len(), 6);
    for times in by_silo.values() {
        assert!((2..=4).contains(&times.len()), "{times:?}");
        assert!(
            times.windows(2).all(|two| two[1].saturating_since(two[0]) == secs(300)),
            "{times:?}"
        );
    }
    let moments: BTreeSet<_> = by_silo.values().map(|times| times[0]).collect();
    assert_eq!(moments.len(), 6, "two silos report at one moment");
    // The deltas of all reports add up to the counts.
    let turns = reports
        .values()
        .flatten()
        .filter(|one| one.statistic.is_delta && *one.statistic.name == *"emmer_turns_total");
    let turns: u64 = turns.map(|one| one.statistic.value.parse::<u64>().unwrap()).sum();
    assert!((3..=5).contains(&turns), "{turns}");
    assert!(reports.values().flatten().all(|one| *one.statistic.value != *"0"));
}

#[emmer::test(seeds = 5)]
async fn history_tells_who_came_left_and_died_and_why(world: World) {
    let mut cluster = recording(&world, 3, |_| {}).await;
    world.advance(secs(60)).await;
    let addresses: Vec<String> = (0..3).map(|n| cluster.node(n).address().to_string()).collect();
    cluster.kill(1);
    world.advance(secs(600)).await;
    cluster.stop(2).await;
    world.advance(secs(60)).await;
    let all = history(&world).await;
    let of = |silo: &str| -> Vec<&str> {
        all.iter().filter(|one| *one.silo == *silo).map(|one| &*one.change).collect()
    };
    for survivor in [0, 2] {
        assert_eq!(of(&addresses[survivor])[..2], ["joins", "joined"]);
    }
    assert_eq!(of(&addresses[2])[2..], ["leaves", "left"]);
    let died = all.iter().find(|one| *one.change == *"died").unwrap();
    assert_eq!(*died.silo, *addresses[1]);
    assert!(!died.evidence.is_empty(), "{died:?}");
    assert_ne!(*died.writer, *addresses[1]);
    let versions: Vec<u64> = all.iter().map(|one| one.version).collect();
    assert!(versions.is_sorted(), "{versions:?}");
    cluster.add().await;
    world.advance(secs(60)).await;
    assert_eq!(history(&world).await.len(), all.len() + 2);
}

#[emmer::test(seeds = 3)]
async fn a_store_that_is_away_slows_no_call_and_loses_no_count(world: World) {
    let cluster = recording(&world, 2, |_| {}).await;
    let add = |times: u64| {
        let cluster = &cluster;
        async move {
            for _ in 0..times {
                let took = cluster.node(0).run(async |client| {
                    client.grain::<dyn Stateless>("a").ping().timeout(secs(1)).await
                });
                took.await.unwrap().unwrap();
            }
        }
    };
    add(3).await;
    world.advance(secs(400)).await;
    // Shorter than the fence, again and again: every report meets it.
    world.store().be_slow(secs(2));
    add(4).await;
    world.advance(secs(700)).await;
    world.store().recover();
    world.advance(secs(700)).await;
    let now = now(&cluster);
    let reports = reports(&world, now).await;
    let turns = reports.values().flatten().filter(|one| {
        one.statistic.is_delta && one.statistic.name.starts_with("emmer_calls_total{")
    });
    let turns: u64 = turns.map(|one| one.statistic.value.parse::<u64>().unwrap()).sum();
    assert_eq!(turns, 7);
}

#[emmer::test(seeds = 3)]
async fn a_client_records_only_if_it_is_allowed_to(world: World) {
    let cluster = recording(&world, 3, |_| {}).await;
    let silent = cluster.client().await;
    let telling = cluster.client_with(|options| options.records = RecordOptions::default()).await;
    for client in [&silent, &telling] {
        client.grain::<dyn Stateless>("a").ping().await.unwrap();
    }
    world.advance(secs(680)).await;
    let tables = world.store().tables();
    let clients = MetricsTable::new(tables.clone(), id()).clients().await.unwrap();
    let [client] = clients.as_slice() else { panic!("one client writes: {clients:?}") };
    let now = now(&cluster);
    assert!(now.saturating_since(client.shared.at) <= secs(31), "{client:?}");
    assert_eq!(client.gateways, 3);
    assert!(client.shared.sent > 0 && client.shared.received > 0, "{client:?}");
    let statistics = StatisticsTable::new(tables, id(), StatisticsKind::Clients);
    let reports = statistics.between(now - hours(1), now).await.unwrap();
    let times: BTreeSet<_> = reports.iter().map(|one| one.source.at).collect();
    assert_eq!(times.len(), 2, "{times:?}");
    assert!(reports.iter().all(|one| one.source.name == client.client));
    assert!(reports.iter().any(|one| one.statistic.name.starts_with("emmer_messages_total")));
}

#[emmer::test(seeds = 3)]
async fn gateways_record_the_metrics_of_clients_if_they_shall(world: World) {
    let cluster = recording(&world, 3, |records| records.clients = true).await;
    let mut clients = Vec::new();
    for _ in 0..4 {
        let client = cluster.client().await;
        client.grain::<dyn Stateless>("a").ping().await.unwrap();
        clients.push(client);
    }
    world.advance(secs(65)).await;
    let rows = || async {
        let table = MetricsTable::new(world.store().tables(), id());
        let mut rows = table.clients().await.unwrap();
        rows.sort_by(|a, b| a.client.cmp(&b.client));
        rows
    };
    let before = rows().await;
    assert_eq!(before.len(), 4, "{before:?}");
    let (_, written) = world.store().requests();
    world.advance(secs(120)).await;
    let after = rows().await;
    let wrote = world.store().requests().1 - written;
    // Each of the seven writes its row four times, a client's not once for each of its gateways.
    let own = 3 * 4;
    assert!(wrote <= own + 4 * 5 + 3 * 2, "{wrote} writes");
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(
            (&before.client, &before.shared.address),
            (&after.client, &after.shared.address)
        );
        let took = after.shared.at.saturating_since(before.shared.at);
        assert!((secs(80)..=secs(150)).contains(&took), "{took:?}");
        assert_eq!((after.gateways, after.shared.sent > 0), (3, true));
    }
    // No call waits for the store.
    world.store().fail(Failure::Unavailable);
    world.advance(secs(90)).await;
    for client in &clients {
        client.grain::<dyn Stateless>("a").ping().timeout(secs(1)).await.unwrap();
    }
    world.store().recover();
    world.advance(secs(90)).await;
    let later = rows().await;
    assert!(later.iter().zip(&after).all(|(later, after)| later.shared.at > after.shared.at));
}

#[emmer::test(seeds = 3)]
async fn what_is_old_is_deleted(world: World) {
    let cluster = recording(&world, 3, |records| {
        records.statistics_retention = hours(2);
        records.history_retention = hours(3);
    })
    .await;
    world.advance(hours(1)).await;
    cluster.kill(2);
    world.advance(hours(9)).await;
    let now = now(&cluster);
    let reports = reports(&world, now).await;
    let oldest = reports.keys().map(|(_, at)| *at).min().unwrap();
    assert!(
        (hours(2)..=hours(4)).contains(&(now.saturating_since(oldest))),
        "{:?}",
        now.saturating_since(oldest)
    );
    assert!(history(&world).await.is_empty());
    world.advance(hours(24)).await;
    let metrics = MetricsTable::new(world.store().tables(), id()).silos().await.unwrap();
    assert_eq!(metrics.len(), 2, "the row of the silo that is gone is deleted");
}

#[emmer::test(seeds = 3)]
async fn changes_that_the_store_did_not_take_are_recorded_later(world: World) {
    let mut cluster = recording(&world, 3, |_| {}).await;
    world.advance(secs(60)).await;
    let before = history(&world).await.len();
    // The store takes the commit, but not its record.
    for _ in 0..3 {
        world.store().fail_next_write("18446744", Failure::Unavailable);
    }
    cluster.add().await;
    world.advance(secs(120)).await;
    assert_eq!(history(&world).await.len(), before + 2);
}
