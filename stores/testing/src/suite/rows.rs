//! A small table, and rows that tell whether they belong together.

use std::sync::Arc;

use emmer_core::{ClusterId, Duty, SiloAddress, SiloEntry, SiloStatus, Timestamp, Vote};
use emmer_store::{
    Column, ColumnType, CommitOutcome, Mutation, Row, StoredRow, SystemStore, TableDecl, Value,
};

/// The table.
pub static NUMBERS: TableDecl = TableDecl {
    name: "numbers",
    partition_key: "Part",
    row_key: "Id",
    columns: &[
        Column::new("N", ColumnType::Int).indexed(),
        Column::new("Text", ColumnType::Text),
        Column::new("At", ColumnType::Time).volatile(),
    ],
    schema_version: 1,
    one_moment: true,
};

/// A row with a number and some text.
pub fn row(key: impl Into<String>, n: i64) -> Row {
    Row::new(key).with("N", Value::Int(n)).with("Text", Value::Text("x".repeat(200).into()))
}

/// Mutations that write `rows` rows with the same number.
pub fn all(rows: usize, n: i64) -> Vec<Mutation> {
    (0..rows).map(|i| Mutation::Upsert { row: row(format!("r{i:03}"), n) }).collect()
}

/// The number of a row.
///
/// # Panics
/// It has none.
pub fn number(row: &StoredRow) -> i64 {
    match row.row.get("N") {
        Some(Value::Int(n)) => *n,
        other => panic!("N is {other:?}"),
    }
}

/// The one number all rows hold.
///
/// # Panics
/// There are more or fewer rows than `count`, or they differ.
pub fn same_number(rows: &[StoredRow], count: usize) -> i64 {
    let numbers: Vec<i64> = rows.iter().map(number).collect();
    assert_eq!(numbers.len(), count);
    assert!(numbers.iter().all(|n| *n == numbers[0]), "torn: {numbers:?}");
    numbers[0]
}

/// Commits to [`NUMBERS`].
///
/// # Panics
/// It does not happen.
pub async fn must_commit(store: &Arc<dyn SystemStore>, partition: &str, mutations: Vec<Mutation>) {
    let outcome = store.commit(&NUMBERS, partition, mutations).await.unwrap();
    assert!(matches!(outcome, CommitOutcome::Committed(_)), "{outcome:?}");
}

/// The number of row `key` in partition `p`.
///
/// # Panics
/// It is not there.
pub async fn number_of(store: &Arc<dyn SystemStore>, key: &str) -> i64 {
    number(&store.read_row(&NUMBERS, "p", key).await.unwrap().unwrap())
}

/// The cluster called `name`.
///
/// # Panics
/// No cluster may be called so.
pub fn cluster(name: &str) -> ClusterId {
    name.parse().unwrap()
}

/// A silo of epoch `n`.
pub fn silo(n: u64) -> SiloEntry {
    let endpoint = std::net::SocketAddr::from(([127, 0, 0, 1], 11_111));
    SiloEntry::new(SiloAddress::new(endpoint, n), SiloStatus::Active, Timestamp::from_millis(1))
}

/// The row of [`silo`] 1 with a value in every column: another silo suspects it, and it is
/// cordoned.
pub fn silo_with_every_column() -> SiloEntry {
    let mut entry = silo(1);
    entry.votes = vec![Vote { voter: silo(2).address, at: Timestamp::from_millis(5), gone: false }];
    entry.duty = Duty::Cordoned;
    entry
}
