//! Three nodes with three copies of each row: one is killed and comes back, one stands still, while
//! writers commit.
//!
//! Three servers take 25 seconds to start and 2.4 GiB, so this is run by hand:
//! `cargo test -p emmer-store-cassandra --test it cluster -- --ignored --nocapture`.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use emmer_store::silos::VERSION_ROW;
use emmer_store::{CommitOutcome, Mutation, StoreErrorKind, StoredRow, SystemStore};
use emmer_store_cassandra::CassandraStore;
use emmer_test_servers::process::Frozen;
use emmer_test_servers::suite::rows::{NUMBERS, must_commit, number, row};
use emmer_test_servers::suite::{self, Store};
use emmer_test_servers::{CassandraCluster, store};
use tokio::sync::watch;
use tokio::task::JoinSet;

const STORE: Store = store!(CassandraStore);
const NODES: usize = 3;
const WRITERS: usize = 8;
/// How many commits are acknowledged between two events.
const BETWEEN: i64 = 60;

/// The version, and how many commits each writer has made; the sum is the version.
fn whole(rows: &[StoredRow]) -> (Option<&StoredRow>, i64) {
    let (version, others): (Vec<_>, Vec<_>) =
        rows.iter().partition(|row| row.row.key() == VERSION_ROW);
    let sum: i64 = others.iter().map(|row| number(row)).sum();
    let version = version.into_iter().next();
    assert_eq!(version.map_or(0, number), sum, "torn: {rows:?}");
    (version, sum)
}

#[derive(Default)]
struct Tally {
    acknowledged: AtomicI64,
    lost: AtomicI64,
    unknown: AtomicI64,
    failed: AtomicI64,
}

/// Reads the version and commits, on and on; answers how many of its commits happened.
async fn write(
    store: Arc<dyn SystemStore>,
    me: String,
    tally: Arc<Tally>,
    done: watch::Receiver<bool>,
) -> i64 {
    let count = |of: &AtomicI64| of.fetch_add(1, Ordering::SeqCst);
    let mut mine = 0;
    while !*done.borrow() {
        let rows = match store.read_partition(&NUMBERS, "p").await {
            Ok(rows) => rows,
            Err(error) => {
                assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
                count(&tally.failed);
                continue;
            }
        };
        let (version, sum) = whole(&rows);
        let found = rows.iter().find(|row| row.row.key() == me).map_or(0, number);
        assert!((mine..=mine + 1).contains(&found), "{found} of my commits, not {mine}");
        mine = found;
        let next = row(VERSION_ROW, sum + 1);
        let version = match version {
            Some(version) => Mutation::Replace { row: next, etag: version.etag.clone() },
            None => Mutation::Insert { row: next },
        };
        let commit = vec![version, Mutation::Upsert { row: row(me.clone(), mine + 1) }];
        match store.commit(&NUMBERS, "p", commit).await {
            Ok(CommitOutcome::Committed(_)) => {
                mine += 1;
                count(&tally.acknowledged);
            }
            Ok(CommitOutcome::Conflict(at)) => {
                assert_eq!(at, 0);
                count(&tally.lost);
            }
            // The next read says whether it happened.
            Ok(CommitOutcome::Unknown(_)) => drop(count(&tally.unknown)),
            Err(error) => {
                assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
                count(&tally.failed);
            }
        }
    }
    mine
}

/// Reads, on and on: one moment each time, and never one before the last.
async fn read(store: Arc<dyn SystemStore>, done: watch::Receiver<bool>) -> usize {
    let (mut newest, mut reads) = (0, 0);
    while !*done.borrow() {
        if let Ok(rows) = store.read_partition(&NUMBERS, "p").await {
            let (_, sum) = whole(&rows);
            assert!(sum >= newest, "a read went back from {newest} to {sum}");
            (newest, reads) = (sum, reads + 1);
        }
    }
    reads
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "three servers of 0.8 GiB each, and a minute and a half; run by hand"]
async fn a_node_is_killed_and_one_stands_still_while_writers_commit() {
    let mut cluster = match tokio::task::block_in_place(|| CassandraCluster::start(NODES)) {
        Ok(cluster) => cluster,
        Err(trouble) => return emmer_test_servers::skip("a_node_is_killed", &trouble),
    };
    let url = cluster.url();
    suite::conforms(&url, STORE).await;
    let (done, is_done) = watch::channel(false);
    let (tally, mut writers) = (Arc::new(Tally::default()), JoinSet::new());
    for n in 0..WRITERS {
        let store = (STORE.open)(url.clone()).await.unwrap();
        store.ensure_tables(&[&NUMBERS]).await.unwrap();
        writers.spawn(write(store, format!("w{n}"), tally.clone(), is_done.clone()));
    }
    let reader = tokio::spawn(read((STORE.open)(url.clone()).await.unwrap(), is_done));
    let some_more = async || {
        let before = tally.acknowledged.load(Ordering::SeqCst);
        while tally.acknowledged.load(Ordering::SeqCst) < before + BETWEEN {
            assert!(!reader.is_finished(), "the reader ended");
            tokio::task::yield_now().await;
        }
    };
    let say = |what: &str| {
        let of = |of: &AtomicI64| of.load(Ordering::SeqCst);
        let (acknowledged, lost) = (of(&tally.acknowledged), of(&tally.lost));
        let (unknown, failed) = (of(&tally.unknown), of(&tally.failed));
        println!(
            "{what}: {acknowledged} acknowledged, {lost} lost, {unknown} unknown, {failed} failed"
        );
    };
    some_more().await;
    say("three nodes");
    for n in (0..NODES).rev() {
        tokio::task::block_in_place(|| cluster.nodes[n].kill());
        some_more().await;
        say(&format!("without node {n}"));
        tokio::task::block_in_place(|| cluster.nodes[n].start_again()).unwrap();
        some_more().await;
        say(&format!("node {n} is back"));
    }
    for n in 0..NODES {
        let frozen = tokio::task::block_in_place(|| Frozen::whole(cluster.nodes[n].pid())).unwrap();
        some_more().await;
        say(&format!("node {n} stands still"));
        tokio::task::block_in_place(|| drop(frozen));
        some_more().await;
        say(&format!("node {n} goes on"));
    }
    done.send_replace(true);
    let happened: i64 = writers.join_all().await.into_iter().sum();
    println!("{} reads beside them", reader.await.unwrap());
    let store = STORE.patient(&url).await;
    let rows = store.read_partition(&NUMBERS, "p").await.unwrap();
    let (_, sum) = whole(&rows);
    let (acknowledged, unknown) =
        (tally.acknowledged.load(Ordering::SeqCst), tally.unknown.load(Ordering::SeqCst));
    println!(
        "version {sum}: {acknowledged} acknowledged, {unknown} unknown, {happened} known to have \
         happened"
    );
    assert!((acknowledged..=acknowledged + unknown).contains(&sum));
    must_commit(&store, "p", vec![Mutation::Upsert { row: row(VERSION_ROW, sum) }]).await;
}
