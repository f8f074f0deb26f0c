//! Addresses, credentials, permissions; what an administrator sees.

use std::time::Duration;

use crate::common::{PATIENT, STORE, open};
use emmer_core::Timestamp;
use emmer_store::silos::SILO_INSTANCES;
use emmer_store::state::GRAIN_STATE;
use emmer_store::{CommitOutcome, Mutation, Row, SiloTable, StoreErrorKind, TableDecl, Value};
use emmer_store_mysql::Flavour;
use emmer_test_servers::suite::proxy::Proxy;
use emmer_test_servers::suite::rows::{NUMBERS, cluster, must_commit, number_of, row, silo};
use emmer_test_servers::suite::{lost, refused, switchover};
use emmer_test_servers::{MariadbServer, process};

#[tokio::test]
async fn bad_addresses_are_refused_with_the_store_and_without_the_password() {
    use StoreErrorKind::{Refused, Unavailable};
    let Some(server) = MariadbServer::start_or_skip("bad_addresses") else { return };
    let port = server.port();
    let closed = process::free_port().unwrap();
    refused::addresses(
        STORE,
        &[
            (format!("mysql://emmer:s3cret@127.0.0.1:{port}/emmer"), Refused, "Access denied"),
            (format!("mysql://nobody:s3cret@127.0.0.1:{port}/emmer"), Refused, "nobody"),
            (format!("mariadb://emmer:s3cret@127.0.0.1:{closed}/emmer"), Unavailable, "refused"),
            ("mysql://emmer:s3cret@no-such-host.invalid/emmer".to_owned(), Unavailable, "lookup"),
            (server.url_of("not_there"), Refused, "not_there"),
            (format!("{}?sslmode=require", server.url_of("emmer")), Refused, "TLS"),
            (format!("{}?sslmode=verify-full", server.url_of("emmer")), Refused, "TLS"),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_became_read_only_and_kept_its_connections_is_left() {
    let start = || MariadbServer::start_or_skip("a_primary_that_became");
    let (Some(old), Some(new)) = (start(), start()) else { return };
    // Administrators write to a server that only reads.
    for server in [&old, &new] {
        server.sql("CREATE USER app IDENTIFIED BY 'pw'; GRANT ALL ON emmer.* TO app").unwrap();
    }
    let proxy = Proxy::start(old.port()).await;
    let of_app = |port| format!("mysql://app:pw@127.0.0.1:{port}/emmer?{PATIENT}");
    let (store, tables) = (open(&of_app(proxy.port())).await, open(&of_app(new.port())).await);
    for store in [&store, &tables] {
        store.ensure_tables(&[&NUMBERS]).await.unwrap();
    }
    must_commit(&store, "p", vec![Mutation::Insert { row: row("r", 1) }]).await;
    old.sql("SET GLOBAL read_only = 1").unwrap();
    proxy.lead_to(new.port());
    switchover::finds_the_new_server(&store).await;
    assert_eq!(tables.read_partition(&NUMBERS, "p").await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_make_tables_is_told_how() {
    let Some(server) = MariadbServer::start_or_skip("who_may_not_make_tables") else { return };
    let tables: &[&'static TableDecl] = &[&SILO_INSTANCES, &GRAIN_STATE];
    server.sql("CREATE USER silo IDENTIFIED BY 'pw'; GRANT SELECT ON emmer.* TO silo").unwrap();
    let store = open(&format!("mysql://silo:pw@127.0.0.1:{}/emmer?{PATIENT}", server.port())).await;
    let error = store.ensure_tables(tables).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Refused, "{error}");
    assert!(error.detail.contains("GRANT CREATE"), "{error}");
    server
        .sql(&emmer_store_mysql::script(Flavour::MariaDb, &[&SILO_INSTANCES, &GRAIN_STATE]))
        .unwrap();
    store.ensure_tables(tables).await.unwrap();
    let table = SiloTable::new(store, cluster("prod"));
    let base = table.read_version().await.unwrap();
    let error = table.commit(&base, vec![silo(1)], vec![]).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Refused, "{error}");
    for name in ["silo_instances", "grain_state"] {
        server.sql(&format!("GRANT INSERT, UPDATE, DELETE ON emmer.{name} TO silo")).unwrap();
    }
    table.commit(&base, vec![silo(1)], vec![]).await.unwrap();
    assert_eq!(table.read_all().await.unwrap().1.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_shows_the_columns_of_the_seed() {
    let Some(server) = MariadbServer::start_or_skip("the_client_shows_the_columns") else { return };
    let store = open(&format!("{}?{PATIENT}", server.url_of("emmer"))).await;
    let table = SiloTable::new(store.clone(), cluster("prod"));
    table.ensure().await.unwrap();
    table.commit(&table.read_version().await.unwrap(), vec![silo(1)], vec![]).await.unwrap();
    let shown = server.sql("SELECT * FROM silo_instances").unwrap();
    let columns: Vec<&str> = shown.lines().next().unwrap().split('\t').collect();
    let wanted =
        ["PartitionKey", "RowKey"].into_iter().chain(SILO_INSTANCES.columns.iter().map(|c| c.name));
    for name in wanted {
        assert!(columns.contains(&name), "{name} is not in {columns:?}");
    }
    // As docs/store.md says.
    let listed = server
        .sql(
            "SELECT RowKey, Status, SuspectingSilos, ProxyPort, StartTime, IAmAliveTime
             FROM silo_instances WHERE PartitionKey = 'prod' AND RowKey <> 'VersionRow'",
        )
        .unwrap();
    assert!(
        listed.contains("127.0.0.1-11111-1\tActive\t[]\t0\t1970-01-01 00:00:00.001\t"),
        "{listed}"
    );
    // A row that was written by hand and that no silo can understand is named.
    server
        .sql(
            "UPDATE silo_instances SET RowKey = RowKey, SuspectingSilos = '{}' WHERE Status = \
            'Active'",
        )
        .unwrap();
    let error = table.read_all().await.unwrap_err();
    assert!(
        error.kind == StoreErrorKind::Corrupt && error.detail.contains("SuspectingSilos"),
        "{error}"
    );
    // A table dropped by hand is missing, and made again.
    server.sql("DROP TABLE silo_instances").unwrap();
    assert_eq!(table.read_all().await.unwrap_err().kind, StoreErrorKind::NotFound);
    table.ensure().await.unwrap();
    assert_eq!(table.read_version().await.unwrap().number, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_clean_up_goes_in_pieces_and_times_keep_their_range() {
    let Some(server) = MariadbServer::start_or_skip("a_long_clean_up") else { return };
    let store = open(&format!("{}?{PATIENT}", server.url_of("emmer"))).await;
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
    // Farther than the server's calendar: refused before anything is sent.
    for ms in [i64::MAX, i64::MIN, 253_402_300_800_000] {
        let far = vec![Mutation::Upsert { row: Row::new("far").with("At", time(ms)) }];
        let error = store.commit(&NUMBERS, "far", far).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Invalid, "{error}");
    }
    // Keys that differ in their end only.
    for key in ["k", "k ", "K", "ķ"] {
        must_commit(&store, "p", vec![Mutation::Insert { row: row(key, 1) }]).await;
    }
    assert_eq!(store.read_partition(&NUMBERS, "p").await.unwrap().len(), 4);
}

/// The session that waits for a lock is ended: by a cancelled statement nothing was done, an ended
/// session is unknown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_statement_did_nothing_and_an_ended_session_is_unknown() {
    let Some(server) = MariadbServer::start_or_skip("a_cancelled_statement") else { return };
    let store = open(&format!("{}?{PATIENT}", server.url_of("emmer"))).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    must_commit(&store, "p", vec![Mutation::Upsert { row: row("r", 1) }]).await;
    for how in ["KILL QUERY", "KILL"] {
        let mut holder =
            mysql_async::Conn::from_url(server.url_of("emmer").replace("mariadb", "mysql"))
                .await
                .unwrap();
        use mysql_async::prelude::Queryable;
        holder
            .query_drop("BEGIN; SELECT 1 FROM numbers WHERE Part = 'p' FOR UPDATE")
            .await
            .unwrap();
        let commit = tokio::spawn({
            let store = store.clone();
            async move {
                let both = vec![
                    Mutation::Upsert { row: row("r", 7) },
                    Mutation::Upsert { row: row("s", 7) },
                ];
                store.commit(&NUMBERS, "p", both).await
            }
        });
        let waiting = "SELECT trx_mysql_thread_id FROM information_schema.INNODB_TRX WHERE \
            trx_state = 'LOCK WAIT'";
        let id: u64 = loop {
            if let Some(id) = holder.query_first(waiting).await.unwrap() {
                break id;
            }
            assert!(!commit.is_finished(), "{how}: {:?}", commit.await);
            // The server makes this table again only when it was not read for a tenth of a second.
            tokio::time::sleep(Duration::from_millis(150)).await;
        };
        holder.query_drop(format!("{how} {id}")).await.unwrap();
        let outcome = commit.await.unwrap();
        holder.query_drop("ROLLBACK").await.unwrap();
        holder.disconnect().await.unwrap();
        match (how, outcome) {
            ("KILL QUERY", Err(error)) => {
                assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
            }
            ("KILL", Ok(CommitOutcome::Unknown(_))) => {}
            (how, other) => panic!("{how}: {other:?}"),
        }
        assert_eq!(number_of(&store, "r").await, 1);
    }
    must_commit(&store, "p", vec![Mutation::Upsert { row: row("r", 2) }]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_table_and_a_dropped_database_have_no_table() {
    let Some(server) = MariadbServer::start_or_skip("a_dropped_table") else { return };
    let url = server.url_of("emmer");
    let sql = |sql: &str| drop(server.sql(sql).unwrap());
    lost::table(STORE, &url, async || sql("DROP TABLE emmer.silo_instances")).await;
    sql("DROP TABLE emmer.silo_instances");
    // A server that came back empty.
    let store = STORE.patient(&url).await;
    let table = SiloTable::new(store, cluster("lost"));
    table.ensure().await.unwrap();
    sql("DROP DATABASE emmer");
    let error = table.read_version().await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::NotFound, "{error}");
}
