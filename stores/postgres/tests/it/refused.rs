//! Addresses, credentials, permissions; what an administrator sees; what a dropped store leaves
//! behind.

use std::time::Duration;

use crate::common::{PATIENT, STORE, open};
use emmer_core::Timestamp;
use emmer_store::silos::SILO_INSTANCES;
use emmer_store::state::GRAIN_STATE;
use emmer_store::{Mutation, Row, SiloTable, StoreErrorKind, TableDecl, Value};
use emmer_test_servers::suite::rows::{NUMBERS, cluster, must_commit, row, silo};
use emmer_test_servers::suite::{lost, refused};
use emmer_test_servers::{PostgresServer, process};
use futures_util::FutureExt;

/// Longer than anything here may take; a test must not hang.
const FAR_TOO_LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn bad_addresses_are_refused_with_the_store_and_without_the_password() {
    use StoreErrorKind::{Refused, Unavailable};
    let Some(server) = PostgresServer::start_or_skip("bad_addresses") else { return };
    let port = server.port();
    let closed = process::free_port().unwrap();
    refused::addresses(
        STORE,
        &[
            (
                format!("postgres://postgres:s3cret@127.0.0.1:{port}/postgres"),
                Refused,
                "password authentication",
            ),
            (format!("postgres://nobody:s3cret@127.0.0.1:{port}/postgres"), Refused, "nobody"),
            (
                format!("postgres://postgres:s3cret@127.0.0.1:{closed}/postgres"),
                Unavailable,
                "refused",
            ),
            (
                "postgres://postgres:s3cret@no-such-host.invalid/postgres".to_owned(),
                Unavailable,
                "lookup",
            ),
            (
                format!("postgres://postgres@127.0.0.1:{port}/postgres?password=s3cret"),
                Refused,
                "password",
            ),
            (server.url_of("not_there"), Refused, "not_there"),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_make_tables_is_told_how() {
    let Some(server) = PostgresServer::start_or_skip("who_may_not_make_tables") else { return };
    let tables: &[&'static TableDecl] = &[&SILO_INSTANCES, &GRAIN_STATE];
    server
        .psql(&[
            "-c",
            "CREATE ROLE silo LOGIN PASSWORD 'pw'; REVOKE CREATE ON SCHEMA public FROM PUBLIC",
        ])
        .unwrap();
    let store =
        open(&format!("postgres://silo:pw@127.0.0.1:{}/postgres?{PATIENT}", server.port())).await;
    let error = store.ensure_tables(tables).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Refused, "{error}");
    assert!(error.detail.contains("GRANT CREATE"), "{error}");
    server.psql(&["-c", &emmer_store_postgres::script(&[&SILO_INSTANCES, &GRAIN_STATE])]).unwrap();
    let error = store.ensure_tables(tables).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Refused, "{error}");
    let grant = "GRANT SELECT, INSERT, UPDATE, DELETE ON silo_instances, grain_state TO silo;
                 GRANT SELECT ON emmer_meta TO silo";
    server.psql(&["-c", grant]).unwrap();
    store.ensure_tables(tables).await.unwrap();
    let table = SiloTable::new(store, cluster("prod"));
    let base = table.read_version().await.unwrap();
    table.commit(&base, vec![silo(1)], vec![]).await.unwrap();
    assert_eq!(table.read_all().await.unwrap().1.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn psql_shows_the_columns_of_the_seed() {
    let Some(server) = PostgresServer::start_or_skip("psql_shows_the_columns") else { return };
    let store = open(&format!("{}?{PATIENT}", server.url_of("postgres"))).await;
    let table = SiloTable::new(store.clone(), cluster("prod"));
    table.ensure().await.unwrap();
    table.commit(&table.read_version().await.unwrap(), vec![silo(1)], vec![]).await.unwrap();
    let shown = server.psql(&["-c", "SELECT * FROM silo_instances"]).unwrap();
    let header = shown.lines().next().unwrap().to_ascii_lowercase();
    let shown_columns: Vec<&str> = header.split('|').map(str::trim).collect();
    let wanted =
        ["PartitionKey", "RowKey"].into_iter().chain(SILO_INSTANCES.columns.iter().map(|c| c.name));
    for name in wanted {
        assert!(
            shown_columns.contains(&name.to_ascii_lowercase().as_str()),
            "{name} is not in {header}"
        );
    }
    // As docs/store.md says.
    let listed = server
        .psql(&[
            "-Atc",
            "SELECT RowKey, Status, SuspectingSilos, ProxyPort, StartTime AT TIME ZONE 'UTC', \
             IAmAliveTime
             FROM silo_instances WHERE PartitionKey = 'prod' AND RowKey <> 'VersionRow'",
        ])
        .unwrap();
    assert!(
        listed.starts_with("127.0.0.1-11111-1|Active|[]|0|1970-01-01 00:00:00.001|"),
        "{listed}"
    );
    // A row that was written by hand and that no silo can understand is named.
    server
        .psql(&[
            "-c",
            "UPDATE silo_instances SET StartTime = 'infinity' WHERE RowKey <> 'VersionRow'",
        ])
        .unwrap();
    let error = table.read_all().await.unwrap_err();
    assert!(
        error.kind == StoreErrorKind::Corrupt && error.detail.contains("StartTime is infinite"),
        "{error}"
    );
    // A table dropped by hand is missing, and made again.
    server.psql(&["-c", "DROP TABLE silo_instances"]).unwrap();
    assert_eq!(table.read_all().await.unwrap_err().kind, StoreErrorKind::NotFound);
    table.ensure().await.unwrap();
    assert_eq!(table.read_version().await.unwrap().number, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_clean_up_goes_in_pieces_and_times_keep_their_range() {
    let Some(server) = PostgresServer::start_or_skip("a_long_clean_up") else { return };
    let store = open(&format!("{}?{PATIENT}", server.url_of("postgres"))).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    let time = |ms| Value::Time(Timestamp::from_millis(ms));
    for thousand in 0..11 {
        let rows =
            (0..1_000).map(|i| Row::new(format!("{thousand}-{i}")).with("At", time(i))).collect();
        store.append(&NUMBERS, "old", rows).await.unwrap();
    }
    let cutoff = Timestamp::from_millis(990);
    assert_eq!(store.delete_older_than(&NUMBERS, "old", "At", cutoff).await.unwrap(), 11 * 990);
    assert_eq!(store.read_partition(&NUMBERS, "old").await.unwrap().len(), 110);
    // Farther than the server's calendar: refused, and the connection is as good as before.
    for ms in [i64::MAX, i64::MIN, i64::MAX / 1_000 + 946_684_800_000, -300_000_000_000_000] {
        let far = vec![Mutation::Upsert { row: Row::new("far").with("At", time(ms)) }];
        let error = store.commit(&NUMBERS, "far", far).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Invalid, "{error}");
    }
    must_commit(&store, "far", vec![Mutation::Upsert { row: row("near", 1) }]).await;
}

#[tokio::test]
async fn a_dropped_store_leaves_no_task_and_no_session() {
    let Some(server) = PostgresServer::start_or_skip("a_dropped_store") else { return };
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = alive();
    let store = open(&format!("{}?{PATIENT}", server.url_of("postgres"))).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    let requests = (0..20).map(|_| store.read_partition(&NUMBERS, "p"));
    for read in futures_util::future::join_all(requests).await {
        read.unwrap();
    }
    assert!(alive() > before);
    // One caller that gave up in the middle of an operation.
    assert!(store.read_partition(&NUMBERS, "p").now_or_never().is_none());
    drop(store);
    let wait = async {
        while alive() > before {
            tokio::task::yield_now().await;
        }
        let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'emmer'";
        while server.psql(&["-Atc", sessions]).unwrap().trim() != "0" {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(FAR_TOO_LONG, wait).await.expect("tasks or sessions are left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_table_and_a_dropped_database_have_no_table() {
    let Some(server) = PostgresServer::start_or_skip("a_dropped_table") else { return };
    let sql = |sql: &str| drop(server.psql(&["-c", sql]).unwrap());
    let url = server.url_of("postgres");
    lost::table(STORE, &url, async || sql("DROP TABLE silo_instances")).await;
    // A server that came back empty: its connections are new ones.
    sql("CREATE DATABASE other");
    let table = SiloTable::new(STORE.patient(&server.url_of("other")).await, cluster("lost"));
    table.ensure().await.unwrap();
    sql("DROP DATABASE other WITH (FORCE)");
    let error = table.read_version().await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::NotFound, "{error}");
}
