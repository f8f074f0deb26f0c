//! Days of a thermostat, in virtual time.

#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use emmer::secs;
use emmer::test::{World, hours};
use emmer_example_thermostat::{Thermostat, ThermostatGrain};

#[emmer::test(seeds = 2)]
async fn it_reports_daily_and_survives_restarts(world: World) {
    let mut cluster = world.cluster(2, |silo| silo.host::<dyn Thermostat, ThermostatGrain>()).await;
    let client = cluster.client().await;
    let attic = client.grain::<dyn Thermostat>("attic");
    attic.switch_on(600, 2).await.unwrap();
    attic.show(205).await.unwrap();
    world.advance(hours(4) + secs(60)).await;
    let reports = attic.reports().await.unwrap();
    assert_eq!(reports.len(), 2);
    assert!(reports.iter().all(|report| (10..=12).contains(&report.samples)), "{reports:?}");
    assert!(reports.iter().all(|report| report.mean_tenths == Some(205)), "{reports:?}");
    // Every silo is replaced. Nobody calls the grain: the reminder wakes it.
    for old in 0..2 {
        cluster.add().await;
        cluster.stop(old).await;
    }
    world.advance(hours(4)).await;
    let numbers = async || -> Vec<(u64, u64)> {
        attic.reports().await.unwrap().iter().map(|one| (one.number, one.missed)).collect()
    };
    assert_eq!(numbers().await, [(1, 0), (2, 0), (3, 0), (4, 0)]);
    // No silo runs for six hours: one report comes late, and counts the missed ones.
    cluster.stop(2).await;
    cluster.stop(3).await;
    world.advance(hours(6) + secs(600)).await;
    cluster.add().await;
    world.advance(secs(60)).await;
    assert_eq!(numbers().await.last(), Some(&(7, 2)));
    attic.switch_off().await.unwrap();
    world.advance(hours(3)).await;
    assert_eq!(numbers().await.len(), 5);
}
