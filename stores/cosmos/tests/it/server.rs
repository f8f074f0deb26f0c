//! Tests of Cosmos DB alone: addresses, what an administrator sees, limits, pages.

use emmer_core::Timestamp;
use emmer_store::silos::SILO_INSTANCES;
use emmer_store::{CommitOutcome, Mutation, Row, SiloTable, StoreErrorKind, Value};
use emmer_store_cosmos::CosmosStore;
use emmer_test_servers::cosmos::KEY;
use emmer_test_servers::suite::book::{first_command, lists_the_silos, output_of};
use emmer_test_servers::suite::rows::{
    NUMBERS, all, cluster, must_commit, row, silo, silo_with_every_column,
};
use emmer_test_servers::suite::{self, Store};
use emmer_test_servers::{CosmosServer, process, store};

const STORE: Store = store!(CosmosStore);
const PAGE: &str = include_str!("../../../../docs/stores/cosmos.md");

#[tokio::test]
async fn bad_addresses_are_refused_with_the_store_and_without_the_key() {
    use StoreErrorKind::{Invalid, Refused, Unavailable};
    let Some(server) = CosmosServer::start_or_skip("bad_addresses") else { return };
    let (port, closed) = (server.port(), process::free_port().unwrap());
    let cases = [
        (format!("cosmos://a:s3cretAA@127.0.0.1:{closed}/emmer?tls=false"), Unavailable, "refused"),
        ("cosmos://a:s3cretAA@no-such-host.invalid/emmer".to_owned(), Unavailable, "lookup"),
        (format!("cosmos://a:s3cretAA@127.0.0.1:{port}/emmer"), Refused, "TLS"),
        (format!("cosmos://127.0.0.1:{port}/emmer?tls=false"), Invalid, "AZURE_COSMOS_KEY"),
        (
            format!("cosmos://127.0.0.1:{port}/emmer?tls=false&token_file=/none/s3cret"),
            Refused,
            "token_file",
        ),
    ];
    suite::refused::addresses(STORE, &cases[..4]).await;
    let (url, kind, word) = &cases[4];
    let error = (STORE.open)(url.clone()).await.map(drop).unwrap_err();
    assert!(error.kind == *kind && error.detail.contains(word), "{error}");
}

/// Runs a command of the page against the emulator, which looks at no signature.
fn shell(server: &CosmosServer, command: &str) -> String {
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", command]).env("AUTHORIZATION", "none").env("DATE", "none");
    shell.env("ENDPOINT", format!("http://127.0.0.1:{}", server.port()));
    output_of(&mut shell)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_on_the_page_lists_the_silos() {
    let Some(server) = CosmosServer::start_or_skip("the_command_on_the_page") else { return };
    lists_the_silos(STORE, &server.url(), PAGE, |command| shell(&server, command)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_administrator_sees_a_silo_as_one_item_of_the_seed() {
    let Some(server) = CosmosServer::start_or_skip("an_administrator_sees") else { return };
    let table = SiloTable::new(STORE.patient(&server.url()).await, cluster("prod"));
    table.ensure().await.unwrap();
    let version = table.read_version().await.unwrap();
    table.commit(&version, vec![silo_with_every_column()], vec![]).await.unwrap();
    table.touch(&silo(1).address, Timestamp::from_millis(1_795_265_085_000)).await.unwrap();
    let shown = tokio::task::block_in_place(|| shell(&server, first_command(PAGE)));
    for column in SILO_INSTANCES.columns {
        assert!(
            shown.contains(&format!("\"{}\":", column.name)),
            "{} is not in {shown}",
            column.name
        );
    }
    for wanted in [
        r#""EmmerPartition":"silo_instances/prod""#,
        r#""id":"127.0.0.1-11111-1""#,
        r#""Status":"Active""#,
        r#""SuspectingSilos":["127.0.0.1:11111:2"]"#,
        r#""IAmAliveTime":"2026-11-21T12:44:45"#,
        r#""id":"VersionRow""#,
    ] {
        assert!(shown.contains(wanted), "{wanted} is not in {shown}");
    }
}

#[tokio::test]
async fn limits_are_named_and_nothing_beyond_is_sent() {
    let Some(server) = CosmosServer::start_or_skip("limits_are_named") else { return };
    let store = STORE.patient(&server.url()).await;
    let found = store.examine().await.unwrap();
    let clock = found.clock.unwrap();
    assert!(clock.ahead_ms.abs() <= clock.uncertainty_ms, "{clock:?}");
    assert_eq!(found.server, "Cosmos DB emulator");
    assert!(found.version == "1.0.0" && found.warns_of_lost_writes(), "{found:?}");
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    let text = |kib: usize| {
        Row::new(format!("{kib}")).with("Text", Value::Text("x".repeat(kib << 10).into()))
    };
    let insert = |row| Mutation::Insert { row };
    for (commit, word) in [
        (vec![insert(row("a", 1)), insert(text(1_024))], "1048576"),
        ((0..10).map(|n| insert(text(160 + n))).collect(), "1572864"),
        // A control character is six as JSON.
        (
            vec![insert(Row::new("c").with("Text", Value::Text("\u{1}".repeat(200_000).into())))],
            "1048576",
        ),
    ] {
        let error = store.commit(&NUMBERS, "p", commit).await.unwrap_err();
        assert!(error.kind == StoreErrorKind::Invalid && error.detail.contains(word), "{error}");
    }
    assert!(store.read_partition(&NUMBERS, "p").await.unwrap().is_empty());
    // A row, and a commit, as large as the store says.
    must_commit(&store, "p", vec![insert(text(1_023))]).await;
    must_commit(&store, "q", (0..3).map(|n| insert(text(510 - n))).collect()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_pages_are_put_together() {
    let Some(server) = CosmosServer::start_or_skip("small_pages") else { return };
    let port = server.port();
    let url = format!("cosmos://emulator:{KEY}@127.0.0.1:{port}/emmer?tls=false&page_rows=7");
    suite::pages::small(&url, STORE).await;
}

#[tokio::test]
async fn large_integers_are_found_by_a_scan() {
    let Some(server) = CosmosServer::start_or_skip("large_integers") else { return };
    let store = STORE.patient(&server.url()).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    let large = 1 << 60;
    let rows = [("a", large), ("b", large + 1), ("c", 7)];
    let rows = rows.map(|(key, n)| Mutation::Upsert { row: row(key, n) });
    must_commit(&store, "p", rows.to_vec()).await;
    let keys = |range| {
        let store = store.clone();
        async move {
            let found = store.scan(&NUMBERS, "N", range, 10).await.unwrap();
            found.iter().map(|row| row.row.key().to_owned()).collect::<Vec<_>>()
        }
    };
    assert_eq!(keys(large + 1..=i64::MAX).await, ["b"]);
    assert_eq!(keys(0..=large).await, ["a", "c"]);
}

#[tokio::test]
async fn a_check_changes_nothing_that_anybody_sees() {
    let Some(server) = CosmosServer::start_or_skip("a_check_changes_nothing") else { return };
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
