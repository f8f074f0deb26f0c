//! Calls find their way while silos come and go: only what may have run can fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use emmer::GrainFactory;
use emmer::prelude::*;
use tokio::task::JoinSet;

use crate::common::{Counter, cluster, settle, silo, until_dead};

const KEYS: u64 = 40;

/// Callers that keep their references and call until told to stop.
struct Load {
    stop: Arc<AtomicBool>,
    callers: JoinSet<(u64, Vec<CallError<StateError>>)>,
}

impl Load {
    fn start(clients: &[GrainFactory]) -> Self {
        let (stop, mut callers) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
        for (at, client) in (0..16).zip(clients.iter().cycle()) {
            let kept: Vec<_> =
                (0..KEYS).map(|key| client.grain::<dyn Counter>(format!("p{key}"))).collect();
            let stop = stop.clone();
            callers.spawn(async move {
                let (mut added, mut failures) = (0, Vec::new());
                for counter in kept.iter().cycle().skip(at * 7) {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    match counter.add(1).await {
                        Ok(_) => added += 1,
                        Err(failure) => failures.push(failure),
                    }
                }
                (added, failures)
            });
        }
        Self { stop, callers }
    }

    /// Number of additions that were acknowledged, and the failures.
    async fn end(self) -> (u64, Vec<CallError<StateError>>) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.callers.join_all().await;
        let added = ended.iter().map(|(added, _)| added).sum();
        (added, ended.into_iter().flat_map(|(_, failures)| failures).collect())
    }
}

async fn total(client: &GrainFactory) -> u64 {
    let mut sum = 0;
    for key in 0..KEYS {
        sum += client.grain::<dyn Counter>(format!("p{key}")).total().await.unwrap();
    }
    sum
}

/// Waits until the cluster has taken `n` additions more.
async fn until_added(client: &GrainFactory, n: u64) {
    let before = total(client).await;
    while total(client).await < before + n {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn references_that_are_kept_lose_no_call_to_silos_that_leave() {
    let (store, mut silos) = cluster(3).await;
    let outside = Client::builder().store(store.clone()).connect().await.unwrap();
    for _ in 0..3 {
        let leaving = silos.remove(0);
        let clients = [silos[0].grains(), silos[1].grains(), outside.grains()];
        let before = total(&clients[0]).await;
        let load = Load::start(&clients);
        until_added(&clients[0], 200).await;
        leaving.stop().await.unwrap();
        settle(&silos, 2).await;
        until_added(&clients[0], 200).await;
        let (added, failures) = load.end().await;
        assert!(failures.is_empty(), "{failures:?}");
        assert_eq!(total(&clients[0]).await, before + added);
        silos.push(silo(&store).await);
        settle(&silos, 3).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_crash_fails_only_calls_that_may_have_run() {
    let (store, mut silos) = cluster(3).await;
    let outside = Client::builder().store(store.clone()).connect().await.unwrap();
    for _ in 0..2 {
        let crashing = silos.remove(0);
        let clients = [silos[0].grains(), silos[1].grains(), outside.grains()];
        let before = total(&clients[0]).await;
        let load = Load::start(&clients);
        until_added(&clients[0], 200).await;
        crashing.abort();
        until_dead(&silos[0], crashing.address()).await;
        until_added(&clients[0], 200).await;
        let (added, failures) = load.end().await;
        assert!(failures.iter().all(CallError::maybe_executed), "{failures:?}");
        let stored = total(&clients[0]).await - before;
        let most = added + u64::try_from(failures.len()).unwrap();
        assert!(
            (added..=most).contains(&stored),
            "{added} acknowledged, {stored} stored, {most} at most"
        );
        silos.push(silo(&store).await);
        settle(&silos, 3).await;
    }
}
