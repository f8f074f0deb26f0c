//! The replay on a cluster of real silos, in virtual time, while everything fails.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use emmer::prelude::*;
use emmer::test::{Cluster, Failure, World};
use emmer_example_flights::feeder::{ClusterSink, FeederOptions, Progress, feed};
use emmer_example_flights::streams::Streams;
use emmer_example_flights::truth::Truth;
use emmer_example_flights::{Aircraft, AircraftGrain, Airport, AirportGrain, BUNDLED, file};

/// Departures of a test.
const ROWS: usize = 3_000;

/// What happens meanwhile.
async fn trouble(world: &World, cluster: &mut Cluster) {
    cluster.kill(0);
    world.advance(secs(1)).await;
    cluster.restart(0).await;
    world.store().fail(Failure::LostAnswer);
    world.advance(millis(500)).await;
    world.store().recover();
    cluster.pause(1);
    world.advance(secs(8)).await;
    cluster.resume(1);
    world.advance(secs(1)).await;
    cluster.isolate(2);
    world.advance(secs(3)).await;
    cluster.heal();
    cluster.stop(0).await;
}

#[emmer::test(seeds = 3)]
async fn totals_are_exact_whatever_happens_to_silos_network_and_store(world: World) {
    let hosts = |silo: emmer::SiloBuilder| {
        silo.host::<dyn Airport, AirportGrain>().host::<dyn Aircraft, AircraftGrain>()
    };
    let mut cluster = world.cluster(4, hosts).await;
    let client = cluster.client().await;
    let streams = Arc::new(Streams::new(file::read(BUNDLED, Some(ROWS)).unwrap()));
    let sink = Arc::new(ClusterSink::new(Arc::new(client.clone()), secs(2)));
    let options = FeederOptions { callers: 8, airport_batch: 4, ..FeederOptions::default() };
    let feeding = tokio::spawn(feed(streams.clone(), sink, options, Arc::<Progress>::default()));
    trouble(&world, &mut cluster).await;
    feeding.await.unwrap().unwrap();

    let truth = Truth::of(streams.departures());
    for (code, totals) in &truth.airports {
        let airport = client.grain::<dyn Airport>(code.to_string());
        assert_eq!(&airport.totals().await.unwrap(), totals, "{code}");
    }
    for (tail, totals) in &truth.aircraft {
        let aircraft = client.grain::<dyn Aircraft>(tail.to_string());
        assert_eq!(&aircraft.totals().await.unwrap(), totals, "{tail}");
    }
}
