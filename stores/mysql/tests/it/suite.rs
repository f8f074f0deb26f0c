//! The store passes what every store passes, on a real MariaDB.

use crate::common::{PATIENT, STORE, open};
use emmer_store::{Mutation, Row, Value};
use emmer_test_servers::suite::rows::{NUMBERS, must_commit};
use emmer_test_servers::{MariadbServer, store_suite, suite};

store_suite!(MariadbServer::start_or_skip, STORE);

/// A server as an administrator may have set it up: another SQL mode, time zone and isolation,
/// small packets, one connection, commits answered late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_conforms_whatever_the_server_defaults_to() {
    let options = [
        "--sql-mode=ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH",
        "--default-time-zone=+05:45",
        "--transaction-isolation=SERIALIZABLE",
        "--character-set-server=latin1",
        "--max-allowed-packet=1M",
        "--autocommit=0",
        "--innodb-rollback-on-timeout=1",
        "--binlog-format=MIXED",
        "--log-bin=log",
    ];
    let server = match MariadbServer::start_with(&options) {
        Ok(server) => server,
        Err(trouble) => return emmer_test_servers::skip("it_conforms_whatever", &trouble),
    };
    suite::conforms(&format!("{}?pool_max=1", server.url_of("emmer")), STORE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_of_an_older_program_is_brought_forward_by_many_at_once() {
    let Some(server) = MariadbServer::start_or_skip("a_table_of_an_older_program") else { return };
    suite::forward::by_many_at_once(&server.url_of("emmer"), STORE).await;
}

/// A commit larger than the server takes at once goes in several texts, and is one commit all the
/// same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_larger_than_a_packet_is_one_commit() {
    let server = match MariadbServer::start_with(&["--max-allowed-packet=256K"]) {
        Ok(server) => server,
        Err(trouble) => return emmer_test_servers::skip("a_commit_larger_than_a_packet", &trouble),
    };
    let store = open(&format!("{}?{PATIENT}", server.url_of("emmer"))).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    let large = |n: i64| {
        let text = Value::Text("ä'\\".repeat(10_000 + n as usize).into());
        Row::new(format!("r{n}")).with("Text", text).with("N", Value::Int(n))
    };
    let rows = || (0..30).map(large).collect::<Vec<_>>();
    must_commit(&store, "p", rows().into_iter().map(|row| Mutation::Insert { row }).collect())
        .await;
    let mut again: Vec<_> = rows().into_iter().map(|row| Mutation::Upsert { row }).collect();
    again.push(Mutation::Insert { row: large(7).with("N", Value::Int(0)) });
    again.remove(7);
    let outcome = store.commit(&NUMBERS, "p", again).await.unwrap();
    assert_eq!(outcome, emmer_store::CommitOutcome::Conflict(29));
    store.append(&NUMBERS, "q", rows()).await.unwrap();
    for partition in ["p", "q"] {
        let found = store.read_partition(&NUMBERS, partition).await.unwrap();
        assert!(
            rows().iter().all(|row| found.iter().any(|found| found.row == *row)),
            "{partition}"
        );
    }
    // What does not fit even alone is refused in plain words.
    let huge = Row::new("huge").with("Text", Value::Text("x".repeat(300_000).into()));
    let error =
        store.commit(&NUMBERS, "p", vec![Mutation::Upsert { row: huge }]).await.unwrap_err();
    assert!(error.detail.contains("max_allowed_packet"), "{error}");
}

/// A cold start of many silos: they make the tables one after the other, and one that waits for the
/// others waits longer than a request may take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cold_start_of_24_waits_for_whoever_makes_the_tables() {
    let Some(server) = MariadbServer::start_or_skip("a_cold_start_of_24") else { return };
    let server = std::sync::Arc::new(server);
    let url = server.url_of("emmer");
    let holder = tokio::task::spawn_blocking({
        let server = server.clone();
        move || server.sql("SELECT GET_LOCK('emmer emmer', 0) + SLEEP(6)").unwrap()
    });
    while server.sql("SELECT IS_FREE_LOCK('emmer emmer') AS free").unwrap().contains('1') {
        tokio::task::yield_now().await;
    }
    let starts = (0..24).map(|_| {
        let url = url.clone();
        tokio::spawn(async move { open(&url).await.ensure_tables(&emmer_store::TABLES).await })
    });
    let starts: Vec<_> = starts.collect();
    let held = holder.await.unwrap();
    assert!(held.contains('1'), "{held}");
    for start in starts {
        start.await.unwrap().unwrap();
    }
}
