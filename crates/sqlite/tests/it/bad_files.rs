//! Files that cannot be used: clear errors, and nothing made or changed next to them.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use emmer_store::silos::SILO_INSTANCES;
use emmer_store::state::GRAIN_STATE;
use emmer_store::{
    Column, ColumnType, CommitOutcome, Mutation, Result, Row, StoreError, StoreErrorKind,
    StoredRow, SystemStore, TableDecl, Value,
};
use emmer_store_sqlite::SqliteStore;
use futures_util::FutureExt;

fn refused(path: &Path, kind: StoreErrorKind, word: &str) -> StoreError {
    let error = SqliteStore::open(&format!("sqlite://{}", path.display())).unwrap_err();
    let text = error.to_string();
    assert_eq!(error.kind, kind, "{text}");
    assert!(
        text.contains(word) && text.contains(&format!("sqlite://{}: open", path.display())),
        "{text}"
    );
    error
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

async fn filled(path: &Path) -> SqliteStore {
    let store = SqliteStore::open(path.to_str().unwrap()).unwrap();
    store.ensure_tables(&[&SILO_INSTANCES, &GRAIN_STATE]).await.unwrap();
    for n in 0..60 {
        let payload = Value::Bytes(vec![n; 3_000].into());
        let row = Row::new(format!("r{n}")).with("Payload", payload);
        let outcome =
            store.commit(&GRAIN_STATE, "p", vec![Mutation::Insert { row }]).await.unwrap();
        assert!(matches!(outcome, CommitOutcome::Committed(_)));
    }
    store
}

async fn read(path: &Path) -> Result<Vec<StoredRow>> {
    let store = SqliteStore::open(path.to_str().unwrap())?;
    store.ensure_tables(&[&GRAIN_STATE]).await?;
    store.read_partition(&GRAIN_STATE, "p").await
}

#[test]
fn places_that_are_no_file_are_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    refused(dir.path(), StoreErrorKind::Refused, "is a directory");
    refused(
        &dir.path().join("no/such/cluster.db"),
        StoreErrorKind::Refused,
        "no/such does not exist",
    );
    let missing = dir.path().join("cluster.db");
    let error = SqliteStore::open(&format!("sqlite://{}?mode=rw", missing.display())).unwrap_err();
    assert!(error.to_string().contains("mode=rw"), "{error}");
    assert_eq!(names(dir.path()), Vec::<String>::new());
}

#[test]
fn a_file_that_is_no_database_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notes.txt");
    fs::write(&path, "these are my notes, not a database").unwrap();
    refused(&path, StoreErrorKind::Damaged, "is not a SQLite database");
    assert_eq!(fs::read_to_string(&path).unwrap(), "these are my notes, not a database");
    assert_eq!(names(dir.path()), ["notes.txt"]);
}

#[test]
fn a_read_only_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cluster.db");
    fs::write(&path, "").unwrap();
    let mut permissions = fs::metadata(&path).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&path, permissions).unwrap();
    if fs::File::options().write(true).open(&path).is_ok() {
        println!("skipped: this user may write to read-only files");
        return;
    }
    refused(&path, StoreErrorKind::Refused, "read-only");
}

#[tokio::test]
async fn a_damaged_file_is_told_not_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cluster.db");
    filled(&path).await.close();
    assert_eq!(names(dir.path()), ["cluster.db"], "closing folds the log into the file");
    assert_eq!(read(&path).await.unwrap().len(), 60);
    let whole = fs::read(&path).unwrap();
    // Every page behind the first, which says where the tables are, becomes garbage.
    let mut damaged = whole.clone();
    damaged[4_096..].fill(0xa5);
    fs::write(&path, &damaged).unwrap();
    let error = read(&path).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Damaged, "{error}");
    assert!(error.to_string().contains("cluster.db: "), "{error}");
    // Cut off in the middle.
    fs::write(&path, &whole[..whole.len() / 2 + 100]).unwrap();
    let error = read(&path).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Damaged, "{error}");
}

#[tokio::test]
async fn a_file_of_another_version_is_corrupt() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cluster.db");
    filled(&path).await.close();
    let alter = |sql: &str| rusqlite::Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    alter("UPDATE emmer_meta SET Value = 3 WHERE Name = 'schema grain_state'");
    let error = read(&path).await.unwrap_err();
    assert!(
        error.kind == StoreErrorKind::Corrupt && error.to_string().contains("schema version 3"),
        "{error}"
    );
    alter("UPDATE emmer_meta SET Value = 2 WHERE Name = 'schema grain_state'");
    assert_eq!(read(&path).await.unwrap().len(), 60);
    alter("UPDATE emmer_meta SET Value = 9 WHERE Name = 'layout'");
    let error = read(&path).await.unwrap_err();
    assert!(
        error.kind == StoreErrorKind::Corrupt && error.to_string().contains("layout 9"),
        "{error}"
    );
}

#[tokio::test]
async fn what_a_stranger_wrote_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cluster.db");
    let store = filled(&path).await;
    let conn = rusqlite::Connection::open(&path).unwrap();
    conn.execute_batch(
        "INSERT INTO silo_instances (PartitionKey, RowKey, Etag, SuspectingSilos) \
        VALUES ('p', 'r', 1, 'x,y')",
    )
    .unwrap();
    let error = store.read_partition(&SILO_INSTANCES, "p").await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Corrupt);
    assert!(error.to_string().contains("SuspectingSilos"), "{error}");
}

#[tokio::test]
async fn a_lock_that_is_not_given_back_is_unavailable_and_reads_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cluster.db");
    filled(&path).await.close();
    let store =
        SqliteStore::open(&format!("sqlite://{}?busy_timeout_ms=20", path.display())).unwrap();
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let commit =
        || store.commit(&GRAIN_STATE, "p", vec![Mutation::Insert { row: Row::new("late") }]);
    let error = commit().await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("commit grain_state/p: database is locked"), "{error}");
    assert_eq!(store.read_partition(&GRAIN_STATE, "p").await.unwrap().len(), 60);
    other.execute_batch("COMMIT").unwrap();
    assert!(matches!(commit().await.unwrap(), CommitOutcome::Committed(_)));
}

#[tokio::test]
async fn a_dropped_store_leaves_one_file_and_begins_nothing_for_callers_that_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cluster.db");
    let store: Arc<dyn SystemStore> = Arc::new(filled(&path).await);
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    // The first request waits for the lock, the others behind it; then their callers leave.
    let insert = |n: i32| vec![Mutation::Insert { row: Row::new(format!("late{n}")) }];
    let mut waiting: Vec<_> =
        (0..100).map(|n| store.commit(&GRAIN_STATE, "p", insert(n))).collect();
    for commit in &mut waiting {
        assert!(commit.now_or_never().is_none());
    }
    drop(waiting);
    other.execute_batch("COMMIT").unwrap();
    drop(other);
    drop(store);
    assert_eq!(names(dir.path()), ["cluster.db"]);
    // At most the batch that had begun.
    assert!(read(&path).await.unwrap().len() <= 60 + 64);
}

#[tokio::test]
async fn commits_that_share_a_transaction_fail_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cluster.db");
    let store = filled(&path).await;
    // A trigger is the only way to make a statement of a well-formed commit fail.
    rusqlite::Connection::open(&path)
        .unwrap()
        .execute_batch(
            "CREATE TRIGGER t BEFORE INSERT ON grain_state WHEN NEW.RowKey = 'bad' \
             BEGIN SELECT RAISE(ROLLBACK, 'refused by a trigger'); END",
        )
        .unwrap();
    let keys = ["a", "b", "bad", "c", "r0", "d"];
    let commit =
        |key: &str| store.commit(&GRAIN_STATE, "p", vec![Mutation::Insert { row: Row::new(key) }]);
    let futures: Vec<_> = keys.iter().map(|key| commit(key)).collect();
    let outcomes = futures_util::future::join_all(futures).await;
    for (key, outcome) in keys.iter().zip(outcomes) {
        match *key {
            "bad" => assert!(outcome.unwrap_err().to_string().contains("refused by a trigger")),
            "r0" => assert_eq!(outcome.unwrap(), CommitOutcome::Conflict(0)),
            _ => assert!(matches!(outcome.unwrap(), CommitOutcome::Committed(_)), "{key}"),
        }
    }
    assert_eq!(store.read_partition(&GRAIN_STATE, "p").await.unwrap().len(), 64);
}

const fn things(columns: &'static [Column], schema_version: u32) -> TableDecl {
    TableDecl {
        name: "things",
        partition_key: "Part",
        row_key: "Id",
        columns,
        schema_version,
        one_moment: true,
    }
}

static OLD: TableDecl = things(&[Column::new("Name", ColumnType::Text)], 1);
static NEW: TableDecl = things(
    &[Column::new("Number", ColumnType::Int).indexed(), Column::new("Name", ColumnType::Text)],
    2,
);

#[tokio::test]
async fn a_table_of_an_older_program_is_brought_forward() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cluster.db").display().to_string();
    let old = SqliteStore::open(&path).unwrap();
    old.ensure_tables(&[&OLD]).await.unwrap();
    let row = Row::new("r").with("Name", Value::Text("old".into()));
    old.commit(&OLD, "p", vec![Mutation::Insert { row: row.clone() }]).await.unwrap();
    let new = SqliteStore::open(&path).unwrap();
    new.ensure_tables(&[&NEW]).await.unwrap();
    new.ensure_tables(&[&NEW]).await.unwrap();
    assert_eq!(new.read_row(&NEW, "p", "r").await.unwrap().unwrap().row, row);
    let more = Row::new("s").with("Number", Value::Int(7));
    new.commit(&NEW, "p", vec![Mutation::Insert { row: more.clone() }]).await.unwrap();
    assert_eq!(new.scan(&NEW, "Number", 7..=7, 10).await.unwrap()[0].row, more);
    // Running silos of the older program continue; a new one gets an error.
    assert_eq!(old.read_partition(&OLD, "p").await.unwrap().len(), 2);
    let error = SqliteStore::open(&path).unwrap().ensure_tables(&[&OLD]).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Corrupt, "{error}");
}

#[tokio::test]
async fn the_script_makes_what_the_store_makes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cluster.db");
    let script = emmer_store_sqlite::script(&[&SILO_INSTANCES, &NEW]);
    rusqlite::Connection::open(&path).unwrap().execute_batch(&script).unwrap();
    let store = SqliteStore::open(&path.display().to_string()).unwrap();
    store.ensure_tables(&[&SILO_INSTANCES, &NEW]).await.unwrap();
    let insert = Mutation::Insert { row: Row::new("r") };
    store.commit(&NEW, "p", vec![insert]).await.unwrap();
}
