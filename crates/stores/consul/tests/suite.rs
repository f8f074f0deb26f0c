//! The store passes what every store passes, on a real server.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use emmer_store_consul::ConsulStore;
use emmer_test_servers::store;
use emmer_test_servers::suite::Store;
use emmer_test_servers::{ConsulServer, store_suite};

const STORE: Store = store!(ConsulStore);

store_suite!(ConsulServer::start_or_skip, STORE);
