//! The server or the connection dies: acknowledged commits stay, and unknown ones are called
//! unknown.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use emmer_store::{CommitOutcome, Mutation, StoreErrorKind, SystemStore};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::proxy::{Cut, Proxy};
use super::rows::{NUMBERS, all, must_commit, number_of, row, same_number};
use super::{Store, TestServer, with};
use crate::process::Frozen;

/// The rows one commit of the crash test writes.
const ROWS: usize = 40;
const WRITERS: usize = 4;
const CRASHES: i64 = 4;
/// The time that commits under way have to end, once their server is gone.
const ERRORS_WITHIN: Duration = Duration::from_millis(200);
/// Reads that a server may answer with old rows after a crash.
const OLD_READS_MAX: usize = 50;
/// More messages than any commit needs.
const MESSAGES_MAX: usize = 40;

/// Progress of one writer.
#[derive(Default)]
struct Progress {
    tried: AtomicI64,
    acknowledged: AtomicI64,
}

/// Commits the next number to all rows of a partition, again and again, until it is aborted.
async fn write_on(store: Arc<dyn SystemStore>, partition: String, progress: Arc<Progress>) {
    loop {
        let n = progress.tried.fetch_add(1, Ordering::SeqCst) + 1;
        match store.commit(&NUMBERS, &partition, all(ROWS, n)).await {
            Ok(CommitOutcome::Committed(_)) => progress.acknowledged.store(n, Ordering::SeqCst),
            Ok(CommitOutcome::Unknown(error)) | Err(error) => {
                assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
            }
            Ok(conflict) => panic!("{conflict:?}"),
        }
    }
}

/// The server is killed during commits and started again, several times: every acknowledged commit
/// is there, and none is there in part.
///
/// The writers rest while the rows are read: a commit after the crash would hide torn rows. MariaDB
/// may answer with rows that are one commit too old while it takes back a commit that the crash cut
/// off (see `docs/stores/mariadb.md`): there a later read decides.
///
/// # Panics
/// It is otherwise.
pub async fn killed(mut server: impl TestServer, store: Store) {
    let store = store.patient(&server.url()).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    let writers: [Arc<Progress>; WRITERS] = Default::default();
    for crash in 1..=CRASHES {
        let mut tasks = JoinSet::new();
        for (w, progress) in writers.iter().enumerate() {
            tasks.spawn(write_on(store.clone(), format!("p{w}"), progress.clone()));
        }
        // Different crashes come at different points of the work: after more and more commits.
        for progress in &writers {
            let wanted = progress.acknowledged.load(Ordering::SeqCst) + crash * 3;
            while progress.acknowledged.load(Ordering::SeqCst) < wanted {
                assert!(tasks.try_join_next().is_none(), "a writer ended");
                tokio::task::yield_now().await;
            }
        }
        tokio::task::block_in_place(|| server.kill());
        let under_way = writers.each_ref().map(|w| w.tried.load(Ordering::SeqCst));
        let ended = async {
            while writers.iter().zip(under_way).any(|(w, n)| w.tried.load(Ordering::SeqCst) == n) {
                tokio::task::yield_now().await;
            }
        };
        // Some stores wait for their server, and their commits are cancelled.
        let _ = timeout(ERRORS_WITHIN, ended).await;
        tasks.abort_all();
        while let Some(writer) = tasks.join_next().await {
            assert!(writer.is_err_and(|error| error.is_cancelled()), "a writer ended");
        }
        tokio::task::block_in_place(|| server.start_again().unwrap());
        for (w, progress) in writers.iter().enumerate() {
            let partition = format!("p{w}");
            let read = || store.read_partition(&NUMBERS, &partition);
            let mut found = same_number(&read().await.unwrap(), ROWS);
            let acknowledged = progress.acknowledged.load(Ordering::SeqCst);
            for _ in 0..OLD_READS_MAX {
                if found == acknowledged - 1 && server.recovers_behind_reads() {
                    found = same_number(&read().await.unwrap(), ROWS);
                }
            }
            let tried = progress.tried.load(Ordering::SeqCst);
            assert!(
                (acknowledged..=tried).contains(&found),
                "after crash {crash}: {acknowledged} acknowledged, {tried} tried, {found} found"
            );
        }
    }
}

/// The server is frozen, then gone, then back. Meanwhile the store says `Unavailable`, refused
/// requests change nothing, and the same store finds the server again.
///
/// # Panics
/// It is otherwise.
pub async fn away(mut server: impl TestServer, opener: Store) {
    let store = opener.hasty(&server.url()).await;
    let patient = opener.patient(&server.url()).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    must_commit(&store, "p", all(1, 1)).await;
    // The server accepts and is silent.
    let frozen = tokio::task::block_in_place(|| Frozen::whole(server.pid())).unwrap();
    let error = store.read_partition(&NUMBERS, "p").await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    tokio::task::block_in_place(|| drop(frozen));
    tokio::task::block_in_place(|| server.kill());
    // Its other processes die with the main one, but not at the same moment: one of them may still
    // accept a connection and be silent.
    let at = (std::net::Ipv4Addr::LOCALHOST, server.port());
    while tokio::net::TcpStream::connect(at).await.is_ok() {}
    while store.read_partition(&NUMBERS, "p").await.is_ok() {}
    let error = store.read_partition(&NUMBERS, "p").await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    assert_eq!(error.store, store.describe());
    // The second of a hasty store may be over before a busy machine reports that nothing listens.
    // The read before the commit drops the connections that are dead.
    patient.read_partition(&NUMBERS, "p").await.unwrap_err();
    match patient.commit(&NUMBERS, "p", all(1, 2)).await {
        // No connection: it was not sent.
        Err(error) => assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}"),
        Ok(outcome) => panic!("{outcome:?}"),
    }
    tokio::task::block_in_place(|| server.start_again().unwrap());
    let patient = opener.patient(&server.url()).await;
    assert_eq!(same_number(&patient.read_partition(&NUMBERS, "p").await.unwrap(), 1), 1);
    // The store that saw it go finds it again.
    while store.read_partition(&NUMBERS, "p").await.is_err() {}
    must_commit(&patient, "p", all(1, 3)).await;
}

/// Long before the minute that an operation of a patient store has, and long after the second that
/// it waits for a server that is away.
const FAR_BEFORE_ITS_TIME: Duration = Duration::from_secs(30);

/// Every store waits for an absent server (nothing listens). An operation outlasts a short absence,
/// and is `Unavailable` long before its own time is over when the absence lasts. A commit that met
/// no server is an error, not unknown. So is opening a store.
///
/// # Panics
/// It is otherwise.
pub async fn nobody_listens(server: &impl TestServer, opener: Store) {
    let proxy = Proxy::start(server.port()).await;
    let url = with(&server.url_at(proxy.port()), opener.patient);
    let store = (opener.open)(url.clone()).await.unwrap();
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    must_commit(&store, "p", all(1, 1)).await;
    for round in 2..4 {
        proxy.shut().await;
        let read = || timeout(FAR_BEFORE_ITS_TIME, store.read_partition(&NUMBERS, "p"));
        let error = read().await.expect("a read waited for its whole time").unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
        let commit = || timeout(FAR_BEFORE_ITS_TIME, store.commit(&NUMBERS, "p", all(1, round)));
        let error = commit().await.expect("a commit waited for its whole time").unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
        let open = || timeout(FAR_BEFORE_ITS_TIME, (opener.open)(url.clone()));
        let Err(error) = open().await.expect("opening took the whole time") else {
            panic!("nobody is there")
        };
        assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
        let come_back = async {
            // Behind the first attempts of the others, which come first in one poll.
            tokio::task::yield_now().await;
            proxy.open();
        };
        let (read, committed, opened, ()) = tokio::join!(read(), commit(), open(), come_back);
        assert_eq!(read.unwrap().unwrap().len(), 1);
        let committed = committed.unwrap().unwrap();
        assert!(matches!(committed, CommitOutcome::Committed(_)), "{committed:?}");
        opened.unwrap().unwrap();
    }
    assert_eq!(same_number(&store.read_partition(&NUMBERS, "p").await.unwrap(), 1), 3);
}

/// The connection is cut before and after every single message of a commit. An error means that
/// nothing happened, an acknowledgement that it did, everything else is `Unknown`; and a client
/// that then tries again applies nothing twice.
///
/// # Panics
/// It is otherwise.
pub async fn cut(server: &impl TestServer, opener: Store) {
    let proxy = Proxy::start(server.port()).await;
    let store = opener.patient(&server.url_at(proxy.port())).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    must_commit(&store, "p", vec![Mutation::Upsert { row: row("r", 0) }]).await;
    let (mut n, mut unknown, mut unknown_and_done) = (0, 0, 0);
    for side in [Cut::Answer, Cut::Request] {
        for skip in 0..MESSAGES_MAX {
            n += 1;
            let (outcome, found, was_cut) = cut_commit(&store, &proxy, side, skip, n).await;
            match outcome {
                Ok(CommitOutcome::Unknown(error)) => {
                    assert_eq!(error.store, store.describe());
                    unknown += 1;
                    unknown_and_done += i64::from(found == n);
                }
                Ok(CommitOutcome::Committed(_)) => {
                    assert_eq!(found, n, "acknowledged and not there");
                }
                Ok(CommitOutcome::Conflict(at)) => {
                    panic!("{side:?} {skip}: nobody else wrote, conflict at {at}")
                }
                Err(error) => {
                    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{side:?} {skip}: {error}");
                    assert_ne!(found, n, "{side:?} {skip}: an error, and it is there");
                }
            }
            if !was_cut {
                break;
            }
        }
    }
    println!("{n} commits, {unknown} of them unknown, {unknown_and_done} of these done");
    if server.knows_repeats() {
        assert_eq!(unknown, 0, "whoever may ask again knows");
    } else {
        assert!(unknown_and_done > 0, "a lost acknowledgement must be met");
    }
    // What may be repeated is repeated, or Unavailable.
    for side in [Cut::Answer, Cut::Request] {
        proxy.arm(side, 0);
        match store.read_row(&NUMBERS, "p", "r").await {
            Ok(found) => assert!(found.is_some()),
            Err(error) => assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}"),
        }
        proxy.disarm();
    }
    assert_eq!(number_of(&store, "r").await, n);
}

/// One commit of number `n` whose connection is cut: the store's answer, the number in the table,
/// and whether anything was cut.
async fn cut_commit(
    store: &Arc<dyn SystemStore>,
    proxy: &Proxy,
    side: Cut,
    skip: usize,
    n: i64,
) -> (emmer_store::Result<CommitOutcome>, i64, bool) {
    let before = store.read_row(&NUMBERS, "p", "r").await.unwrap().unwrap();
    let replace = || vec![Mutation::Replace { row: row("r", n), etag: before.etag.clone() }];
    // Work that is done once per connection is done now, so that the counted messages are those of
    // the commit.
    let stale = Mutation::Replace { row: row("r", 0), etag: "1".into() };
    assert_eq!(store.commit(&NUMBERS, "p", vec![stale]).await.unwrap(), CommitOutcome::Conflict(0));
    proxy.arm(side, skip);
    let outcome = store.commit(&NUMBERS, "p", replace()).await;
    let was_cut = proxy.disarm();
    let found = number_of(store, "r").await;
    // A writer that tries again with its old read.
    let again = store.commit(&NUMBERS, "p", replace()).await.unwrap();
    match again {
        CommitOutcome::Conflict(0) => {}
        CommitOutcome::Committed(_) => assert_ne!(found, n, "applied twice"),
        other => panic!("{other:?}"),
    }
    assert_eq!(number_of(store, "r").await, n);
    (outcome, found, was_cut)
}
