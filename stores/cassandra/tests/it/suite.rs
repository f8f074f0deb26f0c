//! The store passes what every store passes, on a real server.

use emmer_store_cassandra::CassandraStore;
use emmer_test_servers::cassandra::SYNC_EACH;
use emmer_test_servers::suite::Store;
use emmer_test_servers::{CassandraKeyspace, store, store_suite};

const STORE: Store = store!(CassandraStore);
/// The tests that end, kill or stop their server. The others share one.
const ALONE: [&str; 3] = [
    "a_commit_whose_server_stood_still_is_there_whole_or_not_at_all",
    "a_killed_server_keeps_every_acknowledged_commit",
    "a_server_that_is_away_is_unavailable_and_found_again",
];

fn start(test: &str) -> Option<CassandraKeyspace> {
    // A server that must keep acknowledged commits through a kill waits for its disk. For the other
    // tests that would cost several milliseconds a write.
    let is_alone = ALONE.contains(&test);
    CassandraKeyspace::start_or_skip(test, if is_alone { &[SYNC_EACH] } else { &[] }, is_alone)
}

store_suite!(start, STORE);
