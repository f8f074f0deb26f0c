//! Large partitions of a server that hands them out in pages, each of another moment.

use std::sync::Arc;

use emmer_core::Timestamp;
use emmer_store::silos::VERSION_ROW;
use emmer_store::{Mutation, StoreErrorKind, SystemStore, Value};
use tokio::task::JoinHandle;

use super::Store;
use super::rows::{NUMBERS, all, must_commit, number, row, same_number};

const ROWS: usize = 5_000;
/// Every so manieth row is written by each commit.
const APART: usize = 125;
const READS: i64 = 10;
/// The commits that come while a partition is read; then its writers rest. They spoil fewer passes
/// than a reader makes.
const COMMITS: i64 = 2;

fn key(i: usize) -> String {
    format!("r{i:04}")
}

/// Rows that lie far apart, and the version row where there is one.
fn changed(versioned: bool, n: i64) -> Vec<Mutation> {
    let far_apart = (0..ROWS).step_by(APART).map(move |i| Mutation::Upsert { row: row(key(i), n) });
    let version = versioned.then(|| Mutation::Upsert { row: row(VERSION_ROW, n) });
    far_apart.chain(version).collect()
}

/// 5,000 rows are read in order and as one moment while a few commits change rows that lie far
/// apart: in a partition with a version row, and in one without. While others never rest, a reader
/// gets an error that says so, or reads one moment.
///
/// # Panics
/// It is otherwise.
pub async fn whole(url: &str, store: Store) {
    let store = store.patient(url).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    for (partition, versioned) in [("versioned", true), ("plain", false)] {
        for first in (0..ROWS).step_by(100) {
            let inserts =
                (first..first + 100).map(|i| Mutation::Insert { row: row(key(i), 0) }).collect();
            must_commit(&store, partition, inserts).await;
        }
        for read in 0..READS {
            let writer =
                write(&store, partition, versioned, read * COMMITS + 1..=(read + 1) * COMMITS);
            one_moment(&store, partition).await.unwrap();
            writer.await.unwrap();
            assert_eq!(one_moment(&store, partition).await.unwrap(), (read + 1) * COMMITS);
        }
        let restless = write(&store, partition, versioned, READS * COMMITS + 1..=i64::MAX);
        let (mut read, mut refused) = (0, 0);
        for _ in 0..3 {
            match one_moment(&store, partition).await {
                Ok(_) => read += 1,
                Err(kind) => {
                    assert_eq!(kind, StoreErrorKind::Unavailable);
                    refused += 1;
                }
            }
        }
        restless.abort();
        println!(
            "{partition}: beside a writer without a pause {read} reads, {refused} told to come back"
        );
    }
}

fn write(
    store: &Arc<dyn SystemStore>,
    partition: &'static str,
    versioned: bool,
    numbers: std::ops::RangeInclusive<i64>,
) -> JoinHandle<()> {
    let store = store.clone();
    tokio::spawn(async move {
        for n in numbers {
            must_commit(&store, partition, changed(versioned, n)).await;
        }
    })
}

/// Reads a partition; the number of the last commit that changed it.
async fn one_moment(store: &Arc<dyn SystemStore>, partition: &str) -> Result<i64, StoreErrorKind> {
    let rows = store.read_partition(&NUMBERS, partition).await.map_err(|error| error.kind)?;
    let (versions, rows): (Vec<_>, Vec<_>) =
        rows.iter().partition(|row| row.row.key() == VERSION_ROW);
    assert_eq!(rows.len(), ROWS);
    assert!(rows.iter().enumerate().all(|(i, row)| row.row.key() == key(i)), "out of order");
    let (together, others): (Vec<_>, Vec<_>) =
        rows.iter().enumerate().partition(|(i, _)| i % APART == 0);
    let numbers: Vec<i64> = together
        .iter()
        .map(|(_, row)| number(row))
        .chain(versions.iter().map(|row| number(row)))
        .collect();
    assert!(numbers.iter().all(|n| *n == numbers[0]), "torn: {numbers:?}");
    assert!(others.iter().all(|(_, row)| number(row) == 0));
    Ok(numbers[0])
}

/// The writers that commit while a partition is read.
const WRITERS: i64 = 16;
/// The reads that have to end meanwhile.
const READS_BESIDE: usize = 20;
/// Number of rows that each commit writes as well as the version row.
const WRITTEN: usize = 3;

/// A partition of `all` rows, which come in pages or are no moment, is read as one while sixteen
/// writers never rest: every read ends.
///
/// # Panics
/// It is otherwise.
pub async fn beside_writers(url: &str, store: Store, all: usize) {
    let reader = store.patient(url).await;
    reader.ensure_tables(&[&NUMBERS]).await.unwrap();
    let version = vec![Mutation::Insert { row: row(VERSION_ROW, 0) }];
    must_commit(&reader, "beside", version).await;
    for first in (0..all).step_by(100) {
        let inserts = (first..first + 100).map(|i| Mutation::Insert { row: row(key(i), 0) });
        must_commit(&reader, "beside", inserts.collect()).await;
    }
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let store = store.patient(url).await;
        writers.push(tokio::spawn(async move {
            for turn in 0.. {
                step(&store, all, writer + turn * WRITERS).await;
            }
        }));
    }
    let begun = std::time::Instant::now();
    let mut versions = Vec::new();
    while versions.len() < READS_BESIDE {
        let rows = reader.read_partition(&NUMBERS, "beside").await.unwrap();
        let (version, others): (Vec<_>, Vec<_>) =
            rows.iter().partition(|row| row.row.key() == VERSION_ROW);
        assert_eq!((version.len(), others.len()), (1, all));
        let version = number(version[0]);
        assert!(others.iter().all(|row| number(row) <= version), "a row of a later commit");
        let last = others.iter().filter(|row| number(row) == version).count();
        assert!(version == 0 || last == WRITTEN, "{last} rows of commit {version}");
        versions.push(version);
    }
    writers.iter().for_each(JoinHandle::abort);
    println!(
        "{READS_BESIDE} reads of {all} rows beside {WRITERS} writers in {:?}, from version {} to {}",
        begun.elapsed(),
        versions[0],
        versions[READS_BESIDE - 1]
    );
}

/// One commit: the next version, and rows that lie far apart. A late writer tries again.
async fn step(store: &Arc<dyn SystemStore>, all: usize, at: i64) {
    let Ok(Some(found)) = store.read_row(&NUMBERS, "beside", VERSION_ROW).await else { return };
    let next = number(&found) + 1;
    let version = Mutation::Replace { row: row(VERSION_ROW, next), etag: found.etag };
    let at = usize::try_from(at).unwrap_or_default();
    let rows = (0..WRITTEN).map(|n| (at * 7 + n * all / WRITTEN) % all);
    let upserts = rows.map(|n| Mutation::Upsert { row: row(key(n), next) });
    // A conflict, or a server that has too much to do: the next one.
    let _ = store.commit(&NUMBERS, "beside", upserts.chain([version]).collect()).await;
}

/// Partitions, scans, samples, commits of rows that a store never saw, and clean-ups of a store
/// whose pages are small (`url` says so).
///
/// # Panics
/// It is otherwise.
pub async fn small(url: &str, opener: Store) {
    const ROWS: usize = 60;
    let store = opener.patient(url).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    for partition in ["a/b", "p", "q"] {
        must_commit(&store, partition, all(ROWS, 1)).await;
    }
    let rows = store.read_partition(&NUMBERS, "p").await.unwrap();
    assert_eq!(same_number(&rows, ROWS), 1);
    assert_eq!(store.scan(&NUMBERS, "N", 1..=1, 1_000).await.unwrap().len(), 3 * ROWS);
    assert_eq!(store.scan(&NUMBERS, "N", 1..=1, 50).await.unwrap().len(), 50);
    for (from, limit) in [("a", 50), ("r030", 40), ("z", 9)] {
        assert_eq!(store.read_some(&NUMBERS, "p", from, limit).await.unwrap().len(), limit);
    }
    let stranger = opener.patient(url).await;
    must_commit(&stranger, "p", all(ROWS, 2)).await;
    assert_eq!(same_number(&store.read_partition(&NUMBERS, "p").await.unwrap(), ROWS), 2);
    for n in 0..ROWS / 2 {
        let at = Value::Time(Timestamp::from_millis(i64::try_from(n).unwrap()));
        store.touch(&NUMBERS, "p", &format!("r{n:03}"), "At", at).await.unwrap();
    }
    let deleted =
        store.delete_older_than(&NUMBERS, "p", "At", Timestamp::from_millis(20)).await.unwrap();
    let left = store.read_partition(&NUMBERS, "p").await.unwrap().len();
    assert_eq!((deleted, left), (20, ROWS - 20));
}
