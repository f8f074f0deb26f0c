//! The store passes what every store passes, on the server that `TEST_MSSQL_URL` names (an empty database). Without it
//! nothing of this runs, and each test says so.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;

use emmer_core::Timestamp;
use emmer_store::{BoxFuture, Result, StoreErrorKind, SystemStore};
use emmer_store_mssql::MssqlStore;
use emmer_test_servers::suite::rows::NUMBERS;
use emmer_test_servers::suite::{self, Store, refused};

const STORE: Store = Store { open, patient: "timeout_ms=60000", hasty: "timeout_ms=1000" };

fn open(url: String) -> BoxFuture<'static, Result<Arc<dyn SystemStore>>> {
    Box::pin(async move { Ok(Arc::new(MssqlStore::open(&url).await?) as Arc<dyn SystemStore>) })
}

/// The server, or a line that nobody overlooks.
fn server(test: &str) -> Option<String> {
    let url = std::env::var("TEST_MSSQL_URL").ok();
    if url.is_none() {
        println!(
            "NOT RUN {test}: no server is named by TEST_MSSQL_URL; this store is untested against a live server"
        );
    }
    url
}

/// One after the other: they share a database. The first needs it empty.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_passes_what_every_store_passes() {
    let Some(url) = server("it_passes_what_every_store_passes") else { return };
    suite::conforms(&url, STORE).await;
    suite::writers::first_tables(&url, STORE).await;
    suite::forward::by_many_at_once(&url, STORE).await;
    suite::writers::race(&url, STORE).await;
    for part in 0..3 {
        let store = STORE.patient(&url).await;
        // What the part before left.
        let rows = store.read_partition(&NUMBERS, "p").await.unwrap();
        for some in rows.chunks(100) {
            let delete = |row: &emmer_store::StoredRow| emmer_store::Mutation::Delete {
                row_key: row.row.key().to_owned(),
                etag: None,
            };
            store.commit(&NUMBERS, "p", some.iter().map(delete).collect()).await.unwrap();
        }
        match part {
            0 => suite::writers::snapshots(&url, STORE).await,
            1 => suite::writers::large_partition(&url, STORE).await,
            _ => suite::writers::crosswise(&url, STORE).await,
        }
    }
    refused::dropped(&url, STORE).await;
    let store = STORE.patient(&url).await;
    store.delete_older_than(&NUMBERS, "p", "At", Timestamp::from_millis(0)).await.unwrap();
}

#[tokio::test]
async fn wrong_passwords_and_missing_databases_are_refused() {
    let Some(url) = server("wrong_passwords_and_missing_databases_are_refused") else { return };
    let cases = [
        (elsewhere(&url, Some(refused::PASSWORD), None), StoreErrorKind::Refused, "18456"),
        (elsewhere(&url, None, Some("no_such_database")), StoreErrorKind::Refused, "no_such_database"),
    ];
    refused::addresses(STORE, &cases).await;
}

/// The same server with another password or another database, and without the parameters of the URL.
fn elsewhere(url: &str, password: Option<&str>, database: Option<&str>) -> String {
    let (scheme, rest) = url.split_once("://").unwrap();
    let (credentials, place) = rest.rsplit_once('@').unwrap();
    let (user, own) = credentials.split_once(':').unwrap();
    let place = place.split('?').next().unwrap();
    let (host, own_database) = place.split_once('/').unwrap();
    let (password, database) = (password.unwrap_or(own), database.unwrap_or(own_database));
    format!("{scheme}://{user}:{password}@{host}/{database}")
}

#[test]
fn a_url_is_led_elsewhere() {
    let url = "x://bob:a%40b@db:1/emmer?timeout_ms=1000";
    assert_eq!(elsewhere(url, Some("s3cret"), None), "x://bob:s3cret@db:1/emmer");
    assert_eq!(elsewhere(url, None, Some("other")), "x://bob:a%40b@db:1/other");
}

/// Needs no server.
#[tokio::test]
async fn where_there_is_no_server_it_is_unavailable() {
    refused::silent(|port| format!("mssql://sa:only-for-tests@127.0.0.1:{port}/emmer"), STORE).await;
    let closed = emmer_test_servers::process::free_port().unwrap();
    let cases = [
        (format!("mssql://sa:s3cret@127.0.0.1:{closed}/emmer"), StoreErrorKind::Unavailable, "refused"),
        ("mssql://sa:s3cret@no-such-host.invalid/emmer".to_owned(), StoreErrorKind::Unavailable, "lookup"),
    ];
    refused::addresses(STORE, &cases).await;
}
