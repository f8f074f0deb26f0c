//! A session that waits for a lock and is cancelled or ended by an administrator.

use std::sync::Arc;

use crate::common::{PATIENT, STORE, open};
use emmer_store::{CommitOutcome, Mutation, StoreErrorKind, SystemStore};
use emmer_test_servers::PostgresServer;
use emmer_test_servers::suite::Store;
use emmer_test_servers::suite::rows::{NUMBERS, must_commit, number_of, row};

/// The commit waits for a row that another session holds; then `end_it` is done to its session.
async fn held_commit(
    server: &PostgresServer,
    store: &Arc<dyn SystemStore>,
    end_it: &str,
) -> emmer_store::Result<CommitOutcome> {
    let url = server.url_of("postgres");
    let (holder, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    holder.batch_execute("BEGIN; SELECT 1 FROM numbers WHERE part = 'p' FOR UPDATE").await.unwrap();
    let commit = tokio::spawn({
        let store = store.clone();
        async move { store.commit(&NUMBERS, "p", vec![Mutation::Upsert { row: row("r", 7) }]).await }
    });
    let waiting = "SELECT pid FROM pg_stat_activity WHERE application_name = 'emmer' AND \
        wait_event_type = 'Lock'";
    loop {
        // Another session than the holder, which sees the statistics of its transaction's begin.
        let pids = tokio::task::block_in_place(|| server.psql(&["-Atc", waiting]).unwrap());
        if let Ok(pid) = pids.trim().parse::<i32>() {
            let sql = format!("SELECT {end_it}({pid})");
            tokio::task::block_in_place(|| server.psql(&["-Atc", &sql]).unwrap());
            break;
        }
        tokio::task::yield_now().await;
    }
    let outcome = commit.await.unwrap();
    holder.batch_execute("ROLLBACK").await.unwrap();
    outcome
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_statement_did_nothing_and_an_ended_session_is_unknown() {
    let Some(server) = PostgresServer::start_or_skip("a_cancelled_statement") else { return };
    let store = open(&format!("{}?{PATIENT}", server.url_of("postgres"))).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    must_commit(&store, "p", vec![Mutation::Upsert { row: row("r", 1) }]).await;
    let error = held_commit(&server, &store, "pg_cancel_backend").await.unwrap_err();
    assert!(error.kind == StoreErrorKind::Unavailable && error.detail.contains("57014"), "{error}");
    let outcome = held_commit(&server, &store, "pg_terminate_backend").await.unwrap();
    assert!(matches!(outcome, CommitOutcome::Unknown(_)), "{outcome:?}");
    assert_eq!(number_of(&store, "r").await, 1);
    must_commit(&store, "p", vec![Mutation::Upsert { row: row("r", 2) }]).await;
}

/// A cold start of many silos: they make the tables one after the other, and one that waits for the
/// others waits longer than a request may take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cold_start_of_24_waits_for_whoever_makes_the_tables() {
    /// Longer than a request may take.
    const HELD: &str = "SELECT pg_sleep(6)";
    let Some(server) = PostgresServer::start_or_skip("a_cold_start_of_24") else { return };
    let url = server.url_of("postgres");
    let (holder, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    let letters = i64::from_be_bytes(*b"\0\0emmer\x01");
    let lock = format!("BEGIN; SELECT pg_advisory_xact_lock({letters})");
    holder.batch_execute(&lock).await.unwrap();
    // Opened one after the other: a busy machine takes long for 24 connections at once.
    let mut stores = Vec::new();
    for _ in 0..24 {
        stores.push(Store { hasty: "timeout_ms=5000", ..STORE }.hasty(&url).await);
    }
    let starts: Vec<_> = stores
        .into_iter()
        .map(|store| tokio::spawn(async move { store.ensure_tables(&emmer_store::TABLES).await }))
        .collect();
    holder.batch_execute(HELD).await.unwrap();
    assert!(!starts.iter().any(tokio::task::JoinHandle::is_finished), "the lock is not held");
    holder.batch_execute("COMMIT").await.unwrap();
    for start in starts {
        start.await.unwrap().unwrap();
    }
}
