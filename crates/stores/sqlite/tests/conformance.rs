//! The store passes what every store passes, over several connections to one file.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;

use emmer_store::{BoxFuture, Result, SystemStore};
use emmer_store_sqlite::SqliteStore;
use emmer_test_servers::suite::{self, Store};

const STORE: Store = Store { open, patient: "busy_timeout_ms=60000", hasty: "busy_timeout_ms=1000" };

fn open(url: String) -> BoxFuture<'static, Result<Arc<dyn SystemStore>>> {
    Box::pin(async move { Ok(Arc::new(SqliteStore::open(&url)?) as Arc<dyn SystemStore>) })
}

/// Runs a part of the suite on a new file.
macro_rules! on_a_new_file {
    ($($name:ident: $part:path, $parameters:literal;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let dir = tempfile::tempdir().unwrap();
                let url = format!("sqlite://{}/cluster.db{}", dir.path().display(), $parameters);
                $part(&url, STORE).await;
            }
        )*
    };
}

on_a_new_file! {
    the_sqlite_store_conforms: suite::conforms, "";
    it_conforms_when_every_commit_waits_for_the_disk: suite::conforms, "?synchronous=full";
    racing_writers_move_the_version_once_per_acknowledged_commit: suite::writers::race, "";
    ten_thousand_snapshots_under_writes_are_whole: suite::writers::snapshots, "";
    five_thousand_rows_are_read_whole: suite::writers::large_partition, "";
    many_connections_make_the_first_tables_at_once: suite::writers::first_tables, "";
    commits_that_lock_crosswise_all_happen: suite::crosswise::old_rows, "";
    commits_that_make_rows_crosswise_all_happen: suite::crosswise::new_rows, "";
    a_table_of_an_older_program_is_brought_forward_by_many_at_once: suite::forward::by_many_at_once, "";
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_process_is_killed_is_there_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/cluster.db", dir.path().display());
    suite::dying::killed(&url, STORE, "a_process_to_be_killed_that_commits").await;
}

#[tokio::test]
async fn a_process_to_be_killed_that_commits() {
    suite::dying::writer(STORE).await;
}

#[tokio::test]
async fn it_tells_whether_commits_wait_for_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    for (mode, notes) in [("normal", 1), ("full", 0)] {
        let url = format!("sqlite://{}/cluster.db?synchronous={mode}", dir.path().display());
        let found = open(url).await.unwrap().examine().await.unwrap();
        assert_eq!(found.findings.len(), notes, "{mode}: {:?}", found.findings);
    }
}
