//! A Redis Cluster whose primaries have replicas: the primary of the writers is killed and stands
//! still, and a replica takes over.

use emmer_store_redis::RedisStore;
use emmer_test_servers::redis::RedisFailover;
use emmer_test_servers::suite::{Store, members};
use emmer_test_servers::{skip, store};

const STORE: Store = store!(RedisStore);
/// The key of the partition that the writers write.
const KEY: &str = "emmer:{numbers/p}";

async fn run(replicas: usize, parameters: &'static str, may_lose: bool) -> Option<members::Told> {
    match tokio::task::block_in_place(|| RedisFailover::start(replicas, KEY, parameters)) {
        Ok(mut cluster) => {
            Some(members::outlive(&mut cluster, STORE, members::Events::ALL, may_lose).await)
        }
        Err(trouble) => {
            skip("a primary is killed and stands still", &trouble);
            None
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "nine servers, and a minute; `cargo xtask nightly clusters` runs it"]
async fn a_commit_that_a_replica_has_outlives_its_primary() {
    // Two: when one is promoted there must be another to wait for.
    if let Some(told) = run(2, "?wait_replicas=1", false).await {
        assert_eq!(told.lost(), 0, "{told:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "six servers, and a minute; `cargo xtask nightly clusters` runs it"]
async fn without_a_replica_the_loss_is_measured() {
    if let Some(told) = run(1, "", true).await {
        println!("{} of {} acknowledged commits are lost", told.lost(), told.acknowledged);
    }
}
