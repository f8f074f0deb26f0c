//! A file that the process may only read. The superuser may write everything, so the test runs
//! itself again as another user.

use std::process::Command;

use emmer_core::ClusterId;
use emmer_store::silos::SiloTable;
use emmer_store::{StoreErrorKind, SystemStore};
use emmer_store_sqlite::SqliteStore;

/// The file, for the process that may only read it.
const FILE: &str = "EMMER_TEST_READ_ONLY_FILE";
/// A user without rights, by number.
const NOBODY: &str = "65534";

fn table(store: SqliteStore) -> SiloTable {
    let store: std::sync::Arc<dyn SystemStore> = std::sync::Arc::new(store);
    SiloTable::new(store, "c".parse::<ClusterId>().unwrap())
}

/// Reads as a client does.
async fn reads(file: &str) {
    let error = SqliteStore::open(file).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Refused, "{error}");
    let table = table(SqliteStore::open(&format!("sqlite://{file}?mode=rw")).unwrap());
    assert!(table.read_all().await.is_ok());
    let error = table.commit(&Default::default(), vec![], vec![]).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Refused, "{error}");
}

#[tokio::test]
async fn a_file_that_may_only_be_read_is_enough_for_a_client() {
    if let Ok(file) = std::env::var(FILE) {
        return reads(&file).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cluster.db");
    // A silo has it open: the log and its index are there.
    let silo = table(SqliteStore::open(file.to_str().unwrap()).unwrap());
    silo.ensure().await.unwrap();
    let open = Command::new("chmod").args(["a+rX", "-R"]).arg(folder.path()).status();
    assert!(open.unwrap().success());
    let mut again = Command::new("setpriv");
    again.args(["--reuid", NOBODY, "--clear-groups"]).arg(std::env::current_exe().unwrap());
    again.args(["--exact", "read_only::a_file_that_may_only_be_read_is_enough_for_a_client"]);
    match again.env(FILE, &file).output() {
        Ok(ended) if ended.status.code() == Some(126) => {
            println!("skipped: another user may not run this program");
        }
        Ok(ended) if String::from_utf8_lossy(&ended.stderr).contains("setpriv:") => {
            println!("skipped: {}", String::from_utf8_lossy(&ended.stderr));
        }
        Ok(ended) => assert!(ended.status.success(), "{ended:?}"),
        Err(error) => println!("skipped: setpriv: {error}"),
    }
}
