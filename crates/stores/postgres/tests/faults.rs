//! The server or the connection dies: what was acknowledged is there, what is not known is called unknown.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, Ordering};

use common::{NUMBERS, PATIENT, all, must_commit, number, open, row, same_number};
use emmer_store::{CommitOutcome, Mutation, StoreErrorKind, SystemStore};
use emmer_test_servers::PostgresServer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const ROWS: usize = 40;
const WRITERS: usize = 4;
const CRASHES: i64 = 4;

/// What one writer did so far.
#[derive(Default)]
struct Progress {
    tried: AtomicI64,
    acknowledged: AtomicI64,
}

async fn write_until(
    store: Arc<dyn SystemStore>,
    partition: String,
    progress: Arc<Progress>,
    done: Arc<AtomicBool>,
) {
    let mut n = 0;
    while !done.load(Ordering::SeqCst) {
        n += 1;
        progress.tried.store(n, Ordering::SeqCst);
        match store.commit(&NUMBERS, &partition, all(ROWS, n)).await {
            Ok(CommitOutcome::Committed(_)) => progress.acknowledged.store(n, Ordering::SeqCst),
            Ok(CommitOutcome::Unknown(error)) | Err(error) => {
                assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
            }
            Ok(conflict) => panic!("{conflict:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_keeps_every_acknowledged_commit() {
    let Some(mut server) = PostgresServer::start_or_skip("a_killed_server") else { return };
    let url = format!("{}?{PATIENT}", server.url("postgres"));
    let store = open(&url).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..WRITERS)
        .map(|w| {
            let progress = Arc::new(Progress::default());
            let task = write_until(store.clone(), format!("p{w}"), progress.clone(), done.clone());
            (progress, tokio::spawn(task))
        })
        .collect();
    for crash in 1..=CRASHES {
        // Different crashes come at different points of the work: after more and more commits.
        for (progress, _) in &writers {
            let wanted = progress.acknowledged.load(Ordering::SeqCst) + crash * 3;
            while progress.acknowledged.load(Ordering::SeqCst) < wanted {
                tokio::task::yield_now().await;
            }
        }
        let server_ref = &mut server;
        tokio::task::block_in_place(move || {
            server_ref.kill();
            server_ref.start_again().unwrap();
        });
        for (w, (progress, _)) in writers.iter().enumerate() {
            let acknowledged = progress.acknowledged.load(Ordering::SeqCst);
            let rows = store.read_partition(&NUMBERS, &format!("p{w}")).await.unwrap();
            let found = same_number(&rows, ROWS);
            let tried = progress.tried.load(Ordering::SeqCst);
            assert!(
                (acknowledged..=tried).contains(&found),
                "{acknowledged} acknowledged, {tried} tried, {found} found"
            );
        }
    }
    done.store(true, Ordering::SeqCst);
    for (progress, task) in writers {
        task.await.unwrap();
        println!("{} acknowledged", progress.acknowledged.load(Ordering::SeqCst));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_away_is_unavailable_and_found_again() {
    let Some(mut server) = PostgresServer::start_or_skip("a_server_that_is_away") else { return };
    let store = open(&format!("{}?timeout_ms=1000", server.url("postgres"))).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    must_commit(&store, "p", all(1, 1)).await;
    // It is there and says nothing.
    server.signal("STOP").unwrap();
    let silent = store.read_partition(&NUMBERS, "p").await;
    server.signal("CONT").unwrap();
    // The session may have answered: only the main process was stopped.
    if let Err(error) = silent {
        assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    }
    tokio::task::block_in_place(|| server.kill());
    // The session dies with the main process, but not at the same moment.
    while store.read_partition(&NUMBERS, "p").await.is_ok() {}
    let error = store.read_partition(&NUMBERS, "p").await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("postgres:***@127.0.0.1"), "{error}");
    match store.commit(&NUMBERS, "p", all(1, 2)).await {
        // No connection: it was not sent.
        Err(error) => assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}"),
        Ok(outcome) => panic!("{outcome:?}"),
    }
    tokio::task::block_in_place(|| server.start_again().unwrap());
    let patient = open(&format!("{}?{PATIENT}", server.url("postgres"))).await;
    assert_eq!(same_number(&patient.read_partition(&NUMBERS, "p").await.unwrap(), 1), 1);
    // The store that saw it go finds it again by itself.
    while store.read_partition(&NUMBERS, "p").await.is_err() {}
    must_commit(&patient, "p", all(1, 3)).await;
}

const PASS: u8 = 0;
/// What the client sends next is swallowed, and the connection cut.
const CUT_REQUEST: u8 = 1;
/// What the server says next is swallowed, and the connection cut.
const CUT_ANSWER: u8 = 2;

/// A proxy in front of the server that cuts on demand; its port.
async fn proxy(server_port: u16, mode: Arc<AtomicU8>) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(("127.0.0.1", server_port)).await.unwrap();
            let (client_reads, client_writes) = client.into_split();
            let (server_reads, server_writes) = server.into_split();
            let mode = mode.clone();
            tokio::spawn(async move {
                // The first that ends takes the other along, and with it the connection.
                tokio::select! {
                    () = pump(client_reads, server_writes, &mode, CUT_REQUEST) => {}
                    () = pump(server_reads, client_writes, &mode, CUT_ANSWER) => {}
                }
            });
        }
    });
    port
}

async fn pump(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, mode: &AtomicU8, cut: u8) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let Ok(count @ 1..) = from.read(&mut buffer).await else { return };
        // The next connection passes.
        if mode.compare_exchange(cut, PASS, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            return;
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_cut_around_a_commit_leaves_it_unknown() {
    let Some(server) = PostgresServer::start_or_skip("a_connection_cut") else { return };
    let mode = Arc::new(AtomicU8::new(PASS));
    let port = proxy(server.port(), mode.clone()).await;
    let url = server.url("postgres").replace(&server.port().to_string(), &port.to_string());
    let store = open(&format!("{url}?pool_max=1&{PATIENT}")).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    must_commit(&store, "p", vec![Mutation::Upsert { row: row("r", 0) }]).await;
    for (n, cut, applied) in [(1, CUT_ANSWER, true), (2, CUT_REQUEST, false), (3, CUT_ANSWER, true)] {
        let before = store.read_row(&NUMBERS, "p", "r").await.unwrap().unwrap();
        let replace = || vec![Mutation::Replace { row: row("r", n), etag: before.etag.clone() }];
        // The statement must be prepared, so that the next thing on the wire is the commit.
        let stale = Mutation::Replace { row: row("r", 0), etag: "1".into() };
        let outcome = store.commit(&NUMBERS, "p", vec![stale]).await.unwrap();
        assert_eq!(outcome, CommitOutcome::Conflict(0));
        mode.store(cut, Ordering::SeqCst);
        let outcome = store.commit(&NUMBERS, "p", replace()).await.unwrap();
        assert!(matches!(outcome, CommitOutcome::Unknown(_)), "{outcome:?}");
        // Reading finds out, over a new connection; and a writer that tries again applies nothing twice.
        let found = number(&store.read_row(&NUMBERS, "p", "r").await.unwrap().unwrap());
        assert_eq!(found == n, applied);
        let again = store.commit(&NUMBERS, "p", replace()).await.unwrap();
        assert_eq!(again == CommitOutcome::Conflict(0), applied, "{again:?}");
    }
    // What may be repeated is repeated, and nobody hears of it.
    mode.store(CUT_ANSWER, Ordering::SeqCst);
    assert_eq!(number(&store.read_row(&NUMBERS, "p", "r").await.unwrap().unwrap()), 3);
    mode.store(CUT_REQUEST, Ordering::SeqCst);
    store.append(&NUMBERS, "p", vec![row("s", 4)]).await.unwrap();
    assert_eq!(store.read_partition(&NUMBERS, "p").await.unwrap().len(), 2);
}

/// The commit waits for a row that another session holds; then `end_it` is done to its session.
async fn held_commit(
    server: &PostgresServer,
    store: &Arc<dyn SystemStore>,
    end_it: &str,
) -> emmer_store::Result<CommitOutcome> {
    let url = server.url("postgres");
    let (holder, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    holder.batch_execute("BEGIN; SELECT 1 FROM numbers WHERE part = 'p' FOR UPDATE").await.unwrap();
    let commit = tokio::spawn({
        let store = store.clone();
        async move { store.commit(&NUMBERS, "p", vec![Mutation::Upsert { row: row("r", 7) }]).await }
    });
    let waiting =
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'emmer' AND wait_event_type = 'Lock'";
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
    let store = open(&format!("{}?{PATIENT}", server.url("postgres"))).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    must_commit(&store, "p", vec![Mutation::Upsert { row: row("r", 1) }]).await;
    let error = held_commit(&server, &store, "pg_cancel_backend").await.unwrap_err();
    assert!(error.kind == StoreErrorKind::Unavailable && error.detail.contains("57014"), "{error}");
    let outcome = held_commit(&server, &store, "pg_terminate_backend").await.unwrap();
    assert!(matches!(outcome, CommitOutcome::Unknown(_)), "{outcome:?}");
    assert_eq!(number(&store.read_row(&NUMBERS, "p", "r").await.unwrap().unwrap()), 1);
    must_commit(&store, "p", vec![Mutation::Upsert { row: row("r", 2) }]).await;
}
