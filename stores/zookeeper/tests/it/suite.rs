//! The store passes what every store passes, on a real server.

use emmer_store_zookeeper::ZooKeeperStore;
use emmer_test_servers::store;
use emmer_test_servers::suite::Store;
use emmer_test_servers::{ZooKeeperServer, store_suite};

const STORE: Store = store!(ZooKeeperStore);

store_suite!(ZooKeeperServer::start_or_skip, STORE);
