//! A membership table that is lost while a store is open: dropped, or gone with the server's data.
//! Silos rely on the store's answers then (`crates/membership/src/lost.rs`).

use emmer_core::{SiloEntry, TableId, TableVersion, Timestamp};
use emmer_store::silos::{SILO_INSTANCES, SiloCommit, SiloTable};
use emmer_store::{StoreError, StoreErrorKind};

use super::Store;
use super::rows::{cluster, silo};

async fn write(table: &SiloTable, base: &TableVersion, row: SiloEntry) -> SiloCommit {
    table.commit(base, vec![row], vec![]).await.unwrap()
}

/// After `lose` every read says that there is no table, and no request makes one. When another
/// process has made one, the store that was open all the time shows it, with its own identity.
///
/// # Panics
/// It is otherwise.
pub async fn table(store: Store, url: &str, lose: impl AsyncFnOnce()) {
    let open = async || {
        let opened = store.patient(url).await;
        SiloTable::new(opened, cluster("lost"))
    };
    let (old, me) = (open().await, silo(1).address);
    old.ensure().await.unwrap();
    let first = TableVersion { table: TableId::new(1), ..TableVersion::default() };
    let SiloCommit::Committed(version) = write(&old, &first, silo(1)).await else {
        panic!("the table was empty")
    };
    assert_eq!(old.read_version().await.unwrap(), version);

    lose().await;
    let gone = |error: StoreError| assert_eq!(error.kind, StoreErrorKind::NotFound, "{error}");
    for _ in 0..2 {
        gone(old.read_all().await.unwrap_err());
        gone(old.read_version().await.unwrap_err());
        gone(old.read_some(&me, 5).await.unwrap_err());
        gone(old.touch(&me, Timestamp::from_millis(9)).await.unwrap_err());
    }

    let new = open().await;
    gone(new.read_version().await.unwrap_err());
    new.ensure().await.unwrap();
    assert_eq!(old.read_version().await.unwrap(), TableVersion::default());
    assert_eq!(write(&old, &version, silo(1)).await, SiloCommit::Conflict);
    let first = TableVersion { table: TableId::new(2), ..TableVersion::default() };
    let SiloCommit::Committed(version) = write(&new, &first, silo(2)).await else {
        panic!("the table was empty")
    };
    let (read, rows) = old.read_all().await.unwrap();
    assert_eq!((read.table, read.etag), (TableId::new(2), version.etag));
    assert_eq!(rows.len(), 1);
    let raw = old.store().read_partition(&SILO_INSTANCES, "lost").await.unwrap();
    assert_eq!(raw.len(), 2);
}
