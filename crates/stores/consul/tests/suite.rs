//! The store passes what every store passes, on a real server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;

use emmer_store::{BoxFuture, Result, SystemStore};
use emmer_store_consul::ConsulStore;
use emmer_test_servers::suite::Store;
use emmer_test_servers::{ConsulServer, store_suite};

const STORE: Store = Store { open, patient: "timeout_ms=60000", hasty: "timeout_ms=1000" };

fn open(url: String) -> BoxFuture<'static, Result<Arc<dyn SystemStore>>> {
    Box::pin(async move { Ok(Arc::new(ConsulStore::open(&url).await?) as Arc<dyn SystemStore>) })
}

store_suite!(ConsulServer::start_or_skip, STORE);
