//! The store passes what every store passes, on a real server that writes everything to disk before
//! it answers.

use emmer_store_redis::RedisStore;
use emmer_test_servers::store;
use emmer_test_servers::suite::Store;
use emmer_test_servers::{RedisServer, store_suite};

const STORE: Store = store!(RedisStore);

store_suite!(RedisServer::start_or_skip, STORE);
