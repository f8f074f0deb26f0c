//! Many writers and readers: no commit is lost, no read is torn, no request waits without end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use emmer_store::silos::SILO_INSTANCES;
use emmer_store::{Mutation, SiloCommit, SiloTable, SystemStore};
use tokio::task::JoinSet;

use super::Store;
use super::rows::{NUMBERS, all, cluster, must_commit, number, row, same_number, silo};

/// Time for which the writers race.
const RACE: Duration = Duration::from_secs(10);
const WRITERS: u64 = 20;
/// The connections (each with a pool of its own) they share.
const STORES: usize = 5;

/// 20 writers race for one version row: it ends exactly at the number of acknowledged commits.
///
/// # Panics
/// It is otherwise.
pub async fn race(url: &str, store: Store) {
    let mut stores = Vec::new();
    for _ in 0..STORES {
        stores.push(store.patient(url).await);
    }
    stores[0].ensure_tables(&[&SILO_INSTANCES]).await.unwrap();
    let acknowledged = Arc::new(AtomicU64::new(0));
    let mut writers = JoinSet::new();
    for n in 0..WRITERS {
        let table = SiloTable::new(stores[n as usize % stores.len()].clone(), cluster("race"));
        let acknowledged = acknowledged.clone();
        writers.spawn(async move {
            let begun = Instant::now();
            let mut mine = silo(n + 1);
            while begun.elapsed() < RACE {
                let base = table.read_version().await.unwrap();
                mine.update_zone += 1;
                match table.commit(&base, vec![mine.clone()], vec![]).await.unwrap() {
                    SiloCommit::Committed(version) => {
                        assert_eq!(version.number, base.number + 1);
                        acknowledged.fetch_add(1, Ordering::Relaxed);
                    }
                    SiloCommit::Conflict => mine.update_zone -= 1,
                    SiloCommit::Unknown(error) => panic!("{error}"),
                }
            }
            u64::try_from(mine.update_zone).unwrap()
        });
    }
    let each: u64 = writers.join_all().await.into_iter().sum();
    let (version, silos) =
        SiloTable::new(stores[0].clone(), cluster("race")).read_all().await.unwrap();
    let acknowledged = acknowledged.load(Ordering::Relaxed);
    println!("{acknowledged} commits by {WRITERS} writers in {RACE:?}");
    assert!(acknowledged > 0);
    assert_eq!((version.number, each), (acknowledged, acknowledged));
    let written: i32 = silos.iter().map(|silo| silo.update_zone).sum();
    assert_eq!(u64::try_from(written).unwrap(), acknowledged, "rows and version change together");
}

/// 10,000 snapshots while a writer writes: each is one moment, and none goes back.
///
/// # Panics
/// It is otherwise.
pub async fn snapshots(url: &str, store: Store) {
    const ROWS: usize = 20;
    const READERS: usize = 4;
    const SNAPSHOTS: usize = 10_000;
    let store = store.patient(url).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    must_commit(&store, "p", all(ROWS, 0)).await;
    let (writer, done) = write_on(&store, |n| all(ROWS, n));
    let mut readers = JoinSet::new();
    for _ in 0..READERS {
        let store = store.clone();
        readers.spawn(async move {
            let mut newest = 0;
            for _ in 0..SNAPSHOTS / READERS {
                let n = same_number(&store.read_partition(&NUMBERS, "p").await.unwrap(), ROWS);
                assert!(n >= newest, "a read went back from {newest} to {n}");
                newest = n;
            }
        });
    }
    readers.join_all().await;
    done.store(true, Ordering::Relaxed);
    let written = writer.await.unwrap();
    println!("{SNAPSHOTS} snapshots under {written} commits");
    assert!(written > 0);
    assert_eq!(same_number(&store.read_partition(&NUMBERS, "p").await.unwrap(), ROWS), written);
}

/// Commits 1, 2, 3, ... to partition `p` until the flag is set; answers how many.
fn write_on(
    store: &Arc<dyn SystemStore>,
    commit: impl Fn(i64) -> Vec<Mutation> + Send + 'static,
) -> (tokio::task::JoinHandle<i64>, Arc<AtomicBool>) {
    let (store, done) = (store.clone(), Arc::new(AtomicBool::new(false)));
    let flag = done.clone();
    let writer = tokio::spawn(async move {
        let mut n = 0;
        while !flag.load(Ordering::Relaxed) {
            n += 1;
            must_commit(&store, "p", commit(n)).await;
        }
        n
    });
    (writer, done)
}

/// 5,000 rows in one partition are read in order and as one moment, however the server pages, while
/// a writer changes rows that lie far apart in one commit.
///
/// # Panics
/// It is otherwise.
pub async fn large_partition(url: &str, store: Store) {
    const ROWS: usize = 5_000;
    const APART: usize = 125;
    const READS: usize = 30;
    let store = store.patient(url).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    let key = |i: usize| format!("r{i:04}");
    for first in (0..ROWS).step_by(100) {
        let inserts =
            (first..first + 100).map(|i| Mutation::Insert { row: row(key(i), 0) }).collect();
        must_commit(&store, "p", inserts).await;
    }
    let changed = move |n| {
        let far_apart = (0..ROWS).step_by(APART);
        far_apart.map(|i| Mutation::Upsert { row: row(key(i), n) }).collect::<Vec<_>>()
    };
    let (writer, done) = write_on(&store, changed);
    for _ in 0..READS {
        let rows = store.read_partition(&NUMBERS, "p").await.unwrap();
        assert_eq!(rows.len(), ROWS);
        assert!(rows.iter().enumerate().all(|(i, row)| row.row.key() == key(i)), "out of order");
        let (one_moment, others): (Vec<_>, Vec<_>) =
            rows.iter().enumerate().partition(|(i, _)| i % APART == 0);
        let numbers: Vec<i64> = one_moment.iter().map(|(_, row)| number(row)).collect();
        assert!(numbers.iter().all(|n| *n == numbers[0]), "torn: {numbers:?}");
        assert!(others.iter().all(|(_, row)| number(row) == 0));
    }
    done.store(true, Ordering::Relaxed);
    println!("{READS} reads of {ROWS} rows under {} commits", writer.await.unwrap());
}

/// Fifty silos start at once on an empty database.
///
/// # Panics
/// One of the processes cannot make or use its tables.
pub async fn first_tables(url: &str, store: Store) {
    let mut stores = Vec::new();
    for _ in 0..50 {
        stores.push(store.patient(url).await);
    }
    let mut makers = JoinSet::new();
    for store in stores {
        makers.spawn(async move {
            store.ensure_tables(&[&NUMBERS, &SILO_INSTANCES]).await.unwrap();
            // It is usable at once.
            must_commit(&store, "p", vec![Mutation::Upsert { row: row("r", 1) }]).await;
        });
    }
    makers.join_all().await;
}
