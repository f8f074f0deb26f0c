//! How silos leave, and what they learn of it.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

mod common;

use std::sync::Arc;

use common::held::HeldStore;
use common::settle;
use emmer::prelude::*;
use emmer::{SiloStatus, TerminateReason};

/// `n` silos, each with a way to the store that can be cut.
async fn cluster(n: usize) -> (Vec<Silo>, Vec<Arc<HeldStore>>) {
    let (shared, mut silos, mut stores) = (common::store(), Vec::new(), Vec::new());
    for _ in 0..n {
        let store = HeldStore::over(&shared);
        silos.push(common::silo(&(store.clone() as _)).await);
        stores.push(store);
    }
    settle(&silos, n).await;
    (silos, stores)
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_leaves_is_told_of_its_own_death() {
    let (mut silos, mut stores) = cluster(4).await;
    while silos.len() > 1 {
        let (leaving, store) = (silos.pop().unwrap(), stores.pop().unwrap());
        // Only the others can write its death, and only they can tell it.
        store.hold(true);
        leaving.stop().await.unwrap();
        let own = leaving.view().status_of(&leaving.address());
        assert_eq!(own, Some(SiloStatus::Dead), "with {} others", silos.len());
        assert_eq!(leaving.terminated().await, TerminateReason::Left);
        settle(&silos, silos.len()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_leaves_in_haste_is_told_of_its_own_death() {
    let (mut silos, mut stores) = cluster(4).await;
    while silos.len() > 1 {
        let (leaving, store) = (silos.pop().unwrap(), stores.pop().unwrap());
        store.hold(true);
        leaving.stop_now().await;
        assert_eq!(leaving.view().status_of(&leaving.address()), Some(SiloStatus::Dead));
        settle(&silos, silos.len()).await;
    }
}

/// How long it takes, for whoever wants to know: `cargo test -p emmer --test leaving -- --nocapture`.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_silo_leaves_in_good_order() {
    let (mut silos, _stores) = cluster(4).await;
    while let Some(leaving) = silos.pop() {
        let begun = std::time::Instant::now();
        leaving.stop().await.unwrap();
        println!("one of {} left after {:?}", silos.len() + 1, begun.elapsed());
        assert_eq!(leaving.view().status_of(&leaving.address()), Some(SiloStatus::Dead));
        settle(&silos, silos.len()).await;
    }
}
