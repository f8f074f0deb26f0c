//! A server whose writes are slow, by a trigger of its owner.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{PATIENT, open};
use emmer_store::{CommitOutcome, Etag, Mutation, SystemStore};
use emmer_test_servers::PostgresServer;
use emmer_test_servers::suite::rows::{NUMBERS, must_commit, row};
use tokio::task::JoinSet;
use tokio::time::Instant;

async fn etag_of(store: &Arc<dyn SystemStore>, key: &str) -> Etag {
    store.read_row(&NUMBERS, "p", key).await.unwrap().unwrap().etag
}

/// A trigger on inserts and updates, which does `what`.
fn on_writes(server: &PostgresServer, what: &str) {
    let function = format!(
        "CREATE FUNCTION on_write() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN {what} RETURN new; END'"
    );
    let trigger = "CREATE TRIGGER on_write BEFORE INSERT OR UPDATE ON numbers FOR EACH ROW \
        EXECUTE FUNCTION on_write()";
    server.psql(&["-c", &function, "-c", trigger]).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_replaced_is_one_update() {
    let Some(server) = PostgresServer::start_or_skip("a_row_that_is_replaced") else { return };
    let store = open(&format!("{}?{PATIENT}", server.url_of("postgres"))).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    must_commit(&store, "p", vec![Mutation::Insert { row: row("r", 1) }]).await;
    server.psql(&["-c", "CREATE TABLE events (what text)"]).unwrap();
    on_writes(&server, "INSERT INTO events VALUES (tg_op);");
    let etag = etag_of(&store, "r").await;
    let replace = |etag: &Etag| vec![Mutation::Replace { row: row("r", 2), etag: etag.clone() }];
    must_commit(&store, "p", replace(&etag)).await;
    let outcome = store.commit(&NUMBERS, "p", replace(&etag)).await.unwrap();
    assert!(matches!(outcome, CommitOutcome::Conflict(0)), "{outcome:?}");
    assert_eq!(server.psql(&["-Atc", "SELECT what FROM events"]).unwrap().trim(), "UPDATE");
}

/// Three times as many writers as connections, and each write takes 40 % of an operation's time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_server_does_most_of_what_it_can() {
    const CONNECTIONS: usize = 4;
    const WRITE: Duration = Duration::from_millis(800);
    const LOAD: Duration = Duration::from_secs(8);
    let Some(server) = PostgresServer::start_or_skip("a_slow_server") else { return };
    let url = format!("{}?timeout_ms=2000&pool_max={CONNECTIONS}", server.url_of("postgres"));
    let store = open(&url).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    for writer in 0..CONNECTIONS * 3 {
        must_commit(&store, "p", vec![Mutation::Insert { row: row(writer.to_string(), 0) }]).await;
    }
    on_writes(&server, &format!("PERFORM pg_sleep({});", WRITE.as_secs_f64()));
    let (written, begun) = (Arc::new(AtomicUsize::new(0)), Instant::now());
    let mut writers = JoinSet::new();
    for writer in 0..CONNECTIONS * 3 {
        let (store, written) = (store.clone(), written.clone());
        writers.spawn(async move {
            while begun.elapsed() < LOAD {
                let row = row(writer.to_string(), 1);
                let etag = etag_of(&store, row.key()).await;
                let commit = store.commit(&NUMBERS, "p", vec![Mutation::Replace { row, etag }]);
                if let Ok(CommitOutcome::Committed(_)) = commit.await {
                    written.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    while let Some(ended) = writers.join_next().await {
        ended.unwrap();
    }
    let possible = CONNECTIONS * usize::try_from(LOAD.as_millis() / WRITE.as_millis()).unwrap();
    let written = written.load(Ordering::Relaxed);
    // Without a queue that knows its time it was an eighth. A busy machine has room below 80 %.
    assert!(written * 5 >= possible * 3, "{written} of {possible}");
}
