//! Many writers and readers on a real server: no commit is lost, no read is torn, nobody deadlocks for good.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{NUMBERS, PATIENT, all, cluster, must_commit, open, row, same_number, silo};
use emmer_store::silos::SILO_INSTANCES;
use emmer_store::{Mutation, SiloCommit, SiloTable, SystemStore};
use emmer_test_servers::PostgresServer;
use tokio::task::JoinSet;

/// How long the writers race.
const RACE: Duration = Duration::from_secs(3);
const WRITERS: u64 = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_writers_move_the_version_once_per_acknowledged_commit() {
    let Some(server) = PostgresServer::start_or_skip("racing_writers") else { return };
    let url = format!("{}?pool_max=4&{PATIENT}", server.url("postgres"));
    let mut stores = Vec::new();
    for _ in 0..5 {
        stores.push(open(&url).await);
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
    let (version, silos) = SiloTable::new(stores[0].clone(), cluster("race")).read_all().await.unwrap();
    let acknowledged = acknowledged.load(Ordering::Relaxed);
    println!("{acknowledged} commits by {WRITERS} writers in {RACE:?}");
    assert!(acknowledged > 0);
    assert_eq!((version.number, each), (acknowledged, acknowledged));
    let written: i32 = silos.iter().map(|silo| silo.update_zone).sum();
    assert_eq!(u64::try_from(written).unwrap(), acknowledged, "rows and version change together");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_snapshots_under_writes_are_whole() {
    const ROWS: usize = 20;
    const READERS: usize = 4;
    const SNAPSHOTS: usize = 10_000;
    let Some(server) = PostgresServer::start_or_skip("ten_thousand_snapshots") else { return };
    let url = format!("{}?{PATIENT}", server.url("postgres"));
    let store = open(&url).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    must_commit(&store, "p", all(ROWS, 0)).await;
    let done = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn({
        let (store, done) = (store.clone(), done.clone());
        async move {
            let mut n = 0;
            while !done.load(Ordering::Relaxed) {
                n += 1;
                must_commit(&store, "p", all(ROWS, n)).await;
            }
            n
        }
    });
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_connections_make_the_first_tables_at_once() {
    let Some(server) = PostgresServer::start_or_skip("fifty_connections") else { return };
    let url = format!("{}?pool_max=1&{PATIENT}", server.url("postgres"));
    let mut stores = Vec::new();
    for _ in 0..50 {
        stores.push(open(&url).await);
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_that_lock_crosswise_both_happen() {
    let Some(server) = PostgresServer::start_or_skip("commits_that_lock_crosswise") else { return };
    // A deadlock is found after a second by default; tests need not wait for it.
    let options = "options=-c%20deadlock_timeout%3D20ms";
    let url = format!("{}?{options}&{PATIENT}", server.url("postgres"));
    let store = open(&url).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    let mut writers = JoinSet::new();
    for keys in [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["b", "a", "c"]] {
        let store: Arc<dyn SystemStore> = store.clone();
        writers.spawn(async move {
            for n in 0..50 {
                let upserts = keys.iter().map(|key| Mutation::Upsert { row: row(*key, n) }).collect();
                must_commit(&store, "p", upserts).await;
            }
        });
    }
    writers.join_all().await;
    assert_eq!(same_number(&store.read_partition(&NUMBERS, "p").await.unwrap(), 3), 49);
    let victims = "SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'";
    println!("deadlocks: {}", server.psql(&["-Atc", victims]).unwrap().trim());
}
