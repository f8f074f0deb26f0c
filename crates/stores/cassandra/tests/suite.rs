//! The store passes what every store passes, on a server of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use emmer_store_cassandra::CassandraStore;
use emmer_test_servers::cassandra::SYNC_EACH;
use emmer_test_servers::suite::Store;
use emmer_test_servers::{CassandraServer, store, store_suite};

const STORE: Store = store!(CassandraStore);

fn start(test: &str) -> Option<CassandraServer> {
    CassandraServer::start_with_or_skip(test, &[SYNC_EACH])
}

store_suite!(start, STORE);
