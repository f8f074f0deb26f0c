//! Three nodes with three copies of each row: each is killed and comes back, and stands still,
//! while writers commit.

use emmer_store_cassandra::CassandraStore;
use emmer_test_servers::suite::rows::NUMBERS;
use emmer_test_servers::suite::{self, Store, members};
use emmer_test_servers::{CassandraCluster, skip, store};

const STORE: Store = store!(CassandraStore);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "three servers of 0.8 GiB each, and minutes; `cargo xtask nightly clusters` runs it"]
async fn every_acknowledged_commit_outlives_each_node() {
    let mut cluster = match tokio::task::block_in_place(|| CassandraCluster::start(3)) {
        Ok(cluster) => cluster,
        Err(trouble) => return skip("every_acknowledged_commit_outlives", &trouble),
    };
    let store = STORE.patient(&cluster.url()).await;
    // The last node serves a moment before the others know of it.
    while let Err(error) = store.ensure_tables(&[&NUMBERS]).await {
        assert!(error.detail.contains("nodes"), "{error}");
    }
    suite::conforms(&cluster.url(), STORE).await;
    let events = members::Events { each: true, freeze: true };
    let told = members::outlive(&mut cluster, STORE, events, false).await;
    assert_eq!(told.lost(), 0, "{told:?}");
}
