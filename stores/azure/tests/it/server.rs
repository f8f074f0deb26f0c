//! Special to Azure Table: addresses, signatures, an administrator's view, limits, pages.

use crate::common::{request, sas, url_with};
use emmer_core::Timestamp;
use emmer_store::silos::SILO_INSTANCES;
use emmer_store::{CommitOutcome, Mutation, Row, SiloTable, StoreErrorKind, Value};
use emmer_store_azure::AzureTableStore;
use emmer_test_servers::azurite::ACCOUNT;
use emmer_test_servers::suite::book::lists_the_silos;
use emmer_test_servers::suite::rows::{
    NUMBERS, all, cluster, must_commit, row, same_number, silo, silo_with_every_column,
};
use emmer_test_servers::suite::{self, Store};
use emmer_test_servers::{AzuriteServer, process, store};

const STORE: Store = store!(AzureTableStore);

#[tokio::test]
async fn bad_addresses_are_refused_with_the_store_and_without_the_key() {
    use StoreErrorKind::{Refused, Unavailable};
    let Some(server) = AzuriteServer::start_or_skip("bad_addresses") else { return };
    let (port, closed) = (server.port(), process::free_port().unwrap());
    let at = |port: u16| format!("127.0.0.1:{port}/{ACCOUNT}?tls=false");
    let cases = [
        (format!("azure-table://{ACCOUNT}:s3cretAA@{}", at(port)), Refused, "AuthorizationFailure"),
        (format!("azure-table://{}", at(port)), Refused, "HTTP 40"),
        (format!("azure-table://{}&token=s3cret", at(port)), Refused, "HTTP 40"),
        (format!("azure-table://{ACCOUNT}:s3cretAA@{}", at(closed)), Unavailable, "refused"),
        (format!("azure-table://{ACCOUNT}:s3cretAA@no-such-host.invalid"), Unavailable, "lookup"),
    ];
    suite::refused::addresses(STORE, &cases).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signature_lets_in_and_no_further_than_it_says() {
    let Some(server) = AzuriteServer::start_or_skip("a_signature_lets_in") else { return };
    // The silo that makes the tables must be allowed to; with tables there four letters are enough.
    let maker = STORE.patient(&url_with(&sas("rwdlacu"), server.port())).await;
    maker.ensure_tables(&[&NUMBERS]).await.unwrap();
    let store = STORE.patient(&url_with(&sas("raud"), server.port())).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    must_commit(&store, "p", all(3, 1)).await;
    assert_eq!(same_number(&store.read_partition(&NUMBERS, "p").await.unwrap(), 3), 1);
    let reader = STORE.patient(&url_with(&sas("r"), server.port())).await;
    assert_eq!(same_number(&reader.read_partition(&NUMBERS, "p").await.unwrap(), 3), 1);
    // Inside a transaction the emulator does not look at what a signature permits; for a table it
    // does.
    let error = reader.ensure_tables(&[&SILO_INSTANCES]).await.unwrap_err();
    assert!(
        error.kind == StoreErrorKind::Refused && !error.to_string().contains("sig="),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_request_lists_the_silos() {
    let Some(server) = AzuriteServer::start_or_skip("a_plain_request") else { return };
    let tables = format!("http://127.0.0.1:{}/{ACCOUNT}", server.port());
    lists_the_silos(
        STORE,
        &server.url(),
        include_str!("../../../../docs/stores/azure.md"),
        |command| {
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", command]).env("TABLES", tables).env("SAS", sas("r"));
            suite::book::output_of(&mut shell)
        },
    )
    .await;
}

#[tokio::test]
async fn an_administrator_sees_a_silo_as_one_entity_of_the_seed() {
    let Some(server) = AzuriteServer::start_or_skip("an_administrator_sees") else { return };
    let table = SiloTable::new(STORE.patient(&server.url()).await, cluster("prod"));
    table.ensure().await.unwrap();
    let version = table.read_version().await.unwrap();
    table.commit(&version, vec![silo_with_every_column()], vec![]).await.unwrap();
    table.touch(&silo(1).address, Timestamp::from_millis(1_795_265_085_000)).await.unwrap();
    let (_, shown) = request(server.port(), "GET", "emmersiloinstances()", "").await;
    for column in SILO_INSTANCES.columns {
        assert!(
            shown.contains(&format!("\"{}\":", column.name)),
            "{} is not in {shown}",
            column.name
        );
    }
    for wanted in [
        r#""PartitionKey":"prod","RowKey":"127.0.0.1-11111-1""#,
        r#""Status":"Active""#,
        r#""SuspectingSilos":"[\"127.0.0.1:11111:2\"]""#,
        r#""IAmAliveTime":"2026-11-21T12:44:45"#,
        r#""RowKey":"VersionRow""#,
    ] {
        assert!(shown.contains(wanted), "{wanted} is not in {shown}");
    }
    // A row that was written by hand and that no silo can understand is named.
    let row = "emmersiloinstances(PartitionKey='prod',RowKey='VersionRow')";
    let (status, said) = request(server.port(), "PUT", row, r#"{"MembershipVersion":"two"}"#).await;
    assert_eq!(status, 204, "{said}");
    let error = table.read_all().await.unwrap_err();
    assert!(
        error.kind == StoreErrorKind::Corrupt && error.detail.contains("VersionRow"),
        "{error}"
    );
    // Tables that were deleted are no empty tables: they are missing, and made again.
    for name in ["emmersiloinstances", "emmer"] {
        let (status, said) =
            request(server.port(), "DELETE", &format!("Tables('{name}')"), "").await;
        assert_eq!(status, 204, "{said}");
        assert_eq!(table.read_all().await.unwrap_err().kind, StoreErrorKind::NotFound);
        table.ensure().await.unwrap();
        assert_eq!(table.read_version().await.unwrap().number, 0);
    }
}

#[tokio::test]
async fn the_server_is_examined_and_limits_are_named() {
    let Some(server) = AzuriteServer::start_or_skip("the_server_is_examined") else { return };
    let store = STORE.patient(&server.url()).await;
    let found = store.examine().await.unwrap();
    let clock = found.clock.unwrap();
    assert!(clock.ahead_ms.abs() <= clock.uncertainty_ms, "{clock:?}");
    assert_eq!(found.server, "Azurite");
    assert!(found.version.starts_with("3.") && found.warns_of_lost_writes(), "{found:?}");
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    let text = |kib: usize| {
        Row::new(format!("{kib}")).with("Text", Value::Text("x".repeat(kib << 10).into()))
    };
    let insert = |row| Mutation::Insert { row };
    let limits = store.limits();
    for (commit, word) in [
        (vec![insert(row("a", 1)), insert(text(512))], "1048576"),
        ((0..10).map(|n| insert(text(440 + n))).collect(), "4194304"),
    ] {
        let error = store.commit(&NUMBERS, "p", commit).await.unwrap_err();
        assert!(error.kind == StoreErrorKind::Invalid && error.detail.contains(word), "{error}");
    }
    assert!(store.read_partition(&NUMBERS, "p").await.unwrap().is_empty());
    // A row, and a commit, as large as the store says.
    must_commit(&store, "p", vec![insert(text(limits.row_bytes >> 10))]).await;
    let (rows, kib) = (limits.commit_bytes / limits.row_bytes, limits.row_bytes >> 10);
    must_commit(&store, "q", (0..rows).map(|n| insert(text(kib - n))).collect()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_pages_are_put_together() {
    let Some(server) = AzuriteServer::start_or_skip("small_pages") else { return };
    suite::pages::small(&suite::with(&server.url(), "page_rows=7"), STORE).await;
}

#[tokio::test]
async fn a_check_changes_nothing_that_anybody_sees() {
    let Some(server) = AzuriteServer::start_or_skip("a_check_changes_nothing") else { return };
    let store = STORE.patient(&server.url()).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    must_commit(&store, "p", all(1, 1)).await;
    let before = store.read_partition(&NUMBERS, "p").await.unwrap();
    for key in ["x", "y"] {
        let check = Mutation::Check { row_key: "r000".into(), etag: before[0].etag.clone() };
        let outcome = store
            .commit(&NUMBERS, "p", vec![check, Mutation::Insert { row: row(key, 1) }])
            .await
            .unwrap();
        assert!(matches!(outcome, CommitOutcome::Committed(_)), "{outcome:?}");
        assert_eq!(store.read_row(&NUMBERS, "p", "r000").await.unwrap().as_ref(), before.first());
    }
}
