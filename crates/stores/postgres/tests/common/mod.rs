//! What several test programs need.

#![allow(dead_code, reason = "each test program uses a part")]

use std::sync::Arc;

use emmer_core::{ClusterId, SiloAddress, SiloEntry, SiloStatus, Timestamp};
use emmer_store::{
    Column, ColumnType, CommitOutcome, Mutation, Row, StoredRow, SystemStore, TableDecl, Value,
};
use emmer_store_postgres::PostgresStore;

/// On a machine that runs all tests at once an operation may take its time.
pub(crate) const PATIENT: &str = "timeout_ms=60000";

/// A small table.
pub(crate) static NUMBERS: TableDecl = TableDecl {
    name: "numbers",
    partition_key: "Part",
    row_key: "Id",
    columns: &[
        Column::new("N", ColumnType::Int).indexed(),
        Column::new("Text", ColumnType::Text),
        Column::new("At", ColumnType::Time).volatile(),
    ],
    schema_version: 1,
};

pub(crate) async fn open(url: &str) -> Arc<dyn SystemStore> {
    Arc::new(PostgresStore::open(url).await.unwrap())
}

pub(crate) fn row(key: impl Into<String>, n: i64) -> Row {
    Row::new(key).with("N", Value::Int(n)).with("Text", Value::Text("x".repeat(200).into()))
}

/// Mutations that write `rows` rows with the same number.
pub(crate) fn all(rows: usize, n: i64) -> Vec<Mutation> {
    (0..rows).map(|i| Mutation::Upsert { row: row(format!("r{i:03}"), n) }).collect()
}

pub(crate) fn number(row: &StoredRow) -> i64 {
    match row.row.get("N") {
        Some(Value::Int(n)) => *n,
        other => panic!("N is {other:?}"),
    }
}

/// The one number all rows hold.
pub(crate) fn same_number(rows: &[StoredRow], count: usize) -> i64 {
    let numbers: Vec<i64> = rows.iter().map(number).collect();
    assert_eq!(numbers.len(), count);
    assert!(numbers.iter().all(|n| *n == numbers[0]), "torn: {numbers:?}");
    numbers[0]
}

pub(crate) async fn must_commit(store: &Arc<dyn SystemStore>, partition: &str, mutations: Vec<Mutation>) {
    let outcome = store.commit(&NUMBERS, partition, mutations).await.unwrap();
    assert!(matches!(outcome, CommitOutcome::Committed(_)), "{outcome:?}");
}

pub(crate) fn cluster(name: &str) -> ClusterId {
    name.parse().unwrap()
}

pub(crate) fn silo(n: u64) -> SiloEntry {
    let endpoint = std::net::SocketAddr::from(([127, 0, 0, 1], 11_111));
    SiloEntry::new(SiloAddress::new(endpoint, n), SiloStatus::Active, Timestamp::from_millis(1))
}
