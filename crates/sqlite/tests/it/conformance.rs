//! The store passes what every store passes, over several connections to one file.

use std::sync::Arc;
use std::time::Duration;

use emmer_store::{BoxFuture, Result, SiloTable, StoreErrorKind, SystemStore};
use emmer_store_sqlite::SqliteStore;
use emmer_test_servers::suite::rows::{NUMBERS, all, cluster, must_commit, silo};
use emmer_test_servers::suite::{self, Store};
use tokio::task::JoinSet;
use tokio::time::timeout;

pub(crate) const STORE: Store =
    Store { open, patient: "busy_timeout_ms=60000", hasty: "busy_timeout_ms=1000" };

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
    suite::dying::killed(&url, STORE, "conformance::a_process_to_be_killed_that_commits").await;
}

#[tokio::test]
async fn a_process_to_be_killed_that_commits() {
    suite::dying::writer(STORE).await;
}

/// Another process holds the write lock, and thousands of commits wait for it at once. Each waits
/// for its own second, and not for those before it, which together would be a minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_that_wait_for_a_lock_wait_for_no_longer_than_their_time() {
    const COMMITS: usize = 4_000;
    const FAR_BEFORE_ALL_TIMES: Duration = Duration::from_secs(30);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cluster.db");
    let store = STORE.hasty(&format!("sqlite://{}", file.display())).await;
    assert_eq!(store.request_timeout(), Some(Duration::from_secs(1)));
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    let other = rusqlite::Connection::open(&file).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut commits = JoinSet::new();
    for n in 0..COMMITS {
        let store = store.clone();
        commits.spawn(async move { store.commit(&NUMBERS, &format!("p{n}"), all(1, 1)).await });
    }
    let ended = timeout(FAR_BEFORE_ALL_TIMES, commits.join_all())
        .await
        .expect("they waited for each other");
    for ended in ended {
        let error = ended.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    }
    other.execute_batch("ROLLBACK").unwrap();
    must_commit(&store, "p", all(1, 1)).await;
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

/// An administrator's client shows times as dates, also in a file whose tables were made without
/// the view, or with another.
#[tokio::test]
async fn the_view_of_a_table_shows_times_as_dates() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cluster.db");
    let table = SiloTable::new(
        STORE.patient(&format!("sqlite://{}", file.display())).await,
        cluster("prod"),
    );
    let client = || rusqlite::Connection::open(&file).unwrap();
    for before in [
        "SELECT 1",
        "DROP VIEW emmer_readable_silo_instances",
        "DROP VIEW emmer_readable_silo_instances; CREATE VIEW emmer_readable_silo_instances AS \
         SELECT 1 AS StartTime",
    ] {
        client().execute_batch(before).unwrap();
        table.ensure().await.unwrap();
        let view = "SELECT count(*) FROM emmer_readable_silo_instances";
        assert_eq!(client().query_row(view, [], |row| row.get(0)), Ok(0), "{before}");
    }
    table.commit(&table.read_version().await.unwrap(), vec![silo(1)], vec![]).await.unwrap();
    let view = "SELECT PartitionKey, RowKey, Status, SuspectingSilos, StartTime FROM \
         emmer_readable_silo_instances
                WHERE RowKey <> 'VersionRow'";
    let shown: [String; 5] = client()
        .query_row(view, [], |row| {
            Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?])
        })
        .unwrap();
    assert_eq!(shown, ["prod", "127.0.0.1-11111-1", "Active", "[]", "1970-01-01 00:00:00.001"]);
}
