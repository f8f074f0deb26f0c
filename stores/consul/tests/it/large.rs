//! Commits larger than Consul's transactions: all or nothing, whichever process dies at whatever
//! moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use emmer_core::Timestamp;
use emmer_store::{CommitOutcome, Mutation, StoreErrorKind, Value};
use emmer_store_consul::ConsulStore;
use emmer_test_servers::ConsulServer;
use emmer_test_servers::store;
use emmer_test_servers::suite::Store;
use emmer_test_servers::suite::proxy::{Cut, Proxy};
use emmer_test_servers::suite::rows::{NUMBERS, all, must_commit, row, same_number};

/// More than one transaction takes.
const ROWS: usize = 100;
/// More messages than any commit needs.
const MESSAGES_MAX: usize = 60;

const STORE: Store = store!(ConsulStore);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_cut_at_any_message_of_a_large_commit_leaves_all_or_nothing() {
    let Some(server) = ConsulServer::start_or_skip("a_connection_cut_at_any") else { return };
    let proxy = Proxy::start(server.port()).await;
    let url = server.url().replace(&server.port().to_string(), &proxy.port().to_string());
    let store = STORE.patient(&url).await;
    // Another client, whose connection is not cut.
    let other = STORE.patient(&server.url()).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    must_commit(&store, "p", all(ROWS, 0)).await;
    let (mut n, mut unknown, mut unknown_and_done) = (0, 0, 0);
    for side in [Cut::Answer, Cut::Request] {
        for skip in 0..MESSAGES_MAX {
            n += 1;
            let before = same_number(&other.read_partition(&NUMBERS, "p").await.unwrap(), ROWS);
            // A large commit needs no connection made first.
            store.read_row(&NUMBERS, "p", "r000").await.unwrap();
            proxy.arm(side, skip);
            let outcome = store.commit(&NUMBERS, "p", all(ROWS, n)).await;
            let was_cut = proxy.disarm();
            let found = same_number(&other.read_partition(&NUMBERS, "p").await.unwrap(), ROWS);
            match outcome {
                Ok(CommitOutcome::Committed(etags)) => {
                    assert_eq!(found, n, "acknowledged and not there");
                    let rows = other.read_partition(&NUMBERS, "p").await.unwrap();
                    assert!(
                        rows.iter().zip(etags).all(|(row, etag)| etag.as_ref() == Some(&row.etag))
                    );
                }
                Ok(CommitOutcome::Unknown(_)) => {
                    assert!(found == n || found == before);
                    unknown += 1;
                    unknown_and_done += i64::from(found == n);
                }
                Ok(other) => panic!("{side:?} {skip}: {other:?}"),
                Err(error) => {
                    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{side:?} {skip}: {error}");
                    assert_eq!(found, before, "{side:?} {skip}: an error, and it is there");
                }
            }
            // The remains of a commit hold up no request: small and large commits, touches.
            must_commit(&other, "p", vec![Mutation::Upsert { row: row("r001", found) }]).await;
            let at = Value::Time(Timestamp::from_millis(n));
            other.touch(&NUMBERS, "p", "r000", "At", at).await.unwrap();
            if !was_cut {
                break;
            }
        }
    }
    println!("{n} commits, {unknown} of them unknown, {unknown_and_done} of these done");
    assert!(unknown_and_done > 0, "a lost acknowledgement must be met");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_and_small_commits_and_heartbeats_at_once_lose_nothing() {
    const COMMITS: i64 = 30;
    let Some(server) = ConsulServer::start_or_skip("large_and_small_commits") else { return };
    let mut stores = Vec::new();
    for _ in 0..4 {
        stores.push(STORE.patient(&server.url()).await);
    }
    stores[0].ensure_tables(&[&NUMBERS]).await.unwrap();
    let beat = |ms| Value::Time(Timestamp::from_millis(ms));
    let alive = row("alive", 0).with("At", beat(0));
    must_commit(&stores[0], "p", vec![Mutation::Insert { row: alive }]).await;
    must_commit(&stores[0], "p", all(ROWS - 1, 0)).await;
    let done = Arc::new(AtomicBool::new(false));
    let beaten = Arc::new(AtomicI64::new(0));
    // Two large writers that write the same rows, each all of them.
    let writers: Vec<_> = (0..2)
        .map(|w| {
            let store = stores[w].clone();
            tokio::spawn(async move {
                for n in 1..=COMMITS {
                    let mut mutations = all(ROWS - 1, n * 2 + w as i64);
                    // With the heartbeat of long ago, as a writer holds it.
                    mutations.push(Mutation::Upsert { row: row("alive", n).with("At", beat(0)) });
                    must_commit(&store, "p", mutations).await;
                }
            })
        })
        .collect();
    let heart = tokio::spawn({
        let (store, done, beaten) = (stores[2].clone(), done.clone(), beaten.clone());
        async move {
            let mut ms = 0;
            while !done.load(Ordering::Relaxed) {
                ms += 1;
                store.touch(&NUMBERS, "p", "alive", "At", beat(ms)).await.unwrap();
                beaten.store(ms, Ordering::SeqCst);
            }
        }
    });
    let reader = tokio::spawn({
        let (store, done, beaten) = (stores[3].clone(), done.clone(), beaten.clone());
        async move {
            let mut reads = 0;
            while !done.load(Ordering::Relaxed) {
                let at_least = beaten.load(Ordering::SeqCst);
                let mut rows = store.read_partition(&NUMBERS, "p").await.unwrap();
                let alive = rows.remove(0);
                assert_eq!(alive.row.key(), "alive");
                match alive.row.get("At") {
                    Some(Value::Time(at)) => {
                        assert!(at.as_millis() >= at_least, "a heartbeat was turned back");
                    }
                    other => panic!("{other:?}"),
                }
                same_number(&rows, ROWS - 1);
                reads += 1;
            }
            reads
        }
    });
    for writer in writers {
        writer.await.unwrap();
    }
    done.store(true, Ordering::Relaxed);
    heart.await.unwrap();
    let reads: u32 = reader.await.unwrap();
    println!(
        "{} large commits, {} heartbeats, {reads} reads",
        2 * COMMITS,
        beaten.load(Ordering::SeqCst)
    );
    assert!(reads > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_keeps_every_large_commit_whole() {
    let Some(mut server) = ConsulServer::start_or_skip("a_killed_server") else { return };
    let store = STORE.patient(&server.url()).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    must_commit(&store, "p", all(ROWS, 0)).await;
    let (done, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicI64::new(0)));
    let writer = tokio::spawn({
        let (store, done, acknowledged) = (store.clone(), done.clone(), acknowledged.clone());
        async move {
            let mut n = 0;
            while !done.load(Ordering::SeqCst) {
                n += 1;
                match store.commit(&NUMBERS, "p", all(ROWS, n)).await {
                    Ok(CommitOutcome::Committed(_)) => acknowledged.store(n, Ordering::SeqCst),
                    Ok(CommitOutcome::Unknown(error)) | Err(error) => {
                        assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
                    }
                    Ok(other) => panic!("{other:?}"),
                }
            }
        }
    });
    for crash in 1..=3 {
        let wanted = acknowledged.load(Ordering::SeqCst) + crash * 2;
        while acknowledged.load(Ordering::SeqCst) < wanted {
            assert!(!writer.is_finished(), "the writer ended");
            tokio::task::yield_now().await;
        }
        tokio::task::block_in_place(|| {
            server.kill();
            server.start_again().unwrap();
        });
        let at_least = acknowledged.load(Ordering::SeqCst);
        let found = same_number(&store.read_partition(&NUMBERS, "p").await.unwrap(), ROWS);
        assert!(found >= at_least, "{at_least} acknowledged, {found} found");
    }
    done.store(true, Ordering::SeqCst);
    writer.await.unwrap();
    println!("{} acknowledged", acknowledged.load(Ordering::SeqCst));
}
