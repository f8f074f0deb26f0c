//! The typed tables with a store that misbehaves or holds foreign rows.

use std::sync::Arc;

use emmer_core::{ClusterId, SiloAddress, SiloEntry, SiloStatus, TableVersion, Timestamp};
use emmer_store::silos::{self, SILO_INSTANCES, VERSION_ROW};
use emmer_store::state::GRAIN_STATE;
use emmer_store::{
    CommitOutcome, MemoryStore, MemoryTables, Mutation, Row, SiloCommit, SiloTable, StateTable,
    StoreError, StoreErrorKind, SystemStore, Value, WriteOutcome, keys,
};

const NOW: Timestamp = Timestamp::from_millis(1_795_265_085_123);

fn cluster() -> ClusterId {
    "prod".parse().unwrap()
}

fn entry(port: u16) -> SiloEntry {
    let endpoint = std::net::SocketAddr::from(([10, 0, 0, 1], port));
    SiloEntry::new(SiloAddress::new(endpoint, 7), SiloStatus::Active, NOW)
}

async fn table_of(entries: Vec<SiloEntry>) -> (MemoryStore, SiloTable) {
    let store = MemoryStore::new();
    let table = SiloTable::new(Arc::new(store.clone()), cluster());
    table.ensure().await.unwrap();
    let outcome = table.commit(&TableVersion::default(), entries, vec![]).await.unwrap();
    assert!(matches!(outcome, SiloCommit::Committed(v) if v.number == 1));
    (store, table)
}

#[tokio::test]
async fn silo_rows_without_a_version_row_are_corrupt() {
    let (store, table) = table_of(vec![entry(1)]).await;
    let delete = Mutation::Delete { row_key: VERSION_ROW.into(), etag: None };
    store.commit(&SILO_INSTANCES, "prod", vec![delete]).await.unwrap();
    let error = table.read_all().await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Corrupt);
    assert_eq!(
        error.to_string(),
        "memory://: read silo_instances/prod: 1 silo rows but no VersionRow"
    );
}

#[tokio::test]
async fn a_row_nobody_understands_is_named() {
    let (store, table) = table_of(vec![entry(1), entry(2)]).await;
    let key = silos::row_key(&entry(2).address);
    let mut row = store.read_row(&SILO_INSTANCES, "prod", &key).await.unwrap().unwrap().row;
    row.set("Status", Value::Text("Sleeping".into()));
    store.commit(&SILO_INSTANCES, "prod", vec![Mutation::Upsert { row }]).await.unwrap();
    for error in
        [table.read_all().await.unwrap_err(), table.read_silo(&entry(2).address).await.unwrap_err()]
    {
        assert_eq!(error.kind, StoreErrorKind::Corrupt);
        let text = error.to_string();
        assert!(text.contains("10.0.0.1-2-7") && text.contains("Sleeping"), "{text}");
    }
    assert_eq!(table.read_silo(&entry(1).address).await.unwrap(), Some(entry(1)));
}

#[tokio::test]
async fn a_table_that_is_too_large_is_refused() {
    let (_, table) = table_of((1..=5).map(entry).collect()).await;
    assert_eq!(table.clone().with_rows_max(5).read_all().await.unwrap().1.len(), 5);
    let error = table.with_rows_max(4).read_all().await.unwrap_err();
    assert!(
        error.kind == StoreErrorKind::Refused
            && error.to_string().contains("membership_rows_max = 4"),
        "{error}"
    );
}

#[tokio::test]
async fn a_heartbeat_without_a_table_is_an_error_not_a_missing_row() {
    let table = SiloTable::new(Arc::new(MemoryStore::new()), cluster());
    let error = table.touch(&entry(1).address, NOW).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::NotFound);
    assert!(error.to_string().contains("table is not there"), "{error}");
}

#[test]
fn a_simulation_commits_and_reads_without_async() {
    let mut tables = MemoryTables::new();
    tables.ensure_tables(&[&SILO_INSTANCES]).unwrap();
    let mutations =
        silos::mutations(&cluster(), &TableVersion::default(), &[entry(1)], &[]).unwrap();
    let outcome = tables.commit(&SILO_INSTANCES, "prod", mutations.clone()).unwrap();
    assert!(matches!(outcome, CommitOutcome::Committed(_)));
    assert_eq!(
        tables.commit(&SILO_INSTANCES, "prod", mutations).unwrap(),
        CommitOutcome::Conflict(0)
    );
    let (version, rows) =
        silos::snapshot(&tables.read_partition(&SILO_INSTANCES, "prod").unwrap()).unwrap();
    assert_eq!((version.number, rows), (1, vec![entry(1)]));
    let lost =
        silos::mutations(&cluster(), &version, &[], &[entry(1).address, entry(2).address]).unwrap();
    assert_eq!(tables.commit(&SILO_INSTANCES, "prod", lost).unwrap(), CommitOutcome::Conflict(2));
}

#[tokio::test]
async fn a_state_row_of_another_grain_is_corrupt() {
    let store = MemoryStore::new();
    let states = StateTable::new(Arc::new(store.clone()), cluster());
    states.ensure().await.unwrap();
    let long = |last: &str| format!("{}{last}", "x".repeat(600));
    let slot = states.slot("Airport", &long("a").into(), "n");
    let written = slot.write(None, "raw", [1].into(), NOW).await.unwrap();
    assert!(matches!(written, WriteOutcome::Written(_)));
    // As if the keys of two grains, cut to their beginnings and hashes, were the same.
    let partition = keys::partition(&cluster(), "Airport", &long("a").into());
    let key = keys::row("n");
    let mut row = store.read_row(&GRAIN_STATE, &partition, &key).await.unwrap().unwrap().row;
    row.set("GrainKey", Value::Text(long("b").into()));
    store.commit(&GRAIN_STATE, &partition, vec![Mutation::Upsert { row }]).await.unwrap();
    let error = slot.read().await.unwrap_err();
    assert!(
        error.kind == StoreErrorKind::Corrupt && error.to_string().contains("another grain"),
        "{error}"
    );
    // And its owner does not overwrite it.
    assert_eq!(slot.write(None, "raw", [2].into(), NOW).await.unwrap(), WriteOutcome::EtagMismatch);
}

#[tokio::test]
async fn a_list_of_states_leaves_out_other_grains_and_no_damaged_row() {
    let store = MemoryStore::new();
    let states = StateTable::new(Arc::new(store.clone()), cluster());
    states.ensure().await.unwrap();
    let key = "JFK".into();
    for name in ["a", "b"] {
        states.slot("Airport", &key, name).write(None, "raw", [1].into(), NOW).await.unwrap();
    }
    let partition = keys::partition(&cluster(), "Airport", &key);
    let read = async |name| {
        store.read_row(&GRAIN_STATE, &partition, &keys::row(name)).await.unwrap().unwrap().row
    };
    let put = async |row| {
        store.commit(&GRAIN_STATE, &partition, vec![Mutation::Upsert { row }]).await.unwrap();
    };
    let mut foreign = read("b").await;
    foreign.set("GrainKey", Value::Text("LHR".into()));
    put(foreign).await;
    let names = async || {
        let found = states.of_grain("Airport", &key).await?;
        Ok::<Vec<_>, StoreError>(found.into_iter().map(|(name, _)| name).collect())
    };
    assert_eq!(names().await.unwrap(), ["a"]);

    let whole = read("a").await;
    let columns = ["ServiceId", "GrainType", "GrainKey", "StateName", "Format", "Modified"];
    let damaged = columns.into_iter().fold(Row::new(whole.key()), |row, column| {
        row.with(column, whole.get(column).unwrap().clone())
    });
    put(damaged).await;
    let error = names().await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Corrupt);
    assert!(error.to_string().contains("Airport/s.JFK/a: "), "{error}");
}

#[tokio::test]
async fn all_incarnations_of_an_address_are_found_however_many_there_are() {
    let of = |port: u16, epochs: std::ops::Range<u64>| {
        let endpoint = std::net::SocketAddr::from(([10, 0, 0, 1], port));
        epochs.map(move |epoch| {
            SiloEntry::new(SiloAddress::new(endpoint, epoch), SiloStatus::Dead, NOW)
        })
    };
    // The last port's rows are the last of the table but the version row.
    let many = [(1_110, 3), (1_111, 30), (1_112, 15), (1_113, 16)];
    let (_, table) =
        table_of(many.iter().flat_map(|(port, n)| of(*port, 1..1 + n)).collect()).await;
    for (port, n) in many {
        let silo = of(port, 500..501).next().unwrap().address;
        let mut found: Vec<u64> = table
            .incarnations(&silo)
            .await
            .unwrap()
            .iter()
            .map(|row| row.address.epoch())
            .collect();
        found.sort_unstable();
        assert_eq!(found, (1..1 + n).collect::<Vec<u64>>(), "{port}");
    }
}
