//! The store passes the conformance suite, over several connections to one file.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;

use emmer_store::conformance;
use emmer_store::{BoxFuture, Result, SystemStore};
use emmer_store_sqlite::SqliteStore;
use emmer_test_servers::report::conformed;

async fn conforms(url: String) {
    let open = || -> BoxFuture<'static, Result<Arc<dyn SystemStore>>> {
        let url = url.clone();
        Box::pin(async move { Ok(Arc::new(SqliteStore::open(&url)?) as Arc<dyn SystemStore>) })
    };
    let report = conformance::run(&open, &mut |line| println!("{line}")).await;
    assert!(report.is_success(), "{report}");
    let found = SqliteStore::open(&url).unwrap().examine().await.unwrap();
    conformed("sqlite", &format!("{} {}", found.server, found.version), report.passed.len());
}

#[tokio::test]
async fn the_sqlite_store_conforms() {
    let dir = tempfile::tempdir().unwrap();
    conforms(format!("sqlite://{}/cluster.db", dir.path().display())).await;
}

#[tokio::test]
async fn it_conforms_when_every_commit_waits_for_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    conforms(format!("sqlite://{}/cluster.db?synchronous=full", dir.path().display())).await;
}
