//! The store passes what every store passes, on the server that `TEST_ORACLE_URL` names (an empty database). Without it
//! nothing of this runs, and each test says so.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;

use emmer_core::Timestamp;
use emmer_store::{BoxFuture, Result, StoreErrorKind, SystemStore};
use emmer_store_oracle::OracleStore;
use emmer_test_servers::suite::rows::NUMBERS;
use emmer_test_servers::suite::{self, Store, refused};

const STORE: Store = Store { open, patient: "timeout_ms=60000", hasty: "timeout_ms=1000" };

fn open(url: String) -> BoxFuture<'static, Result<Arc<dyn SystemStore>>> {
    Box::pin(async move { Ok(Arc::new(OracleStore::open(&url).await?) as Arc<dyn SystemStore>) })
}

/// The server, or a line that nobody overlooks.
fn server(test: &str) -> Option<String> {
    let url = std::env::var("TEST_ORACLE_URL").ok();
    if url.is_none() {
        println!(
            "NOT RUN {test}: no server is named by TEST_ORACLE_URL; this store is untested against a live server"
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
        (elsewhere(&url, Some(refused::PASSWORD), None), StoreErrorKind::Refused, "ORA-01017"),
        (elsewhere(&url, None, Some("no_such_service")), StoreErrorKind::Unavailable, "no_such_service"),
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
    refused::silent(|port| format!("oracle://bob:only-for-tests@127.0.0.1:{port}/emmer"), STORE).await;
    let closed = emmer_test_servers::process::free_port().unwrap();
    let cases = [
        (format!("oracle://bob:s3cret@127.0.0.1:{closed}/emmer"), StoreErrorKind::Unavailable, "refused"),
        ("oracle://bob:s3cret@no-such-host.invalid/emmer".to_owned(), StoreErrorKind::Unavailable, "lookup"),
    ];
    refused::addresses(STORE, &cases).await;
}

/// What another server might say, and what makes the driver panic: an end, a packet it does not know, a refusal without
/// a number. None of it takes the program down, and each time it is the store that cannot be had.
#[tokio::test]
async fn what_is_no_listener_is_unavailable() {
    let packet = |kind: u8, body: &[u8]| {
        let length = u16::try_from(8 + body.len()).unwrap();
        [&length.to_be_bytes()[..], &[0, 0, kind, 0, 0, 0], body].concat()
    };
    let refusal = |text: &str| {
        let length = u16::try_from(text.len()).unwrap();
        packet(4, &[&[0, 0], &length.to_be_bytes()[..], text.as_bytes()].concat())
    };
    let answers = [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), "closed"),
        (packet(99, b"?"), "gave up"),
        (refusal("(ERR=none)"), "gave up"),
        (refusal("(ERR=12514)"), "still starting"),
        (refusal("(ERR=12516)"), "12516"),
    ];
    for (answer, word) in answers {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let url = format!("oracle://bob:s3cret@127.0.0.1:{}/emmer", listener.local_addr().unwrap().port());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // What the driver says is not waited for: it says it first.
            let _ = std::io::Read::read(&mut stream, &mut [0; 1_024]).unwrap();
            std::io::Write::write_all(&mut stream, &answer).unwrap();
        });
        refused::addresses(STORE, &[(url, StoreErrorKind::Unavailable, word)]).await;
        server.join().unwrap();
    }
}
