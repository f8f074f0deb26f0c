//! The store passes what every store passes, on the SDK's emulator.

use emmer_store_cosmos::CosmosStore;
use emmer_test_servers::store;
use emmer_test_servers::suite::Store;
use emmer_test_servers::{CosmosServer, store_suite};

const STORE: Store = store!(CosmosStore);

store_suite!(CosmosServer::start_or_skip, STORE);
