//! Reads and writes of many grains that share statements.

use std::sync::Arc;
use std::time::Duration;

use emmer_core::{ClusterId, GrainKey, Timestamp};
use emmer_store::{StateTable, WriteOutcome};
use emmer_test_servers::PostgresServer;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::common::{PATIENT, open};

const GRAINS: u64 = 2_000;

fn key(number: u64) -> GrainKey {
    GrainKey::from(number)
}

fn payload(number: u64, version: u8) -> Arc<[u8]> {
    let mut payload = number.to_le_bytes().to_vec();
    payload.extend([version; 100]);
    payload.into()
}

/// Transactions that the server has committed.
async fn commits(server: &PostgresServer) -> u64 {
    // The server counts them a little later.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let ask = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()";
    server.psql(&["-At", "-c", ask]).unwrap().trim().parse().unwrap()
}

/// Writes every grain's state at once. Each expects what it has, but those that `expects` changes.
async fn write_all(
    states: &StateTable,
    version: u8,
    etags: &[Option<emmer_store::Etag>],
) -> Vec<WriteOutcome> {
    let mut writes = JoinSet::new();
    for (number, etag) in (0..).zip(etags.iter().cloned()) {
        let slot = states.slot("Counter", &key(number), "total");
        writes.spawn(async move {
            let written = slot.write(etag.as_ref(), "bytes", payload(number, version), now());
            (number, written.await.unwrap())
        });
    }
    let mut written = writes.join_all().await;
    written.sort_by_key(|(number, _)| *number);
    written.into_iter().map(|(_, outcome)| outcome).collect()
}

const fn now() -> Timestamp {
    Timestamp::from_millis(1_795_265_085_000)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn states_of_many_grains_share_statements_and_each_has_its_own_outcome() {
    let name = "states_of_many_grains_share_statements_and_each_has_its_own_outcome";
    let Some(server) = PostgresServer::start_or_skip(name) else { return };
    let store = open(&format!("{}?{PATIENT}", server.url())).await;
    let states = StateTable::new(store, ClusterId::new("shared").unwrap());
    states.ensure().await.unwrap();
    let before = commits(&server).await;

    let none = vec![None; usize::try_from(GRAINS).unwrap()];
    let begun = Instant::now();
    let created = write_all(&states, 1, &none).await;
    let took = begun.elapsed();
    let mut etags: Vec<_> = created
        .into_iter()
        .map(|outcome| match outcome {
            WriteOutcome::Written(etag) => Some(etag),
            other => panic!("{other:?}"),
        })
        .collect();
    let mut unique = etags.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), etags.len(), "no two rows have the same etag");
    let statements = commits(&server).await - before;
    assert!(statements < GRAINS / 5, "{statements} statements for {GRAINS} writes in {took:?}");

    // They exist: none is created again.
    let again = write_all(&states, 9, &none).await;
    assert!(again.iter().all(|outcome| *outcome == WriteOutcome::EtagMismatch));

    // Every third expects what its neighbour has, which is nothing that it ever had.
    let wrong: Vec<_> = (0..etags.len())
        .map(|at| etags[if at % 3 == 0 { (at + 1) % etags.len() } else { at }].clone())
        .collect();
    let replaced = write_all(&states, 2, &wrong).await;
    for (at, outcome) in replaced.into_iter().enumerate() {
        match outcome {
            WriteOutcome::Written(etag) if at % 3 != 0 => etags[at] = Some(etag),
            WriteOutcome::EtagMismatch if at % 3 == 0 => {}
            other => panic!("{at}: {other:?}"),
        }
    }

    let before = commits(&server).await;
    let mut reads = JoinSet::new();
    for number in 0..GRAINS + 100 {
        let slot = states.slot("Counter", &key(number), "total");
        reads.spawn(async move { (number, slot.read().await.unwrap()) });
    }
    for (number, found) in reads.join_all().await {
        if number >= GRAINS {
            assert_eq!(found, None);
            continue;
        }
        let found = found.unwrap();
        let version = if number % 3 == 0 { 1 } else { 2 };
        assert_eq!(found.payload, payload(number, version), "{number}");
        assert_eq!(Some(found.etag), etags[usize::try_from(number).unwrap()], "{number}");
    }
    let statements = commits(&server).await - before;
    assert!(statements < GRAINS / 5, "{statements} statements for {GRAINS} reads");
}

/// The rows of a grain, as a journal is replayed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replays_of_many_grains_share_statements_and_each_has_its_own_rows() {
    const REPLAYED: u64 = 400;
    let name = "replays_of_many_grains_share_statements_and_each_has_its_own_rows";
    let Some(server) = PostgresServer::start_or_skip(name) else { return };
    let store = open(&format!("{}?{PATIENT}", server.url())).await;
    let states = StateTable::new(store, ClusterId::new("shared").unwrap());
    states.ensure().await.unwrap();
    let rows =
        |number: u64| (0..number % 4).map(move |row| (format!("row{row}"), number * 10 + row));
    let mut writes = JoinSet::new();
    for number in 0..REPLAYED {
        for (row, value) in rows(number) {
            let slot = states.slot("Counter", &key(number), &row);
            writes.spawn(async move {
                let written = slot.write(None, "bytes", payload(value, 1), now()).await;
                assert!(matches!(written, Ok(WriteOutcome::Written(_))), "{written:?}");
            });
        }
    }
    writes.join_all().await;
    let before = commits(&server).await;
    let mut reads = JoinSet::new();
    for number in 0..REPLAYED {
        let states = states.clone();
        reads.spawn(
            async move { (number, states.of_grain("Counter", &key(number)).await.unwrap()) },
        );
    }
    for (number, found) in reads.join_all().await {
        let found: Vec<_> =
            found.into_iter().map(|(row, state)| (row, state.payload.to_vec())).collect();
        let written: Vec<_> =
            rows(number).map(|(row, value)| (row, payload(value, 1).to_vec())).collect();
        assert_eq!(found, written, "{number}");
    }
    let statements = commits(&server).await - before;
    assert!(statements < REPLAYED / 4, "{statements} statements for {REPLAYED} replays");
}

/// A time that no server can keep, among a hundred states that are written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_that_cannot_be_written_fails_alone() {
    let Some(server) = PostgresServer::start_or_skip("a_state_that_cannot_be_written_fails_alone")
    else {
        return;
    };
    let store = open(&format!("{}?{PATIENT}&pool_max=1", server.url())).await;
    let states = StateTable::new(store, ClusterId::new("shared").unwrap());
    states.ensure().await.unwrap();
    let mut writes = JoinSet::new();
    for number in 0..100 {
        let modified = if number == 50 { Timestamp::from_millis(i64::MAX) } else { now() };
        let slot = states.slot("Counter", &key(number), "total");
        writes.spawn(async move {
            (number, slot.write(None, "bytes", payload(number, 1), modified).await)
        });
    }
    for (number, written) in writes.join_all().await {
        match written {
            Err(error) if number == 50 => assert!(error.detail.contains("time"), "{error}"),
            Ok(WriteOutcome::Written(_)) if number != 50 => {}
            other => panic!("{number}: {other:?}"),
        }
    }
}

/// Prints how many states 100 grains write in a second, each one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn states_a_second() {
    let server = PostgresServer::start_or_skip("states_a_second").unwrap();
    let store = open(&format!("{}?{PATIENT}", server.url())).await;
    let states = StateTable::new(store, ClusterId::new("shared").unwrap());
    states.ensure().await.unwrap();
    for writers in [1, 8, 100] {
        let end = Instant::now() + Duration::from_secs(5);
        let mut tasks = JoinSet::new();
        for number in 0..writers {
            let slot = states.slot("Counter", &key(10_000 * writers + number), "total");
            tasks.spawn(async move {
                let (mut etag, mut took) = (None, Vec::new());
                while Instant::now() < end {
                    let begun = Instant::now();
                    let written = slot.write(etag.as_ref(), "bytes", payload(number, 1), now());
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
