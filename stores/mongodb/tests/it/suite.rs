//! The store passes what every store passes, on a compatible server: SecantusDB, **not mongod**.

use emmer_store_mongodb::MongoDbStore;
use emmer_test_servers::mongodb::SYNC;
use emmer_test_servers::suite::Store;
use emmer_test_servers::{MongoDbDatabase, store, store_suite};

const STORE: Store = store!(MongoDbStore);
/// The tests that end, kill or stop their server, and those that keep one busy: it is a program in
/// Python, which uses one processor. The others share one.
const ALONE: [&str; 7] = [
    "a_commit_whose_server_stood_still_is_there_whole_or_not_at_all",
    "a_killed_server_keeps_every_acknowledged_commit",
    "a_server_that_is_away_is_unavailable_and_found_again",
    "five_thousand_rows_are_read_whole",
    "it_conforms",
    "racing_writers_move_the_version_once_per_acknowledged_commit",
    "ten_thousand_snapshots_under_writes_are_whole",
];
/// Tests that must find acknowledged commits after a kill: their server waits for its disk.
const KILLED: &str = "a_killed_server_keeps_every_acknowledged_commit";

fn start(test: &str) -> Option<MongoDbDatabase> {
    let settings: &[&str] = if test == KILLED { &[SYNC] } else { &[] };
    MongoDbDatabase::start_or_skip(test, settings, ALONE.contains(&test))
}

store_suite!(start, STORE);
