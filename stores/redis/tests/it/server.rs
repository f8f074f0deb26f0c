//! Special to Redis: addresses, an administrator's view, what the server may lose, memory,
//! clusters, replicas.

use emmer_core::Timestamp;
use emmer_store::silos::SILO_INSTANCES;
use emmer_store::{CommitOutcome, Mutation, Row, SiloTable, StoreErrorKind, Value};
use emmer_store_redis::RedisStore;
use emmer_test_servers::redis::{PASSWORD, url};
use emmer_test_servers::store;
use emmer_test_servers::suite::proxy::Proxy;
use emmer_test_servers::suite::rows::{
    NUMBERS, all, cluster, must_commit, number, row, same_number, silo, silo_with_every_column,
};
use emmer_test_servers::suite::{self, Store};
use emmer_test_servers::{Certificates, RedisServer, process, skip};

const STORE: Store = store!(RedisStore);

/// A server with these settings, for a test that is skipped without one.
fn start(test: &str, settings: &[&str]) -> Option<RedisServer> {
    RedisServer::start_with(settings).map_err(|trouble| skip(test, &trouble)).ok()
}

#[tokio::test]
async fn bad_addresses_are_refused_with_the_store_and_without_the_password() {
    use StoreErrorKind::{Refused, Unavailable};
    let Some(server) = start("bad_addresses", &[]) else { return };
    let (port, closed) = (server.port(), process::free_port().unwrap());
    let cases = [
        (format!("redis://:s3cret@127.0.0.1:{port}"), Refused, "assword"),
        (format!("redis://nobody:s3cret@127.0.0.1:{port}"), Refused, "assword"),
        (format!("redis://127.0.0.1:{port}"), Refused, "uthentication"),
        (format!("redis://:s3cret@127.0.0.1:{closed}"), Unavailable, "refused"),
        ("redis://:s3cret@no-such-host.invalid".to_owned(), Unavailable, "lookup"),
        (format!("redis://:only%2Ffor%3Atests@127.0.0.1:{port}/99"), Refused, "out of range"),
    ];
    suite::refused::addresses(STORE, &cases).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_became_a_replica_and_kept_its_connections_is_left() {
    let Some(old) = start("a_master_that_became", &[]) else { return };
    let Some(new) = start("a_master_that_became", &[]) else { return };
    let proxy = Proxy::start(old.port()).await;
    let store = (STORE.open)(format!("{}?{}", url(proxy.port()), STORE.patient)).await.unwrap();
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    must_commit(&store, "p", all(1, 1)).await;
    for server in [&old, &new] {
        server.cli(&["config", "set", "masterauth", PASSWORD]).unwrap();
    }
    // Nothing of the old master is needed: the table is made again where it is missing.
    old.cli(&["replicaof", "127.0.0.1", &new.port().to_string()]).unwrap();
    let tables = (STORE.open)(format!("{}?{}", new.url(), STORE.patient)).await.unwrap();
    tables.ensure_tables(&[&NUMBERS]).await.unwrap();
    proxy.lead_to(new.port());
    suite::switchover::finds_the_new_server(&store).await;
    assert!(!tables.read_partition(&NUMBERS, "p").await.unwrap().is_empty());
}

#[tokio::test]
async fn tls_is_spoken_with_whom_the_operator_trusts() {
    use StoreErrorKind::{Refused, Unavailable};
    let folder = tempfile::TempDir::new().unwrap();
    let certificates = match Certificates::new(folder.path()) {
        Ok(certificates) => certificates,
        Err(trouble) => return skip("tls_is_spoken", &trouble),
    };
    let path = |file: &std::path::Path| file.to_str().unwrap().to_owned();
    let plain = start("tls_is_spoken", &[]);
    let Some(plain) = plain else { return };
    let port = process::free_port().unwrap();
    // In addition to the plain port, by which the test waits for it.
    let settings = [
        "--tls-port".to_owned(),
        port.to_string(),
        "--tls-auth-clients".to_owned(),
        "no".to_owned(),
        "--tls-cert-file".to_owned(),
        path(&certificates.certificate),
        "--tls-key-file".to_owned(),
        path(&certificates.key),
    ];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let Some(_server) = start("tls_is_spoken", &settings) else { return };
    let good = format!("rediss://:only%2Ffor%3Atests@127.0.0.1:{port}");
    let trusting = format!("{good}?ca_file={}", path(&certificates.authority));
    let cases = [
        (good, Refused, "certificate"),
        (format!("redis://:s3cret@127.0.0.1:{port}?timeout_ms=1000"), Unavailable, "rediss://"),
        // It waits for the end of a line that never comes.
        (
            format!("rediss://:s3cret@127.0.0.1:{}?timeout_ms=2000", plain.port()),
            Refused,
            "answers without TLS",
        ),
    ];
    suite::refused::untrusted(STORE, &trusting, &cases).await;
}

#[tokio::test]
async fn redis_cli_shows_the_columns_of_the_seed() {
    let Some(server) = start("redis_cli_shows", &[]) else { return };
    let table = SiloTable::new(STORE.patient(&server.url()).await, cluster("prod"));
    table.ensure().await.unwrap();
    let version = table.read_version().await.unwrap();
    table.commit(&version, vec![silo_with_every_column()], vec![]).await.unwrap();
    table.touch(&silo(1).address, Timestamp::from_millis(1_795_265_085_000)).await.unwrap();
    // As docs/stores/redis.md says.
    let shown = server.cli(&["HGETALL", "emmer:{silo_instances/prod}"]).unwrap();
    for column in SILO_INSTANCES.columns.iter().filter(|c| !c.volatile).map(|c| c.name) {
        assert!(shown.contains(&format!("\"{column}\":")), "{column} is not in {shown}");
    }
    for wanted in [
        r#""PartitionKey":"prod","RowKey":"127.0.0.1-11111-1""#,
        r#""Status":"Active""#,
        r#""SuspectingSilos":["127.0.0.1:11111:2"]"#,
        "\n127.0.0.1-11111-1/IAmAliveTime\n\"2026-11-21T12:44:45.000Z\"\n",
        r#""MembershipVersion":1}"#,
    ] {
        assert!(format!("\n{shown}").contains(wanted), "{wanted} is not in {shown}");
    }
    // A row that was written by hand and that no silo can understand is named.
    let broken =
        r#"{"etag":"x.1","PartitionKey":"prod","RowKey":"VersionRow","MembershipVersion":"two"}"#;
    server.cli(&["HSET", "emmer:{silo_instances/prod}", "VersionRow", broken]).unwrap();
    let error = table.read_all().await.unwrap_err();
    assert!(
        error.kind == StoreErrorKind::Corrupt && error.detail.contains("MembershipVersion"),
        "{error}"
    );
    // Data that was lost is no empty table: it is missing, and made again.
    server.cli(&["FLUSHALL"]).unwrap();
    assert_eq!(table.read_all().await.unwrap_err().kind, StoreErrorKind::NotFound);
    table.ensure().await.unwrap();
    assert_eq!(table.read_version().await.unwrap().number, 0);
}

#[tokio::test]
async fn a_server_that_may_lose_acknowledged_commits_is_told() {
    for (settings, word) in [
        (&[][..], None),
        (&["--appendonly", "no"], Some("appendonly is off")),
        (&["--appendonly", "no", "--save", "60 1"], Some("snapshots")),
        (&["--appendfsync", "everysec"], Some("appendfsync is everysec")),
        (&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"], Some("allkeys-lru")),
    ] {
        let Some(server) = start("a_server_that_may_lose", settings) else { return };
        let found = STORE.patient(&server.url()).await.examine().await.unwrap();
        assert!(
            found.server == "Redis" && !found.version.is_empty() && found.clock.is_some(),
            "{found:?}"
        );
        assert_eq!(found.warns_of_lost_writes(), word.is_some(), "{settings:?}: {found:?}");
        if let Some(word) = word {
            assert!(found.findings[0].text.contains(word), "{settings:?}: {found:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_keys_of_a_commit_lie_in_one_slot_of_a_cluster() {
    // A node with all slots refuses a script or command whose keys lie in several, as every node
    // does.
    let Some(server) = start("all_keys_of_a_commit", &["--cluster-enabled", "yes"]) else { return };
    server.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).unwrap();
    while !server.cli(&["CLUSTER", "INFO"]).unwrap().contains("cluster_state:ok") {
        tokio::task::yield_now().await;
    }
    suite::conforms(&server.url(), STORE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_that_may_do_what_the_book_says_and_no_more_is_enough() {
    let Some(server) = start("a_user_that_may_do", &[]) else { return };
    let page = include_str!("../../../../docs/stores/redis.md");
    let (_, rest) = page.split_once("`ACL SETUSER ").unwrap();
    let (rules, _) = rest.split_once('`').unwrap();
    let rules: Vec<&str> =
        rules.split_whitespace().map(|r| if r == ">password" { ">only-silo" } else { r }).collect();
    server.cli(&[&["ACL", "SETUSER"], rules.as_slice()].concat()).unwrap();
    let url = format!("redis://silo:only-silo@127.0.0.1:{}", server.port());
    suite::conforms(&url, STORE).await;
    let found = STORE.patient(&url).await.examine().await.unwrap();
    assert!(
        found.warns_of_lost_writes() && found.findings[0].text.contains("may not run INFO"),
        "{found:?}"
    );
    let elsewhere = format!("{url}?prefix=other");
    let error = STORE.patient(&elsewhere).await.ensure_tables(&[&NUMBERS]).await.unwrap_err();
    assert!(
        error.kind == StoreErrorKind::Refused && !error.to_string().contains("only"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_too_few_replicas_have_is_unknown() {
    let Some(server) = start("a_commit_that_too_few", &[]) else { return };
    let primary = format!("127.0.0.1 {}", server.port());
    let Some(replica) = start(
        "a_commit_that_too_few",
        &["--replicaof", &primary, "--masterauth", PASSWORD, "--repl-diskless-sync-delay", "0"],
    ) else {
        return;
    };
    let url = format!("{}?wait_replicas=1&timeout_ms=60000", server.url());
    while !replica.cli(&["INFO", "replication"]).unwrap().contains("master_link_status:up") {
        tokio::task::yield_now().await;
    }
    let store = (STORE.open)(url).await.unwrap();
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    must_commit(&store, "p", all(1, 1)).await;
    assert!(!store.examine().await.unwrap().warns_of_lost_writes());
    assert!(STORE.patient(&server.url()).await.examine().await.unwrap().warns_of_lost_writes());
    let hasty =
        (STORE.open)(format!("{}?wait_replicas=1&timeout_ms=1000", server.url())).await.unwrap();
    replica.signal("STOP").unwrap();
    let outcome = hasty.commit(&NUMBERS, "p", all(1, 2)).await;
    replica.signal("CONT").unwrap();
    match outcome.unwrap() {
        CommitOutcome::Unknown(error) => {
            assert!(error.detail.contains("0 of 1 replicas"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    // It happened on the primary; reading finds out.
    assert_eq!(same_number(&store.read_partition(&NUMBERS, "p").await.unwrap(), 1), 2);
    must_commit(&store, "p", all(1, 3)).await;
    // A replica takes no writes, until it is promoted or its address leads elsewhere.
    let readonly = STORE.patient(&replica.url()).await;
    let error = readonly.commit(&NUMBERS, "p", all(1, 4)).await.unwrap_err();
    let kind = StoreErrorKind::Unavailable;
    assert!(error.kind == kind && error.detail.contains("primary"), "{error}");
}

#[tokio::test]
async fn a_server_without_memory_refuses_whole_commits() {
    let Some(server) = start("a_server_without_memory", &[]) else { return };
    let store = STORE.patient(&server.url()).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    must_commit(&store, "p", all(10, 1)).await;
    let before = store.read_partition(&NUMBERS, "p").await.unwrap();
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    // Deletions first: they alone would need no memory.
    let mut mixed: Vec<Mutation> =
        (0..5).map(|n| Mutation::Delete { row_key: format!("r{n:03}"), etag: None }).collect();
    mixed.push(Mutation::Insert { row: row("new", 2) });
    let error = store.commit(&NUMBERS, "p", mixed.clone()).await.unwrap_err();
    assert!(
        error.kind == StoreErrorKind::Unavailable && error.detail.contains("maxmemory"),
        "{error}"
    );
    assert_eq!(store.read_partition(&NUMBERS, "p").await.unwrap(), before);
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    must_commit(&store, "p", mixed).await;
    assert_eq!(store.read_partition(&NUMBERS, "p").await.unwrap().len(), 6);
}

#[tokio::test]
async fn scripts_the_server_forgot_are_sent_again_and_clean_ups_go_page_by_page() {
    let Some(server) = start("scripts_the_server_forgot", &[]) else { return };
    let store = STORE.patient(&server.url()).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    must_commit(&store, "p", all(1, 1)).await;
    server.cli(&["SCRIPT", "FLUSH"]).unwrap();
    must_commit(&store, "p", all(1, 2)).await;
    let time = |ms| Value::Time(Timestamp::from_millis(ms));
    for thousand in 0..3 {
        let rows = (0..1_000).map(|i| {
            Row::new(format!("{thousand}-{i}")).with("At", time(i)).with("N", Value::Int(i))
        });
        store.append(&NUMBERS, "old", rows.collect()).await.unwrap();
    }
    let cutoff = Timestamp::from_millis(990);
    assert_eq!(store.delete_older_than(&NUMBERS, "old", "At", cutoff).await.unwrap(), 3 * 990);
    assert_eq!(store.read_partition(&NUMBERS, "old").await.unwrap().len(), 30);
    // The index has lost them too, and a touch moves nothing in it.
    let left = store.scan(&NUMBERS, "N", 0..=10_000, 1_000).await.unwrap();
    assert!(
        left.len() == 31 && left.iter().skip(1).all(|row| number(row) >= 2),
        "{} rows",
        left.len()
    );
    let index = server.cli(&["ZCARD", "emmer:{numbers/old}:by:N"]).unwrap();
    assert_eq!(index.trim(), "30");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flushed_server_has_no_table() {
    let Some(server) = start("a_flushed_server", &[]) else { return };
    let flush = async || drop(server.cli(&["FLUSHALL"]).unwrap());
    suite::lost::table(STORE, &server.url(), flush).await;
}
