//! Topics: values by name, from clients and grains, and what late and lost subscribers hear.

use emmer::observers::News;
use emmer::prelude::*;
use emmer::test::{Cluster, NetModel, World};
use emmer::topics::Subscription;

async fn cluster(world: &World, silos: usize) -> Cluster {
    let cluster = world.cluster(silos, HostTopics::topics).await;
    world.net().set_model(NetModel { delay_max: millis(2), split: 0.2, ..NetModel::default() });
    cluster
}

async fn hear(subscription: &mut Subscription<String>) -> String {
    match tokio::time::timeout(secs(60), subscription.next()).await {
        Ok(Some(Ok(News::Event(line)))) => line,
        other => panic!("no value: {other:?}"),
    }
}

/// Waits until a subscription has joined: it hears nothing, or the first kept value.
async fn join(subscription: &mut Subscription<String>) {
    let nothing = tokio::time::timeout(millis(100), subscription.next()).await;
    assert!(nothing.is_err(), "{nothing:?}");
}

#[emmer::test(seeds = 5)]
async fn values_reach_every_subscriber_in_order(world: World) {
    let cluster = cluster(&world, 3).await;
    let (one, two) = (cluster.client().await, cluster.client().await);
    let topic = one.topic::<String>("room/7");
    let (mut here, mut there) = (topic.subscribe(), two.topic("room/7").subscribe());
    join(&mut here).await;
    join(&mut there).await;
    for n in 0..300 {
        topic.send(&n.to_string()).unwrap();
    }
    let publishes = async |grains: GrainFactory| {
        grains.topic::<String>("room/7").publish(&"of a silo".to_owned()).await.unwrap()
    };
    for n in 0..300 {
        let n = n.to_string();
        assert_eq!((hear(&mut here).await, hear(&mut there).await), (n.clone(), n));
    }
    assert_eq!(cluster.node(0).run(publishes).await.unwrap(), 300);
    assert_eq!(hear(&mut here).await, "of a silo");
    assert_eq!(topic.last(2).await.unwrap(), ["299", "of a silo"]);
    assert_eq!(topic.last(1_000).await.unwrap().len(), 256, "as many are kept");
}

#[emmer::test(seeds = 5)]
async fn a_late_subscriber_begins_with_the_last_values(world: World) {
    let cluster = cluster(&world, 2).await;
    let client = cluster.client().await;
    let topic = client.topic::<String>("late");
    for n in 0..10 {
        topic.publish(&n.to_string()).await.unwrap();
    }
    let mut late = topic.subscribe().last(3);
    for n in 7..10 {
        assert_eq!(hear(&mut late).await, n.to_string());
    }
    topic.publish(&"new".to_owned()).await.unwrap();
    assert_eq!(hear(&mut late).await, "new");
    let wrong = client.topic::<u64>("late").last(1).await.unwrap_err().to_string();
    assert!(wrong.contains("u64"), "{wrong}");
}

/// A subscriber whose gateway dies reads what it missed, and hears of no gap.
#[emmer::test(seeds = 10)]
async fn what_was_missed_is_caught_up(world: World) {
    let cluster = cluster(&world, 3).await;
    let client = cluster.client().await;
    let topic = client.topic::<String>("back");
    let mut lines = topic.subscribe();
    join(&mut lines).await;
    let (mut next, mut last) = (0, String::new());
    for round in 0..10 {
        for n in next..next + 5 {
            // One that fails may have been published all the same.
            while topic.publish(&n.to_string()).await.is_err() {}
        }
        cluster.forget_connections(round % 3, (round + 1) % 3);
        if round == 4 {
            cluster.forget_all_connections();
        }
        for n in next..next + 5 {
            let n = n.to_string();
            loop {
                let line = hear(&mut lines).await;
                if line != last {
                    assert_eq!(line, n);
                    break;
                }
            }
            last = n;
        }
        next += 5;
        world.advance(secs(1)).await;
    }
}

/// A silo that dies loses the values of its topics: subscribers see a gap.
#[emmer::test(seeds = 10)]
async fn a_topic_that_dies_leaves_a_gap(world: World) {
    let cluster = cluster(&world, 3).await;
    let client = cluster.client().await;
    // One of these is on each silo.
    let topics: Vec<_> = (0..20).map(|n| client.topic::<String>(format!("topic/{n}"))).collect();
    let mut subscriptions: Vec<_> = topics.iter().map(|topic| topic.subscribe()).collect();
    for subscription in &mut subscriptions {
        join(subscription).await;
    }
    for topic in &topics {
        topic.publish(&"before".to_owned()).await.unwrap();
    }
    for subscription in &mut subscriptions {
        assert_eq!(hear(subscription).await, "before");
    }
    cluster.kill(2);
    world.advance(secs(30)).await;
    for topic in &topics {
        topic.publish(&"after".to_owned()).await.unwrap();
    }
    let mut gaps = 0;
    for subscription in &mut subscriptions {
        loop {
            match tokio::time::timeout(secs(60), subscription.next()).await {
                Ok(Some(Ok(News::Gap(_)))) => gaps += 1,
                Ok(Some(Ok(News::Event(line)))) => {
                    assert_eq!(line, "after");
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert!((1..20).contains(&gaps), "{gaps} of 20 topics were on the silo");
}
