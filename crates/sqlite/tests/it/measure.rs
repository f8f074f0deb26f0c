//! A measurement, not a check.

use std::sync::Arc;
use std::time::Duration;

use emmer_core::{ClusterId, GrainKey, Timestamp};
use emmer_store::{StateTable, WriteOutcome};
use emmer_store_sqlite::SqliteStore;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Prints how many states grains write in a second, each one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn states_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/states.db?mode=rwc", folder.path().display());
    let store = Arc::new(SqliteStore::open(&url).unwrap());
    let states = StateTable::new(store, ClusterId::new("measured").unwrap());
    states.ensure().await.unwrap();
    for writers in [1_u64, 8, 100] {
        let end = Instant::now() + Duration::from_secs(5);
        let mut tasks = JoinSet::new();
        for number in 0..writers {
            let key = GrainKey::from(10_000 * writers + number);
            let slot = states.slot("Counter", &key, "total");
            tasks.spawn(async move {
                let (mut etag, mut took) = (None, Vec::new());
                let payload: Arc<[u8]> = vec![1; 100].into();
                while Instant::now() < end {
                    let (begun, now) = (Instant::now(), Timestamp::from_millis(1));
                    let written = slot.write(etag.as_ref(), "bytes", payload.clone(), now);
                    let WriteOutcome::Written(new) = written.await.unwrap() else { panic!() };
                    etag = Some(new);
                    took.push(begun.elapsed());
                }
                took
            });
        }
        let mut took: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
        took.sort_unstable();
        let p99 = took[took.len() * 99 / 100];
        println!("{writers} writers: {} a second, p99 {p99:?}", took.len() / 5);
    }
}
