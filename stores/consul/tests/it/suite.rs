//! The store passes what every store passes, on a real server.

use emmer_store_consul::ConsulStore;
use emmer_test_servers::store;
use emmer_test_servers::suite::Store;
use emmer_test_servers::{ConsulServer, store_suite};

const STORE: Store = store!(ConsulStore);

store_suite!(ConsulServer::start_or_skip, STORE);
