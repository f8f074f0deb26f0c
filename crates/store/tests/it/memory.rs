//! The memory store passes the conformance suite, and its synchronous heart replays exactly.

use std::sync::Arc;

use emmer_store::{
    BoxFuture, Column, ColumnType, CommitOutcome, MemoryStore, MemoryTables, Mutation, Result, Row,
    StoreErrorKind, SystemStore, TableDecl, Value,
};
use emmer_test_servers::suite::conformance::{self, ConformanceReport};

static TABLE: TableDecl = TableDecl {
    name: "t",
    partition_key: "P",
    row_key: "R",
    columns: &[Column::new("N", ColumnType::Int)],
    schema_version: 1,
    one_moment: true,
};

fn upsert(n: i64) -> Vec<Mutation> {
    vec![Mutation::Upsert { row: Row::new("r").with("N", Value::Int(n)) }]
}

#[tokio::test]
async fn the_memory_store_conforms() {
    let shared = MemoryStore::new();
    let open = || -> BoxFuture<'static, Result<Arc<dyn SystemStore>>> {
        let connection: Arc<dyn SystemStore> = Arc::new(shared.clone());
        Box::pin(async move { Ok(connection) })
    };
    let mut lines = 0;
    let report = conformance::run(&open, &mut |_| lines += 1).await;
    assert!(report.is_success(), "{report}");
    assert_eq!(
        (lines, report.passed),
        (conformance::case_names().count(), conformance::case_names().collect())
    );
}

#[tokio::test]
async fn connections_to_different_stores_do_not_conform() {
    let open = || -> BoxFuture<'static, Result<Arc<dyn SystemStore>>> {
        let connection: Arc<dyn SystemStore> = Arc::new(MemoryStore::new());
        Box::pin(async move { Ok(connection) })
    };
    let report: ConformanceReport = conformance::run(&open, &mut |_| ()).await;
    let failed = |name| report.failed.iter().any(|(n, _)| *n == name);
    assert!(failed("races::connections_see_each_other"), "{report}");
    assert!(failed("silos::a_second_insert_is_a_conflict"), "{report}");
}

#[test]
fn a_clone_of_the_tables_is_a_copy() {
    let mut tables = MemoryTables::new();
    tables.ensure_tables(&[&TABLE]).unwrap();
    tables.commit(&TABLE, "p", upsert(1)).unwrap();
    let copy = tables.clone();
    tables.commit(&TABLE, "p", upsert(2)).unwrap();
    let number =
        |t: &MemoryTables| t.read_row(&TABLE, "p", "r").unwrap().unwrap().row.get("N").cloned();
    assert_eq!((number(&copy), number(&tables)), (Some(Value::Int(1)), Some(Value::Int(2))));
}

#[test]
fn the_same_requests_give_the_same_etags() {
    let run = || {
        let mut tables = MemoryTables::new();
        tables.ensure_tables(&[&TABLE]).unwrap();
        let outcomes: Vec<CommitOutcome> =
            (0..5).map(|n| tables.commit(&TABLE, "p", upsert(n)).unwrap()).collect();
        outcomes
    };
    assert_eq!(run(), run());
}

#[test]
fn errors_name_store_and_operation() {
    let error = MemoryTables::new().commit(&TABLE, "p", upsert(1)).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::NotFound);
    assert_eq!(error.to_string(), "memory://: commit t/p: the table is not there: ensure it first");
}
