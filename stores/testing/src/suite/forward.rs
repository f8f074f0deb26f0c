//! Tables of an older program, upgraded by many silos of a newer one that start at once.

use std::sync::Arc;

use emmer_store::{Column, ColumnType, Mutation, Row, StoreErrorKind, TableDecl, Value};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::Store;

/// The silos that start at once.
const MAKERS: usize = 10;

const COLUMNS: &[Column] = &[
    Column::new("Beat", ColumnType::Time).volatile(),
    Column::new("Items", ColumnType::List),
    Column::new("Payload", ColumnType::Bytes),
    Column::new("Number", ColumnType::Int).indexed(),
    Column::new("Other", ColumnType::Text),
    Column::new("Name", ColumnType::Text),
];

/// Each version declares one column more, in front of the others.
const fn version(number: u32) -> TableDecl {
    let (_, columns) = COLUMNS.split_at(COLUMNS.len() - number as usize);
    TableDecl {
        name: "things",
        partition_key: "Part",
        row_key: "Id",
        columns,
        schema_version: number,
        one_moment: true,
    }
}

static VERSIONS: [TableDecl; 6] =
    [version(1), version(2), version(3), version(4), version(5), version(6)];

fn named(name: &str) -> Row {
    Row::new("r").with("Name", Value::Text(name.into()))
}

/// Ten silos of a newer program upgrade a table at once, five times. None is refused, the rows
/// stay, silos of the older program continue, and a new one of the older program hears why it does
/// not start.
///
/// # Panics
/// It is otherwise.
pub async fn by_many_at_once(url: &str, store: Store) {
    let [first, newer @ ..] = &VERSIONS;
    let old = store.patient(url).await;
    old.ensure_tables(&[first]).await.unwrap();
    old.commit(first, "p", vec![Mutation::Insert { row: named("old") }]).await.unwrap();
    for (older, newer) in VERSIONS.iter().zip(newer) {
        let (mut makers, start) = (JoinSet::new(), Arc::new(Barrier::new(MAKERS)));
        for _ in 0..MAKERS {
            let (store, start) = (store.patient(url).await, start.clone());
            makers.spawn(async move {
                start.wait().await;
                store.ensure_tables(&[newer]).await.unwrap();
                assert_eq!(
                    store.read_row(newer, "p", "r").await.unwrap().unwrap().row,
                    named("old")
                );
            });
        }
        makers.join_all().await;
        let error = store.patient(url).await.ensure_tables(&[older]).await.unwrap_err();
        assert!(
            error.kind == StoreErrorKind::Corrupt && error.detail.contains("version"),
            "{error}"
        );
    }
    let (new, newest) = (store.patient(url).await, &VERSIONS[VERSIONS.len() - 1]);
    let more = Row::new("s").with("Number", Value::Int(7));
    new.commit(newest, "p", vec![Mutation::Insert { row: more.clone() }]).await.unwrap();
    assert_eq!(new.scan(newest, "Number", 7..=7, 10).await.unwrap()[0].row, more);
    old.commit(first, "p", vec![Mutation::Upsert { row: named("older") }]).await.unwrap();
    assert_eq!(old.read_partition(first, "p").await.unwrap().len(), 2);
    assert_eq!(new.read_row(newest, "p", "r").await.unwrap().unwrap().row, named("older"));
}
