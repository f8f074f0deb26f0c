//! The store passes what every store passes, on the vendor's emulator.

use emmer_store_dynamodb::DynamoDbStore;
use emmer_test_servers::dynamodb::IN_MEMORY;
use emmer_test_servers::store;
use emmer_test_servers::suite::Store;
use emmer_test_servers::{DynamoDbServer, store_suite};

const STORE: Store = store!(DynamoDbStore);
/// The tests that end the server and start it again.
const ENDED: [&str; 2] = [
    "a_killed_server_keeps_every_acknowledged_commit",
    "a_server_that_is_away_is_unavailable_and_found_again",
];

/// A server whose data outlive it where they must; on the disk each write takes the emulator some
/// 30 ms.
fn start(test: &str) -> Option<DynamoDbServer> {
    let settings: &[&str] = if ENDED.contains(&test) { &[] } else { &[IN_MEMORY] };
    DynamoDbServer::start_with_or_skip(test, settings)
}

store_suite!(start, STORE);
