//! A file that is deleted, renamed or replaced while a store has it open. Without a check, SQLite
//! would continue in a file that no other process sees.

use std::fs;
use std::path::Path;

use emmer_core::{ClusterId, SiloAddress, SiloEntry, SiloStatus, TableId, TableVersion, Timestamp};
use emmer_store::silos::{SiloCommit, SiloTable, SiloTouch};
use emmer_store::{StoreErrorKind, SystemStore};
use emmer_store_sqlite::SqliteStore;

fn silo(port: u16) -> SiloAddress {
    SiloAddress::new(([127, 0, 0, 1], port).into(), 1)
}

/// A table in the file `path`, in which a silo is at `port`.
async fn filled(path: &Path, port: u16) -> SiloTable {
    let store = SqliteStore::open(path.to_str().unwrap()).unwrap();
    let cluster: ClusterId = "c".parse().unwrap();
    let table = SiloTable::new(std::sync::Arc::new(store), cluster);
    table.ensure().await.unwrap();
    let row = SiloEntry::new(silo(port), SiloStatus::Active, Timestamp::from_millis(1));
    let base = TableVersion { table: TableId::new(port.into()), ..TableVersion::default() };
    let done = table.commit(&base, vec![row], vec![]).await.unwrap();
    assert!(matches!(done, SiloCommit::Committed(_)), "{done:?}");
    table
}

fn delete(path: &Path) {
    for end in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(format!("{}{end}", path.display()));
    }
}

/// Every kind of request reports the missing table. None makes the file again.
async fn is_gone(table: &SiloTable, path: &Path) {
    let kinds = [
        table.read_all().await.unwrap_err(),
        table.read_version().await.unwrap_err(),
        table.touch(&silo(1), Timestamp::from_millis(2)).await.unwrap_err(),
        table.commit(&TableVersion::default(), vec![], vec![silo(1)]).await.unwrap_err(),
        table.ensure().await.unwrap_err(),
    ];
    for error in kinds {
        assert_eq!(error.kind, StoreErrorKind::NotFound, "{error}");
        assert!(error.to_string().contains("deleted or renamed"), "{error}");
    }
    assert!(!path.exists());
}

#[tokio::test]
async fn a_deleted_file_is_gone_for_whoever_had_it_open() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cluster.db");
    let table = filled(&path, 1).await;
    delete(&path);
    is_gone(&table, &path).await;
}

#[tokio::test]
async fn a_renamed_file_is_gone_until_it_is_back() {
    let dir = tempfile::tempdir().unwrap();
    let (path, aside) = (dir.path().join("cluster.db"), dir.path().join("aside.db"));
    let table = filled(&path, 1).await;
    fs::rename(&path, &aside).unwrap();
    is_gone(&table, &path).await;
    fs::rename(&aside, &path).unwrap();
    let touched = table.touch(&silo(1), Timestamp::from_millis(9)).await;
    assert_eq!(touched, Ok(SiloTouch::Touched));
}

#[tokio::test]
async fn requests_go_to_the_file_that_has_the_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cluster.db");
    let old = filled(&path, 1).await;
    delete(&path);
    let new = filled(&path, 2).await;
    // Another table, by its identity and its rows, for the earlier silos.
    let (version, rows) = old.read_all().await.unwrap();
    assert_eq!((version.table, version.number), (TableId::new(2), 1));
    assert_eq!(rows.iter().map(|row| row.address).collect::<Vec<_>>(), [silo(2)]);
    let touched = old.touch(&silo(1), Timestamp::from_millis(9)).await;
    assert_eq!(touched, Ok(SiloTouch::RowMissing));
    // Closing the deleted file takes nothing away from the new one.
    drop(old);
    let touched = new.touch(&silo(2), Timestamp::from_millis(9)).await;
    assert_eq!(touched, Ok(SiloTouch::Touched));
    let row = SiloEntry::new(silo(3), SiloStatus::Active, Timestamp::from_millis(1));
    let done = new.commit(&version, vec![row], vec![]).await.unwrap();
    assert!(matches!(done, SiloCommit::Committed(_)), "{done:?}");
    drop(new);
    let store = SqliteStore::open(path.to_str().unwrap()).unwrap();
    let all = store.read_partition(&emmer_store::silos::SILO_INSTANCES, "c").await.unwrap();
    assert_eq!(all.len(), 3);
}

#[tokio::test]
async fn another_cluster_moved_into_the_place_is_another_table() {
    let dir = tempfile::tempdir().unwrap();
    let (path, other) = (dir.path().join("cluster.db"), dir.path().join("other.db"));
    let table = filled(&path, 1).await;
    drop(filled(&other, 2).await);
    delete(&path);
    fs::rename(&other, &path).unwrap();
    assert_eq!(table.read_version().await.unwrap().table, TableId::new(2));
}

/// Every kind of request reports the damaged file, each time.
async fn is_damaged(table: &SiloTable) {
    for _ in 0..2 {
        let kinds = [
            table.read_all().await.unwrap_err(),
            table.read_version().await.unwrap_err(),
            table.touch(&silo(1), Timestamp::from_millis(2)).await.unwrap_err(),
            table.commit(&TableVersion::default(), vec![], vec![silo(1)]).await.unwrap_err(),
        ];
        for error in kinds {
            assert_eq!(error.kind, StoreErrorKind::Damaged, "{error}");
        }
    }
}

/// A copy that an administrator puts in the place of the file, next to the old log.
#[tokio::test]
async fn a_file_beside_the_log_of_another_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let (path, other) = (dir.path().join("cluster.db"), dir.path().join("other.db"));
    let table = filled(&path, 1).await;
    drop(filled(&other, 2).await);
    fs::rename(&other, &path).unwrap();
    is_damaged(&table).await;
    // Without the log it is a table like any other.
    drop(table);
    for end in ["-wal", "-shm"] {
        let _ = fs::remove_file(format!("{}{end}", path.display()));
    }
    let store = SqliteStore::open(path.to_str().unwrap()).unwrap();
    let table = SiloTable::new(std::sync::Arc::new(store), "c".parse().unwrap());
    assert_eq!(table.read_version().await.unwrap().table, TableId::new(2));
}

/// A copy that an administrator writes over the file that silos have open.
#[tokio::test]
async fn a_file_that_was_written_over_is_damaged_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cluster.db");
    drop(filled(&path, 1).await);
    let mut damaged = fs::read(&path).unwrap();
    damaged[4_096..].fill(0xa5);
    let store = SqliteStore::open(path.to_str().unwrap()).unwrap();
    let table = SiloTable::new(std::sync::Arc::new(store), "c".parse().unwrap());
    let whole = fs::read(&path).unwrap();
    fs::write(&path, damaged).unwrap();
    is_damaged(&table).await;
    // Reads in between may have been wrong, so a file that is whole again needs a new process.
    fs::write(&path, whole).unwrap();
    is_damaged(&table).await;
}
