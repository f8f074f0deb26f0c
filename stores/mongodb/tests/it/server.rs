//! Special to MongoDB: addresses, credentials, an administrator's view, limits. On a compatible
//! server, SecantusDB, **not mongod**; on mongod where TEST_MONGODB_URI names one.

use emmer_core::Timestamp;
use emmer_store::silos::SILO_INSTANCES;
use emmer_store::{
    CommitOutcome, Mutation, Row, SiloTable, StateTable, StoreErrorKind, Value, WriteOutcome,
};
use emmer_store_mongodb::MongoDbStore;
use emmer_test_servers::mongodb::SYNC;
use emmer_test_servers::suite::book::{lists_the_silos, output_of};
use emmer_test_servers::suite::rows::{
    NUMBERS, cluster, must_commit, row, silo, silo_with_every_column,
};
use emmer_test_servers::suite::{self, Store, TestServer as _, external};
use emmer_test_servers::{MongoDbDatabase, process, store};

const STORE: Store = store!(MongoDbStore);
const VARIABLE: &str = "TEST_MONGODB_URI";

fn server(test: &str) -> Option<MongoDbDatabase> {
    MongoDbDatabase::start_or_skip(test, &[], false)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongod_passes_what_every_store_passes() {
    let Some(url) = external::server(VARIABLE, "mongod_passes_what_every_store_passes") else {
        return;
    };
    external::passes_all(&url, STORE).await;
}

#[tokio::test]
async fn bad_addresses_are_refused_with_the_store_and_without_the_secret() {
    use StoreErrorKind::{Invalid, Refused, Unavailable};
    let Some(server) = server("bad_addresses") else { return };
    let (port, closed) = (server.port(), process::free_port().unwrap());
    let cases = [
        (format!("mongodb://bob:s3cret@127.0.0.1:{port}/emmer"), Refused, "uthentication"),
        (format!("mongodb://bob:s3cret@127.0.0.1:{closed}/emmer"), Unavailable, "refused"),
        ("mongodb://bob:s3cret@no-such-host.invalid".to_owned(), Unavailable, "no-such-host"),
        (format!("mongodb://127.0.0.1:{port}/a.b"), Invalid, "letters"),
        (format!("mongodb://127.0.0.1:{port}?tls=true&ca_file=/nowhere"), Invalid, "nowhere"),
        (format!("mongodb://127.0.0.1:{port}?replicaSet=another"), Unavailable, "another"),
        (
            format!("mongodb://127.0.0.1:{port}?tls=true&timeout_ms=2000"),
            Refused,
            "answers without TLS",
        ),
    ];
    suite::refused::addresses(STORE, &cases).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_and_a_password_are_asked_for() {
    let started = MongoDbDatabase::start_or_skip("a_user_and_a_password", &[SYNC], true);
    let Some(mut server) = started else { return };
    tokio::task::block_in_place(|| server.ask_for_passwords("bob", "s3cr@t").unwrap());
    let port = server.port();
    let url = |user: &str| format!("mongodb://{user}127.0.0.1:{port}/emmer?directConnection=true");
    let store = STORE.patient(&url("bob:s3cr%40t@")).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    must_commit(&store, "p", vec![Mutation::Insert { row: row("r", 1) }]).await;
    let cases = [
        (url("bob:s3cret@"), StoreErrorKind::Refused, "uthentication"),
        (url("eve:s3cret@"), StoreErrorKind::Refused, "uthentication"),
        (url(""), StoreErrorKind::Refused, "uthenti"),
    ];
    suite::refused::addresses(STORE, &cases).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_command_of_the_page_lists_the_silos() {
    let Some(server) = server("the_first_command") else { return };
    let page = include_str!("../../../../docs/stores/mongodb.md");
    lists_the_silos(STORE, &server.url(), page, |command| output_of(&mut server.shell(command)))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_administrator_sees_a_cluster_as_one_document_of_the_seed() {
    let Some(server) = server("an_administrator_sees") else { return };
    let python = |program: &str| tokio::task::block_in_place(|| server.python(program).unwrap());
    let store = STORE.patient(&server.url()).await;
    let table = SiloTable::new(store.clone(), cluster("prod"));
    table.ensure().await.unwrap();
    let version = table.read_version().await.unwrap();
    table.commit(&version, vec![silo_with_every_column()], vec![]).await.unwrap();
    table.touch(&silo(1).address, Timestamp::from_millis(1_795_265_085_000)).await.unwrap();
    let shown = python("print(dumps(db.silo_instances.find_one({'_id': 'prod'})))");
    for column in SILO_INSTANCES.columns {
        assert!(
            shown.contains(&format!("\"{}\":", column.name)),
            "{} is not in {shown}",
            column.name
        );
    }
    for wanted in [
        r#""127%2E0%2E0%2E1-11111-1": {"etag": ""#,
        r#""PartitionKey": "prod", "RowKey": "127.0.0.1-11111-1""#,
        r#""Status": "Active""#,
        r#""SuspectingSilos": ["127.0.0.1:11111:2"]"#,
        r#""IAmAliveTime": {"$date": "2026-11-21T12:44:45Z"}"#,
        r#""RowKey": "VersionRow""#,
        r#""MembershipVersion": 1"#,
    ] {
        assert!(shown.contains(wanted), "{wanted} is not in {shown}");
    }
    // A row that was written by hand and that no silo can understand is named.
    python(
        "db.silo_instances.update_one({'_id': 'prod'}, {'$set': \
         {'rows.VersionRow.MembershipVersion': 'two'}})",
    );
    let error = table.read_all().await.unwrap_err();
    assert!(
        error.kind == StoreErrorKind::Corrupt && error.detail.contains("VersionRow"),
        "{error}"
    );
    // A collection that was dropped is no empty table: it is missing, and made again.
    for dropped in ["silo_instances", "emmer_meta"] {
        python(&format!("db.drop_collection('{dropped}')"));
        if dropped == "silo_instances" {
            assert_eq!(table.read_all().await.unwrap_err().kind, StoreErrorKind::NotFound);
        }
        table.ensure().await.unwrap();
        assert_eq!(table.read_version().await.unwrap().number, 0);
    }
    // Each grain is a document, and one whose states are cleared leaves none.
    let states = StateTable::new(store, cluster("service"));
    states.ensure().await.unwrap();
    let slot = states.slot("Airport", &"JFK".into(), "delays");
    let written = slot.write(None, "raw", [1].into(), Timestamp::from_millis(5)).await.unwrap();
    let WriteOutcome::Written(etag) = written else { panic!("{written:?}") };
    let ids = "print([found['_id'] for found in db.grain_state.find()])";
    assert_eq!(python(ids).trim(), "['service/Airport/s.JFK']");
    slot.clear(&etag).await.unwrap();
    assert_eq!(python(ids).trim(), "[]");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_is_examined_and_limits_are_named() {
    let Some(server) = server("the_server_is_examined") else { return };
    let store = STORE.patient(&server.url()).await;
    let found = store.examine().await.unwrap();
    let clock = found.clock.unwrap();
    assert!(clock.ahead_ms.abs() <= clock.uncertainty_ms, "{clock:?}");
    assert_eq!(found.server, "SecantusDB");
    assert!(found.findings.iter().any(|finding| finding.text.contains("not mongod")), "{found:?}");
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    let text = |key: String, kib: usize| Mutation::Insert {
        row: Row::new(key).with("Text", Value::Text("x".repeat(kib << 10).into())),
    };
    for commit in [
        vec![Mutation::Insert { row: row("a", 1) }, text("b".into(), 1_025)],
        (0..5).map(|n| text(n.to_string(), 1_000)).collect(),
    ] {
        let error = store.commit(&NUMBERS, "p", commit).await.unwrap_err();
        assert!(
            error.kind == StoreErrorKind::Invalid && error.detail.contains("are allowed"),
            "{error}"
        );
    }
    assert!(store.read_partition(&NUMBERS, "p").await.unwrap().is_empty());
    // A commit as large as the store says; and a partition as large as a document.
    let mut commits = 0;
    let error = loop {
        let four = (0..4).map(|n| text(format!("{commits}-{n}"), 1_000)).collect();
        match store.commit(&NUMBERS, "q", four).await {
            Ok(CommitOutcome::Committed(_)) => commits += 1,
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error,
        }
        assert!(commits < 5, "a document of more than 16 MiB");
    };
    assert_eq!((error.kind, commits), (StoreErrorKind::Invalid, 4), "{error}");
    assert_eq!(store.read_partition(&NUMBERS, "q").await.unwrap().len(), 16);
}

/// A thousand silos in one document, of the size that the page names.
#[tokio::test]
async fn a_thousand_silos_fit_a_sixteenth_of_a_document() {
    let Some(server) = server("a_thousand_silos") else { return };
    let table = SiloTable::new(STORE.patient(&server.url()).await, cluster("large"));
    table.ensure().await.unwrap();
    let mut version = table.read_version().await.unwrap();
    for first in (0..1_000).step_by(99) {
        let silos = (first..1_000.min(first + 99)).map(|n| {
            let mut one = silo(1_795_265_085_000_000 + n);
            one.host_name = "host-17.rack-3.example.net".into();
            one.instance_name = "silo-17".into();
            one.role_name = "flights".into();
            one
        });
        let committed = table.commit(&version, silos.collect(), vec![]).await.unwrap();
        let emmer_store::SiloCommit::Committed(next) = committed else { panic!("{committed:?}") };
        version = next;
    }
    let size = "import bson; print(len(bson.encode(db.silo_instances.find_one({'_id': 'large'}))))";
    let bytes: usize = server.python(size).unwrap().trim().parse().unwrap();
    println!("a document of 1,000 silos has {bytes} bytes");
    assert!(bytes < 1 << 20, "{bytes}");
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_database_has_no_table() {
    let Some(server) = server("a_dropped_database") else { return };
    let drop_it = async || drop(server.python("db.client.drop_database(db.name)").unwrap());
    suite::lost::table(STORE, &server.url(), drop_it).await;
}
