//! Load shedding: the calls that an overloaded silo refuses, and those that it does not.

use std::future::IntoFuture;

use emmer::prelude::*;
use emmer::test::World;

use crate::common::{Counter, CounterGrain};

#[emmer::test(seeds = 5)]
async fn a_silo_with_a_full_queue_refuses_clients_at_once_and_nobody_else(world: World) {
    let cluster = world
        .cluster(1, |silo| {
            let silo = silo.configure(|options| {
                options.load_shedding.enabled = true;
                options.load_shedding.queue = 4;
            });
            silo.host::<dyn Counter, CounterGrain>()
        })
        .await;
    let client = cluster.client().await;
    let long: Vec<_> = (0..4)
        .map(|n| {
            let grain = client.grain::<dyn Counter>(n.to_string());
            tokio::spawn(async move { grain.hold(8_000).await })
        })
        .collect();
    world.advance(secs(1)).await;
    let refused = client.grain::<dyn Counter>("new").total().into_future().await.unwrap_err();
    let text = refused.to_string();
    assert!(matches!(refused, CallError::Overloaded { .. }), "{refused:?}");
    assert!(text.contains("refuses calls of clients") && text.contains("queue"), "{text}");
    assert!(!refused.maybe_executed(), "it can be tried again elsewhere");
    // The silo's own code, other clients that connect, and answers.
    let own = cluster.node(0).run(async |own| own.grain::<dyn Counter>("new").total().await);
    assert_eq!(own.await.unwrap(), Ok(0));
    let another = cluster.client().await;
    assert!(another.grain::<dyn Counter>("x").total().into_future().await.is_err());
    world.advance(secs(1)).await;
    let told = |title: &str| {
        let all = cluster.node(0).watch().metrics();
        all.into_iter().find(|sample| sample.title() == title).map(|sample| sample.value)
    };
    use emmer::metrics::MetricValue::{Count, Level};
    assert_eq!(told("emmer_calls_shed_total"), Some(Count(2)));
    assert_eq!(told("emmer_load_shedding"), Some(Level(1.0)));
    for call in long {
        assert_eq!(call.await.unwrap(), Ok(()));
    }
    world.advance(secs(3)).await;
    assert_eq!(told("emmer_load_shedding"), Some(Level(0.0)));
    assert_eq!(another.grain::<dyn Counter>("x").total().await, Ok(0));
}

#[tokio::test]
async fn settings_that_cannot_be_are_named() {
    let started = Silo::builder()
        .store("memory://shedding")
        .configure(|options| options.load_shedding.cpu_percent = 101)
        .start()
        .await;
    let Err(error) = started else { panic!("it started") };
    assert_eq!(error.to_string(), "load_shedding.cpu_percent: is 101: it must be at most 100");
}
