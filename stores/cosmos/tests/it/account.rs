//! Accounts of several regions, and accounts that are short of throughput, by the emulator's own
//! knobs.

use azure_data_cosmos_driver::in_memory_emulator::{ContainerConfig, ReplicationConfig, WriteMode};
use emmer_store::{CommitOutcome, Mutation, StoreErrorKind};
use emmer_store_cosmos::CosmosStore;
use emmer_test_servers::cosmos::KEY;
use emmer_test_servers::store;
use emmer_test_servers::suite::Store;
use emmer_test_servers::suite::between::replace;
use emmer_test_servers::suite::rows::{NUMBERS, must_commit, number_of, row};

use crate::emulator::Emulator;

const STORE: Store = store!(CosmosStore);
const EAST: &str = "East US";
const WEST: &str = "West US";

fn url(port: u16) -> String {
    format!("cosmos://emulator:{KEY}@127.0.0.1:{port}/emmer?tls=false")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_that_writes_in_several_regions_is_refused() {
    let emulator =
        Emulator::start_with(&[EAST, WEST], |config| config.with_write_mode(WriteMode::Multi));
    let port = emulator.await.unwrap().ports()[0];
    let error = (STORE.open)(url(port)).await.map(drop).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Refused, "{error}");
    assert!(error.detail.contains(EAST) && error.detail.contains(WEST), "{error}");
}

/// Readers that have no session with the writer see its commit at once, though the other region has
/// it an hour later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_are_as_new_as_commits_beside_a_region_that_lags() {
    let an_hour = std::time::Duration::from_secs(3_600);
    let emulator = Emulator::start_with(&[EAST, WEST], |config| {
        config.with_replication_config(ReplicationConfig::fixed(an_hour))
    });
    let emulator = emulator.await.unwrap();
    // Clients that were given the address of either region.
    let [east, west] = emulator.ports()[..] else { panic!() };
    let (one, other) = (STORE.patient(&url(east)).await, STORE.patient(&url(west)).await);
    one.ensure_tables(&[&NUMBERS]).await.unwrap();
    must_commit(&one, "p", vec![Mutation::Upsert { row: row("r", 0) }]).await;
    for n in (1..20).step_by(2) {
        must_commit(&one, "p", replace(&one, n).await).await;
        assert_eq!(number_of(&other, "r").await, n);
        must_commit(&other, "p", replace(&other, n + 1).await).await;
        assert_eq!(number_of(&one, "r").await, n + 1);
    }
}

/// An operator's failover to the other region: commits continue there, and none is lost or reported
/// wrongly.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_go_on_after_a_failover_to_another_region() {
    let emulator = Emulator::start(&[EAST, WEST]).await.unwrap();
    let store = STORE.patient(&url(emulator.ports()[0])).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    must_commit(&store, "p", vec![Mutation::Upsert { row: row("r", 0) }]).await;
    let mut last = 0;
    for (round, region) in [(1, WEST), (2, EAST)] {
        emulator.store().drain_pending_replications().await;
        emulator.store().begin_failover(region).unwrap();
        for n in 0..5 {
            let commit = replace(&store, round * 100 + n).await;
            match store.commit(&NUMBERS, "p", commit).await.unwrap() {
                CommitOutcome::Committed(_) => last = round * 100 + n,
                other => panic!("{region}: {other:?}"),
            }
            assert_eq!(number_of(&store, "r").await, last);
        }
        emulator.store().complete_failover();
        assert_eq!(number_of(&store, "r").await, last);
    }
}

/// An account whose throughput is used up throttles: everything happens, once, only later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_short_of_throughput_is_slow_and_never_wrong() {
    let emulator = Emulator::start_with(&[EAST], |config| config.with_throttling_enabled(true));
    let emulator = emulator.await.unwrap();
    let throughput = ContainerConfig::new().with_throughput(400).build().unwrap();
    emulator.store().create_database("emmer");
    emulator.store().create_container_with_config(
        "emmer",
        "emmer",
        "/EmmerPartition".into(),
        throughput,
    );
    let store = STORE.patient(&url(emulator.ports()[0])).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    must_commit(&store, "p", vec![Mutation::Upsert { row: row("r", 0) }]).await;
    let writers = (0..8).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut committed = 0;
            while committed < 10 {
                let etag = store.read_row(&NUMBERS, "p", "r").await.unwrap().unwrap();
                let n = emmer_test_servers::suite::rows::number(&etag) + 1;
                let change = vec![Mutation::Replace { row: row("r", n), etag: etag.etag }];
                match store.commit(&NUMBERS, "p", change).await {
                    Ok(CommitOutcome::Committed(_)) => committed += 1,
                    Ok(CommitOutcome::Conflict(0)) => {}
                    Ok(other) => panic!("{other:?}"),
                    Err(error) => assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}"),
                }
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    assert_eq!(number_of(&store, "r").await, 80, "each commit counted once");
}
