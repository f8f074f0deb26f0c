//! The book says "Read at will while silos run". Another program that closes the file last deletes
//! its log. So a store always holds the lock of SQLite's readers on the file, which `/proc/locks`
//! shows.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use emmer_store::{
    Column, ColumnType, CommitOutcome, Mutation, Row, SystemStore, TableDecl, Value,
};
use emmer_store_sqlite::SqliteStore;

/// SQLite's `SHARED_FIRST`: the first of the bytes that a connection which has the file open has
/// locked.
const SHARED_FIRST: u64 = 0x4000_0002;

static NUMBERS: TableDecl = TableDecl {
    name: "numbers",
    partition_key: "Part",
    row_key: "Id",
    columns: &[Column::new("N", ColumnType::Int)],
    schema_version: 1,
    one_moment: true,
};

/// Returns true if this process holds the lock of an open file. The kernel's list is read in
/// pieces: a line can be missing from one reading while other processes lock files, but never from
/// all of them.
fn shows_that_it_is_open(file: &Path) -> bool {
    const READINGS: usize = 50;
    let inode = format!(":{}", std::fs::metadata(file).unwrap().ino());
    let own = std::process::id().to_string();
    (0..READINGS).any(|_| {
        std::fs::read_to_string("/proc/locks").unwrap().lines().any(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            fields.get(4) == Some(&own.as_str())
                && fields[5].ends_with(&inode)
                && fields[6].parse() == Ok(SHARED_FIRST)
        })
    })
}

async fn use_it(store: &SqliteStore, n: i64) {
    let row = Row::new("r").with("N", Value::Int(n));
    let outcome = store.commit(&NUMBERS, "p", vec![Mutation::Upsert { row }]).await.unwrap();
    assert!(matches!(outcome, CommitOutcome::Committed(_)), "{outcome:?}");
    store.read_partition(&NUMBERS, "p").await.unwrap();
}

#[tokio::test]
async fn a_store_shows_that_it_has_the_file_open() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cluster.db");
    let open = || SqliteStore::open(file.to_str().unwrap()).unwrap();
    let first = open();
    first.ensure_tables(&[&NUMBERS]).await.unwrap();
    use_it(&first, 1).await;
    assert!(shows_that_it_is_open(&file), "of one store");
    // As where two silos, or a silo and a tool, are one process.
    let second = open();
    use_it(&second, 2).await;
    assert!(shows_that_it_is_open(&file), "of two stores");
    drop(second);
    use_it(&first, 3).await;
    assert!(shows_that_it_is_open(&file), "when the second is closed");
}
