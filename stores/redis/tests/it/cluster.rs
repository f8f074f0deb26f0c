//! A Redis Cluster of several nodes: every table's keys lie somewhere, move while they are written,
//! and outlive a node's absence.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use emmer_store::{CommitOutcome, Mutation, StoreErrorKind, SystemStore};
use emmer_store_redis::RedisStore;
use emmer_test_servers::redis::PASSWORD;
use emmer_test_servers::suite::rows::{NUMBERS, all, must_commit, number_of, same_number};
use emmer_test_servers::suite::{self, Store};
use emmer_test_servers::{RedisCluster, RedisServer, store};

const STORE: Store = store!(RedisStore);
const NODES: usize = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_of_several_nodes_conforms() {
    let Some(cluster) = RedisCluster::start_or_skip("a_cluster_of_several_nodes", NODES) else {
        return;
    };
    suite::conforms(&cluster.url(1), STORE).await;
    // The partitions of a table lie at all nodes, and a scan finds them.
    let store = STORE.patient(&cluster.url(1)).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    for n in 0..30 {
        must_commit(&store, &format!("p{n}"), all(1, 1_000 + n)).await;
    }
    assert_eq!(store.scan(&NUMBERS, "N", 1_000..=1_100, 100).await.unwrap().len(), 30);
    assert!(!store.examine().await.unwrap().warns_of_lost_writes());
    for node in &cluster.nodes {
        let keys = node.cli(&["--scan", "--pattern", "emmer:{numbers/p*}"]).unwrap();
        assert!(!keys.trim().is_empty(), "a node has no partition");
    }
    // Possible losses of nodes that the URL does not name are reported too.
    cluster.nodes[2].cli(&["CONFIG", "SET", "appendfsync", "everysec"]).unwrap();
    let found = store.examine().await.unwrap();
    let named = format!("127.0.0.1:{}: appendfsync is everysec", cluster.nodes[2].port());
    assert!(
        found.warns_of_lost_writes() && found.findings[0].text.starts_with(&named),
        "{found:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_writers_race_at_a_cluster() {
    let Some(cluster) = RedisCluster::start_or_skip("twenty_writers_race", NODES) else { return };
    suite::writers::race(&cluster.url(NODES), STORE).await;
}

/// Moves the slot of `key` by hand, step by step as `redis-cli --cluster reshard` does, calling
/// `between` when the slot is announced and when the keys have moved.
fn move_slot(from: &RedisServer, to: &RedisServer, key: &str, mut between: impl FnMut()) {
    let slot = from.cli(&["CLUSTER", "KEYSLOT", key]).unwrap().trim().to_owned();
    let id = |node: &RedisServer| node.cli(&["CLUSTER", "MYID"]).unwrap().trim().to_owned();
    let (source, target) = (id(from), id(to));
    to.cli(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source]).unwrap();
    from.cli(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target]).unwrap();
    between();
    let port = to.port().to_string();
    // One key at a time: in between some have moved and some have not.
    loop {
        let keys = from.cli(&["CLUSTER", "GETKEYSINSLOT", &slot, "1"]).unwrap();
        let Some(key) = keys.lines().find(|line| !line.trim().is_empty()) else { break };
        from.cli(&["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "AUTH", PASSWORD, "KEYS", key])
            .unwrap();
        between();
    }
    for node in [to, from] {
        node.cli(&["CLUSTER", "SETSLOT", &slot, "NODE", &target]).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_slot_that_moves_under_writers_loses_nothing() {
    let Some(cluster) = RedisCluster::start_or_skip("a_slot_that_moves", NODES) else { return };
    let store = STORE.patient(&cluster.url(1)).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    must_commit(&store, "p", all(5, 0)).await;
    let done = Arc::new(AtomicBool::new(false));
    let writer = {
        let (store, done) = (store.clone(), done.clone());
        tokio::spawn(async move {
            let mut n = 0;
            while !done.load(Ordering::Relaxed) {
                n += 1;
                must_commit(&store, "p", all(5, n)).await;
                assert_eq!(same_number(&store.read_partition(&NUMBERS, "p").await.unwrap(), 5), n);
            }
            n
        })
    };
    let reader = STORE.patient(&cluster.url(NODES)).await;
    let key = "emmer:{numbers/p}";
    let mut newest = 0;
    for _ in 0..2 {
        let (owner, other) = tokio::task::block_in_place(|| cluster.owner_and_other(key)).unwrap();
        let handle = tokio::runtime::Handle::current();
        tokio::task::block_in_place(|| {
            move_slot(owner, other, key, || {
                let seen = handle.block_on(number_of(&reader, "r000"));
                assert!(seen >= newest, "a read went back from {newest} to {seen}");
                newest = seen;
            });
        });
    }
    done.store(true, Ordering::Relaxed);
    let written = writer.await.unwrap();
    assert!(written > 0);
    assert_eq!(same_number(&store.read_partition(&NUMBERS, "p").await.unwrap(), 5), written);
    assert_eq!(number_of(&reader, "r004").await, written);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_away_is_unavailable_and_found_again() {
    let Some(mut cluster) = RedisCluster::start_or_skip("a_node_that_is_away", NODES) else {
        return;
    };
    // Every node is named, so any of them may be asked first.
    let store: Arc<dyn SystemStore> =
        (STORE.open)(suite::with(&cluster.url(NODES), "timeout_ms=5000")).await.unwrap();
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    must_commit(&store, "p", all(2, 1)).await;
    let port = cluster.owner_and_other("emmer:{numbers/p}").unwrap().0.port();
    let node = cluster.nodes.iter_mut().find(|node| node.port() == port).unwrap();
    node.kill();
    match store.commit(&NUMBERS, "p", all(2, 2)).await {
        Err(error) => assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}"),
        Ok(CommitOutcome::Unknown(_)) => {}
        Ok(other) => panic!("{other:?}"),
    }
    node.start_again().unwrap();
    // The node says that the cluster is down until the others know it again.
    let patient = STORE.patient(&cluster.url(NODES)).await;
    let mutations = || vec![Mutation::Upsert { row: suite::rows::row("r000", 3) }];
    while let Err(error) = patient.commit(&NUMBERS, "p", mutations()).await {
        assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
        tokio::task::yield_now().await;
    }
    assert_eq!(number_of(&store, "r000").await, 3);
}
