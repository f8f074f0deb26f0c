//! What several test programs need.

#![allow(dead_code, reason = "each test program uses a part")]

use std::sync::Arc;

use emmer_store::{BoxFuture, Result, SystemStore};
use emmer_store_postgres::PostgresStore;
use emmer_test_servers::suite::Store;

/// On a machine that runs all tests at once an operation may take its time.
pub(crate) const PATIENT: &str = "timeout_ms=60000";

/// The store under test.
pub(crate) const STORE: Store = Store { open: boxed, patient: PATIENT, hasty: "timeout_ms=1000" };

fn boxed(url: String) -> BoxFuture<'static, Result<Arc<dyn SystemStore>>> {
    Box::pin(async move { Ok(Arc::new(PostgresStore::open(&url).await?) as Arc<dyn SystemStore>) })
}

pub(crate) async fn open(url: &str) -> Arc<dyn SystemStore> {
    boxed(url.to_owned()).await.unwrap()
}
