//! Three members: the leader is killed and stands still while writers commit.

use emmer_store_zookeeper::ZooKeeperStore;
use emmer_test_servers::suite::{Store, members};
use emmer_test_servers::{skip, store, zookeeper};

const STORE: Store = store!(ZooKeeperStore);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "three servers, and a minute; `cargo xtask nightly clusters` runs it"]
async fn every_acknowledged_commit_outlives_the_leader() {
    match tokio::task::block_in_place(|| zookeeper::cluster(3)) {
        Ok(mut cluster) => {
            let told = members::outlive(&mut cluster, STORE, members::Events::ALL, false).await;
            assert_eq!(told.lost(), 0, "{told:?}");
        }
        Err(trouble) => skip("every_acknowledged_commit_outlives", &trouble),
    }
}
