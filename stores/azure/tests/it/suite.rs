//! The store passes what every store passes, on the vendor's emulator.

use emmer_store_azure::AzureTableStore;
use emmer_test_servers::store;
use emmer_test_servers::suite::Store;
use emmer_test_servers::{AzuriteServer, store_suite};

const STORE: Store = store!(AzureTableStore);

store_suite!(AzuriteServer::start_or_skip, STORE);
