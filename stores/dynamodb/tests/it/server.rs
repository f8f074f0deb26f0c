//! Special to DynamoDB: addresses, credentials, an administrator's view, limits, pages.

use crate::common::request;
use emmer_core::Timestamp;
use emmer_store::silos::SILO_INSTANCES;
use emmer_store::{Mutation, Row, SiloTable, StoreErrorKind, Value};
use emmer_store_dynamodb::DynamoDbStore;
use emmer_test_servers::dynamodb::IN_MEMORY;
use emmer_test_servers::suite::between::{Between, Speech};
use emmer_test_servers::suite::book::lists_the_silos;
use emmer_test_servers::suite::rows::{
    NUMBERS, cluster, must_commit, row, silo, silo_with_every_column,
};
use emmer_test_servers::suite::{self, Store, TestServer as _};
use emmer_test_servers::{DynamoDbServer, process, store};
use serde_json::json;

const STORE: Store = store!(DynamoDbStore);

fn server(test: &str) -> Option<DynamoDbServer> {
    DynamoDbServer::start_with_or_skip(test, &[IN_MEMORY])
}

#[tokio::test]
async fn bad_addresses_are_refused_with_the_store_and_without_the_secret() {
    use StoreErrorKind::{Invalid, Refused, Unavailable};
    let Some(server) = server("bad_addresses") else { return };
    let (port, closed) = (server.port(), process::free_port().unwrap());
    let at = |port: u16| format!("127.0.0.1:{port}?region=local&tls=false");
    let cases = [
        // The emulator looks at nothing else of credentials.
        (
            format!("dynamodb://with-dash:s3cret@{}", at(port)),
            Refused,
            "UnrecognizedClientException",
        ),
        (
            format!("dynamodb://127.0.0.1:{port}?region=local&credentials_file=/nowhere"),
            Refused,
            "nowhere",
        ),
        (format!("dynamodb://local:s3cret@127.0.0.1:{port}?region=local"), Refused, "TLS"),
        (format!("dynamodb://local:s3cret@{}", at(closed)), Unavailable, "refused"),
        (
            "dynamodb://local:s3cret@no-such-host.invalid?region=local".to_owned(),
            Unavailable,
            "lookup",
        ),
        (format!("dynamodb://local:s3cret@{}&prefix=a/b", at(port)), Invalid, "prefix"),
    ];
    suite::refused::addresses(STORE, &cases).await;
}

#[tokio::test]
async fn what_is_signed_is_sent() {
    let Some(server) = server("what_is_signed") else { return };
    let speech = Speech { reads: |_| true, error: str::to_owned };
    let between = Between::start(server.port(), speech).await;
    let url = suite::with(&server.url_at(between.port()), "session_token=t0ken");
    drop(STORE.patient(&url).await);
    let requests = between.requests();
    let request = requests.first().unwrap().to_ascii_lowercase();
    let signed =
        request.split("signedheaders=").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
    assert!(signed.contains("host") && signed.contains("x-amz-security-token"), "{signed}");
    for name in signed.split(';') {
        assert!(
            request.contains(&format!("\n{name}: ")),
            "{name} is signed and not sent: {request}"
        );
    }
    assert!(request.contains(&format!("\nhost: 127.0.0.1:{}\r", between.port())), "{request}");
    assert!(request.contains("/local/dynamodb/aws4_request"), "{request}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_request_lists_the_silos() {
    let Some(server) = server("a_plain_request") else { return };
    let endpoint = format!("http://127.0.0.1:{}", server.port());
    lists_the_silos(
        STORE,
        &server.url(),
        include_str!("../../../../docs/stores/dynamodb.md"),
        |command| {
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", command]).env("DYNAMODB", endpoint);
            let variables = [
                ("AWS_REGION", "local"),
                ("AWS_ACCESS_KEY_ID", "local"),
                ("AWS_SECRET_ACCESS_KEY", "local"),
            ];
            shell.envs(variables);
            suite::book::output_of(&mut shell)
        },
    )
    .await;
}

#[tokio::test]
async fn an_administrator_sees_a_silo_as_one_item_of_the_seed() {
    let Some(server) = server("an_administrator_sees") else { return };
    let table = SiloTable::new(STORE.patient(&server.url()).await, cluster("prod"));
    table.ensure().await.unwrap();
    let version = table.read_version().await.unwrap();
    table.commit(&version, vec![silo_with_every_column()], vec![]).await.unwrap();
    table.touch(&silo(1).address, Timestamp::from_millis(1_795_265_085_000)).await.unwrap();
    let name = "emmer.silo_instances";
    let (_, shown) = request(server.port(), "Scan", &json!({ "TableName": name })).await;
    let shown = shown.to_string();
    for column in SILO_INSTANCES.columns {
        assert!(
            shown.contains(&format!("\"{}\":", column.name)),
            "{} is not in {shown}",
            column.name
        );
    }
    for wanted in [
        r#""RowKey":{"S":"127.0.0.1-11111-1"}"#,
        r#""PartitionKey":{"S":"prod"}"#,
        r#""Status":{"S":"Active"}"#,
        r#""SuspectingSilos":{"L":[{"S":"127.0.0.1:11111:2"}]}"#,
        r#""IAmAliveTime":{"S":"2026-11-21T12:44:45"#,
        r#""RowKey":{"S":"VersionRow"}"#,
        r#""MembershipVersion":{"N":"1"}"#,
        r#""_Written":{"L":[{"S":"127.0.0.1-11111-1"}]}"#,
    ] {
        assert!(shown.contains(wanted), "{wanted} is not in {shown}");
    }
    // A row that was written by hand and that no silo can understand is named.
    let item = json!({"PartitionKey": {"S": "prod"}, "RowKey": {"S": "VersionRow"}, "MembershipVersion": {"S": "two"},
                      "_Etag": {"S": "x"}});
    let (status, said) =
        request(server.port(), "PutItem", &json!({"TableName": name, "Item": item})).await;
    assert_eq!(status, 200, "{said}");
    let error = table.read_all().await.unwrap_err();
    assert!(
        error.kind == StoreErrorKind::Corrupt && error.detail.contains("VersionRow"),
        "{error}"
    );
    // Tables that were deleted are no empty tables: they are missing, and made again.
    for name in [name, "emmer"] {
        let (status, said) =
            request(server.port(), "DeleteTable", &json!({ "TableName": name })).await;
        assert_eq!(status, 200, "{said}");
        if name == "emmer" {
            table.ensure().await.unwrap();
        } else {
            assert_eq!(table.read_all().await.unwrap_err().kind, StoreErrorKind::NotFound);
            table.ensure().await.unwrap();
        }
        assert_eq!(table.read_version().await.unwrap().number, 0);
    }
}

#[tokio::test]
async fn the_server_is_examined_and_limits_are_named() {
    let Some(server) = server("the_server_is_examined") else { return };
    let store = STORE.patient(&server.url()).await;
    let found = store.examine().await.unwrap();
    let clock = found.clock.unwrap();
    assert!(clock.ahead_ms.abs() <= clock.uncertainty_ms, "{clock:?}");
    assert!(found.server == "DynamoDB Local" && found.warns_of_lost_writes(), "{found:?}");
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    let text = |kib: usize| {
        Row::new(format!("{kib}")).with("Text", Value::Text("x".repeat(kib << 10).into()))
    };
    let insert = |row| Mutation::Insert { row };
    let limits = store.limits();
    for (commit, word) in [
        (vec![insert(row("a", 1)), insert(text(400))], "409600"),
        ((0..11).map(|n| insert(text(380 + n))).collect(), "4194304"),
    ] {
        let error = store.commit(&NUMBERS, "p", commit).await.unwrap_err();
        assert!(error.kind == StoreErrorKind::Invalid && error.detail.contains(word), "{error}");
    }
    assert!(store.read_partition(&NUMBERS, "p").await.unwrap().is_empty());
    // A row, and a commit, as large as the store says.
    must_commit(&store, "p", vec![insert(text(limits.row_bytes >> 10))]).await;
    let (rows, kib) = (limits.commit_bytes / limits.row_bytes, limits.row_bytes >> 10);
    must_commit(&store, "q", (0..rows).map(|n| insert(text(kib - n))).collect()).await;
    let most = limits.commit_bytes / 100 / 1024;
    let many = (0..100).map(|n| Mutation::Upsert {
        row: Row::new(format!("m{n}")).with("Text", Value::Text("x".repeat(most << 10).into())),
    });
    must_commit(&store, "s", many.collect()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_pages_are_put_together() {
    let Some(server) = server("small_pages") else { return };
    suite::pages::small(&suite::with(&server.url(), "page_rows=7"), STORE).await;
}

#[tokio::test]
async fn a_volatile_column_of_a_row_that_is_there_is_set_by_touches_only() {
    let Some(server) = server("a_volatile_column") else { return };
    let store = STORE.patient(&server.url()).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    let at = |ms| Value::Time(Timestamp::from_millis(ms));
    // The row has no such column: not even an upsert with one adds it.
    must_commit(&store, "p", vec![Mutation::Insert { row: row("r", 1) }]).await;
    must_commit(&store, "p", vec![Mutation::Upsert { row: row("r", 2).with("At", at(5)) }]).await;
    let found = store.read_row(&NUMBERS, "p", "r").await.unwrap().unwrap();
    assert_eq!(found.row, row("r", 2));
    must_commit(&store, "p", vec![Mutation::Upsert { row: row("s", 1).with("At", at(5)) }]).await;
    assert_eq!(
        store.read_row(&NUMBERS, "p", "s").await.unwrap().unwrap().row.get("At"),
        Some(&at(5))
    );
}
