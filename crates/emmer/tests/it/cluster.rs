//! Silos and a client in one process, on real sockets.

use std::collections::BTreeSet;
use std::future::IntoFuture;
use std::time::Duration;

use emmer::prelude::*;

use crate::common::{self, Counter, CounterGrain, cluster, settle, silo, until_dead};

async fn client(store: &std::sync::Arc<dyn emmer::store::SystemStore>) -> Client {
    Client::builder().store(store.clone()).connect().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_grain_has_one_activation_and_keeps_its_state() {
    let (store, silos) = cluster(3).await;
    let client = client(&store).await;
    let mut hosts = BTreeSet::new();
    for key in 0..60 {
        let key = format!("c{key}");
        let mut seen = BTreeSet::new();
        for silo in &silos {
            let counter = silo.grain::<dyn Counter>(key.clone());
            counter.add(1).await.unwrap();
            seen.insert(counter.silo().await.unwrap());
        }
        assert_eq!(client.grain::<dyn Counter>(&key).add(1).await.unwrap(), 4);
        assert_eq!(seen.len(), 1, "{key} ran on {seen:?}");
        hosts.extend(seen);
    }
    assert_eq!(hosts.len(), 3, "random placement uses every silo");
    let activations: u64 = silos.iter().map(|s| s.statistics().activations).sum();
    assert_eq!(activations, 60);
}

#[tokio::test(flavor = "multi_thread")]
async fn racing_first_calls_from_everywhere_make_one_activation() {
    let (store, silos) = cluster(3).await;
    let client = client(&store).await;
    for round in 0..20 {
        let key = format!("race{round}");
        let mut calls = tokio::task::JoinSet::new();
        for i in 0..30 {
            let counter = match i % 4 {
                3 => client.grain::<dyn Counter>(&key),
                n => silos[n].grains().grain::<dyn Counter>(&key),
            };
            calls.spawn(async move { counter.add(1).await });
        }
        let mut totals = Vec::new();
        while let Some(total) = calls.join_next().await {
            totals.push(total.unwrap().unwrap());
        }
        totals.sort_unstable();
        assert_eq!(totals, (1..=30).collect::<Vec<_>>());
    }
    let activations: u64 = silos.iter().map(|s| s.statistics().activations).sum();
    assert_eq!(activations, 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cycle_of_exclusive_turns_is_answered_with_deadlock() {
    let (_store, silos) = cluster(2).await;
    let client = silos[0].grains();
    let a = client.grain::<dyn Counter>("a");
    let told = a.hold_other("a".to_owned()).await.unwrap_err();
    assert!(told.to_string().contains("deadlock"), "{told}");
    // A read within an exclusive turn of the same grain would wait as well; a read within a read
    // would not.
    assert_eq!(a.read_other("a".to_owned()).await.unwrap(), 0);
    assert!(a.hold_other("b".to_owned()).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn deadlines_say_whether_the_call_may_have_run() {
    let (store, silos) = cluster(2).await;
    for (key, client) in [("near", silos[0].grains()), ("far", client(&store).await.grains())] {
        let slow = client.grain::<dyn Counter>(key);
        let holding =
            tokio::spawn(slow.hold(600_000).timeout(Duration::from_secs(2)).into_future());
        // Once the turn above runs, reads wait for it.
        while slow.silo().timeout(Duration::from_millis(20)).await.is_ok() {}
        let waiting = slow.add(1).timeout(Duration::from_millis(50)).await.unwrap_err();
        assert!(matches!(waiting, CallError::Timeout { .. }), "{waiting}");
        let ran = holding.await.unwrap().unwrap_err();
        assert!(matches!(ran, CallError::Timeout { maybe_executed: true, .. }), "{ran}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_given_up_before_its_turn_has_no_effect() {
    let (_store, silos) = cluster(1).await;
    let counter = silos[0].grains().grain::<dyn Counter>("c");
    counter.add(1).await.unwrap();
    let holding = tokio::spawn(counter.hold(2_000).into_future());
    while counter.total().timeout(Duration::from_millis(20)).await.is_ok() {}
    let timed_out = counter.add(10).timeout(Duration::from_millis(20)).await.unwrap_err();
    assert!(matches!(timed_out, CallError::Timeout { maybe_executed: false, .. }), "{timed_out}");
    let token = tokio_util::sync::CancellationToken::new();
    token.cancel();
    let cancelled = counter.add(100).cancel_on(token).await.unwrap_err();
    assert!(matches!(cancelled, CallError::Cancelled { maybe_executed: false, .. }), "{cancelled}");
    holding.await.unwrap().unwrap();
    assert_eq!(counter.total().await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panicking_turn_is_reported_and_the_grain_comes_back() {
    let (_store, silos) = cluster(1).await;
    let counter = silos[0].grains().grain::<dyn Counter>("p");
    counter.add(5).await.unwrap();
    let error = counter.fail().await.unwrap_err();
    assert!(
        matches!(&error, CallError::Panicked { message, .. } if message == "as told"),
        "{error}"
    );
    assert_eq!(counter.total().await.unwrap(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_and_resting_grains_are_deactivated_and_come_back_with_their_state() {
    let (_store, silos) = cluster(1).await;
    let silo = &silos[0];
    let counter = silo.grain::<dyn Counter>("idle");
    counter.add(7).await.unwrap();
    counter.rest().await.unwrap();
    while silo.statistics().activations > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(counter.add(1).await.unwrap(), 8);
    assert_eq!(silo.statistics().activated, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_to_a_dead_silo_fail_at_once_and_its_grains_come_back_elsewhere() {
    let (store, mut silos) = cluster(3).await;
    let client = client(&store).await;
    let keys: Vec<String> = (0..30).map(|i| format!("k{i}")).collect();
    for key in &keys {
        client.grain::<dyn Counter>(key).add(1).await.unwrap();
    }
    let victim = silos.pop().unwrap();
    let dead = victim.address();
    victim.abort();
    until_dead(&silos[0], dead).await;
    until_dead(&silos[1], dead).await;
    for key in &keys {
        let counter = silos[0].grains().grain::<dyn Counter>(key);
        assert_eq!(counter.add(1).timeout(Duration::from_secs(5)).await.unwrap(), 2, "{key}");
        assert_ne!(counter.silo().await.unwrap(), dead.to_string());
    }
    // The client lost a gateway and continues with the others.
    for key in &keys {
        assert_eq!(client.grain::<dyn Counter>(key).total().await.unwrap(), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_learns_where_grains_are() {
    let (store, silos) = cluster(3).await;
    let client = client(&store).await;
    assert_eq!(client.gateways().len(), 3);
    let forwarded = || silos.iter().map(|silo| silo.statistics().calls_forwarded).sum::<u64>();
    let keys: Vec<String> = (0..30).map(|i| format!("l{i}")).collect();
    let kept: Vec<_> = keys.iter().map(|key| client.grain::<dyn Counter>(key)).collect();
    for counter in &kept {
        counter.total().await.unwrap();
    }
    let first = forwarded();
    assert!(first > 0, "two of three gateways do not have the grain");
    for (counter, key) in kept.iter().zip(&keys) {
        counter.total().await.unwrap();
        // Another reference has the client's memory.
        client.grain::<dyn Counter>(key).total().await.unwrap();
    }
    assert_eq!(forwarded(), first, "calls go straight to the silo that answered");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_graceful_stop_loses_no_call() {
    let (store, mut silos) = cluster(3).await;
    let client = client(&store).await;
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..8 {
        let (client, stop) = (client.clone(), stop.clone());
        callers.spawn(async move {
            let mut added = 0u64;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let key = format!("g{}", (caller * 31 + added) % 40);
                client.grain::<dyn Counter>(key).add(1).await.unwrap();
                added += 1;
            }
            added
        });
    }
    let leaving = silos.remove(0);
    leaving.stop().await.unwrap();
    settle(&silos, 2).await;
    silos.push(silo(&store).await);
    settle(&silos, 3).await;
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let mut added = 0;
    while let Some(n) = callers.join_next().await {
        added += n.unwrap();
    }
    let mut total = 0;
    for key in 0..40 {
        total += client.grain::<dyn Counter>(format!("g{key}")).total().await.unwrap();
    }
    assert_eq!(total, added);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_calls_are_rejected_in_words() {
    let (_store, silos) = cluster(1).await;
    let long = "x".repeat(2000);
    let error = silos[0].grains().grain::<dyn Counter>(long).total().await.unwrap_err();
    assert!(error.to_string().contains("longer than 1024 bytes"), "{error}");
    let twice = Silo::builder()
        .store(common::store())
        .host::<dyn Counter, CounterGrain>()
        .host::<dyn Counter, CounterGrain>()
        .on_terminate(|_| {})
        .start()
        .await;
    assert!(twice.is_ok(), "the same class twice is the same class");
    let nothing = Silo::builder().start().await.unwrap_err();
    assert!(nothing.to_string().contains("no store is configured"), "{nothing}");
    let unknown = Silo::builder().store("nosuch://nowhere").start().await.unwrap_err();
    assert!(unknown.to_string().contains("nosuch"), "{unknown}");
}
