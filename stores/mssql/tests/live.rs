//! The suite of all stores, on the server that `TEST_MSSQL_URL` names (an empty database). Without
//! it nothing runs, and each test says so.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::sync::Arc;

use emmer_store::{BoxFuture, Result, StoreErrorKind, SystemStore};
use emmer_store_mssql::MssqlStore;
use emmer_test_servers::suite::{Store, external, refused};

const STORE: Store = Store { open, patient: "timeout_ms=60000", hasty: "timeout_ms=1000" };

fn open(url: String) -> BoxFuture<'static, Result<Arc<dyn SystemStore>>> {
    Box::pin(async move { Ok(Arc::new(MssqlStore::open(&url).await?) as Arc<dyn SystemStore>) })
}

/// One after the other, because they share a database. The first needs it empty.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_passes_what_every_store_passes() {
    let Some(url) = external::server("TEST_MSSQL_URL", "it_passes_what_every_store_passes") else {
        return;
    };
    external::passes_all(&url, STORE).await;
}

#[tokio::test]
async fn wrong_passwords_and_missing_databases_are_refused() {
    let Some(url) =
        external::server("TEST_MSSQL_URL", "wrong_passwords_and_missing_databases_are_refused")
    else {
        return;
    };
    let cases = [
        (
            external::elsewhere(&url, Some(refused::PASSWORD), None),
            StoreErrorKind::Refused,
            "18456",
        ),
        (
            external::elsewhere(&url, None, Some("no_such_database")),
            StoreErrorKind::Refused,
            "no_such_database",
        ),
    ];
    refused::addresses(STORE, &cases).await;
}

/// Needs no server.
#[tokio::test]
async fn where_there_is_no_server_it_is_unavailable() {
    refused::silent(|port| format!("mssql://sa:only-for-tests@127.0.0.1:{port}/emmer"), STORE)
        .await;
    let closed = emmer_test_servers::process::free_port().unwrap();
    let cases = [
        (
            format!("mssql://sa:s3cret@127.0.0.1:{closed}/emmer"),
            StoreErrorKind::Unavailable,
            "refused",
        ),
        (
            "mssql://sa:s3cret@no-such-host.invalid/emmer".to_owned(),
            StoreErrorKind::Unavailable,
            "lookup",
        ),
    ];
    refused::addresses(STORE, &cases).await;
}
