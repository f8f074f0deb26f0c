//! The suite of all stores, on the server that `TEST_ORACLE_URL` names (an empty database). Without
//! it nothing runs, and each test says so.

use std::sync::Arc;

use emmer_store::{BoxFuture, Result, StoreErrorKind, SystemStore};
use emmer_store_oracle::OracleStore;
use emmer_test_servers::suite::{Store, external, refused};

const STORE: Store = Store { open, patient: "timeout_ms=60000", hasty: "timeout_ms=1000" };

fn open(url: String) -> BoxFuture<'static, Result<Arc<dyn SystemStore>>> {
    Box::pin(async move { Ok(Arc::new(OracleStore::open(&url).await?) as Arc<dyn SystemStore>) })
}

/// One after the other, because they share a database. The first needs it empty.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_passes_what_every_store_passes() {
    let Some(url) = external::server("TEST_ORACLE_URL", "it_passes_what_every_store_passes") else {
        return;
    };
    external::passes_all(&url, STORE).await;
}

#[tokio::test]
async fn wrong_passwords_and_missing_databases_are_refused() {
    let Some(url) =
        external::server("TEST_ORACLE_URL", "wrong_passwords_and_missing_databases_are_refused")
    else {
        return;
    };
    let cases = [
        (
            external::elsewhere(&url, Some(refused::PASSWORD), None),
            StoreErrorKind::Refused,
            "ORA-01017",
        ),
        (
            external::elsewhere(&url, None, Some("no_such_service")),
            StoreErrorKind::Unavailable,
            "no_such_service",
        ),
    ];
    refused::addresses(STORE, &cases).await;
}

/// Needs no server.
#[tokio::test]
async fn where_there_is_no_server_it_is_unavailable() {
    refused::silent(|port| format!("oracle://bob:only-for-tests@127.0.0.1:{port}/emmer"), STORE)
        .await;
    let closed = emmer_test_servers::process::free_port().unwrap();
    let cases = [
        (
            format!("oracle://bob:s3cret@127.0.0.1:{closed}/emmer"),
            StoreErrorKind::Unavailable,
            "refused",
        ),
        (
            "oracle://bob:s3cret@no-such-host.invalid/emmer".to_owned(),
            StoreErrorKind::Unavailable,
            "lookup",
        ),
    ];
    refused::addresses(STORE, &cases).await;
}

/// Answers that make the driver panic: an end, an unknown packet, a refusal without a number. The
/// program survives each, and the store is unavailable.
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
        let url = format!(
            "oracle://bob:s3cret@127.0.0.1:{}/emmer",
            listener.local_addr().unwrap().port()
        );
        // The store tries again for a second; each time it hears the same. The thread ends with the
        // test program.
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                // What the driver says is not waited for: it says it first.
                let _ = std::io::Read::read(&mut stream, &mut [0; 1_024]);
                let _ = std::io::Write::write_all(&mut stream, &answer);
            }
        });
        refused::addresses(STORE, &[(url, StoreErrorKind::Unavailable, word)]).await;
    }
}
