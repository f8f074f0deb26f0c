//! A primary and its standby: the primary is killed while writers commit, and the standby promoted.

use emmer_store_postgres::PostgresStore;
use emmer_test_servers::postgres::pair::PostgresPair;
use emmer_test_servers::suite::{Store, members};
use emmer_test_servers::{skip, store};

const STORE: Store = store!(PostgresStore);
/// A primary that stands still and continues next to a promoted standby would be a second primary.
/// The store cannot prevent that.
const KILLED: members::Events = members::Events { each: false, freeze: false };

async fn run(synchronous: bool) -> Option<members::Told> {
    match tokio::task::block_in_place(|| PostgresPair::start(synchronous)) {
        Ok(mut pair) => Some(members::outlive(&mut pair, STORE, KILLED, !synchronous).await),
        Err(trouble) => {
            skip("a standby is promoted", &trouble);
            None
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "two servers and a failover; `cargo xtask nightly clusters` runs it"]
async fn a_commit_that_a_standby_has_outlives_the_primary() {
    if let Some(told) = run(true).await {
        assert_eq!(told.lost(), 0, "{told:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "two servers and a failover; `cargo xtask nightly clusters` runs it"]
async fn without_a_synchronous_standby_the_loss_is_measured() {
    if let Some(told) = run(false).await {
        println!("{} of {} acknowledged commits are lost", told.lost(), told.acknowledged);
    }
}
