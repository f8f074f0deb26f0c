//! The store passes what every store passes, on a real server.

use emmer_store_etcd::EtcdStore;
use emmer_test_servers::store;
use emmer_test_servers::suite::Store;
use emmer_test_servers::{EtcdServer, store_suite};

const STORE: Store = store!(EtcdStore);

store_suite!(EtcdServer::start_or_skip, STORE);
