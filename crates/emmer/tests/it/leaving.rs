//! Silos that leave, and their knowledge of it.

use std::sync::Arc;

use emmer::errors::TerminateReason;
use emmer::prelude::*;
use emmer::tables::SiloStatus;

use crate::common::{self, held::HeldStore, settle};

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

/// Takes out a silo that asks another one to write its death, and cuts it from the store: then only
/// the others can write it, and tell it.
fn cut_one(silos: &mut Vec<Silo>, stores: &mut Vec<Arc<HeldStore>>) -> Silo {
    // The writer is the first on ring 0.
    let writer = silos.iter().map(Silo::address).min_by_key(|silo| silo.stable_hash(0)).unwrap();
    let at = silos.iter().rposition(|silo| silo.address() != writer).unwrap();
    stores.remove(at).hold(true);
    silos.remove(at)
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_leaves_is_told_of_its_own_death() {
    let (mut silos, mut stores) = cluster(4).await;
    while silos.len() > 1 {
        let leaving = cut_one(&mut silos, &mut stores);
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
        let leaving = cut_one(&mut silos, &mut stores);
        leaving.stop_now().await;
        assert_eq!(leaving.view().status_of(&leaving.address()), Some(SiloStatus::Dead));
        settle(&silos, silos.len()).await;
    }
}

/// Prints the time that it takes: `cargo test -p emmer --test it leaving -- --nocapture`.
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

/// A frozen peer does not say that it has read the last word. It is waited for, but not for long.
#[cfg(feature = "test")]
#[emmer::test(seeds = 3)]
async fn a_peer_that_does_not_answer_delays_a_leave_by_a_second_at_most(world: emmer::test::World) {
    for freezes in [false, true] {
        let cluster = world.cluster(3, |silo| silo).await;
        let mut silos = [0, 1, 2];
        // The writer of the death is neither of the two.
        silos.sort_by_key(|n| cluster.node(*n).address().stable_hash(0));
        let [_, leaves, other] = silos;
        if freezes {
            cluster.pause(other);
        }
        let begun = world.elapsed();
        cluster.stop(leaves).await;
        let took = world.elapsed() - begun;
        assert_eq!(took >= secs(1), freezes, "{took:?}");
        assert!(took < millis(1_200), "{took:?}");
        cluster.resume(other);
        drop(cluster);
    }
}
