//! Special to etcd: addresses, users, an administrator's view, limits, compaction.

use std::sync::Arc;

use emmer_core::Timestamp;
use emmer_store::silos::SILO_INSTANCES;
use emmer_store::{Mutation, Row, SiloTable, StoreErrorKind, Value};
use emmer_store_etcd::EtcdStore;
use emmer_test_servers::store;
use emmer_test_servers::suite::rows::{
    NUMBERS, all, cluster, must_commit, row, same_number, silo, silo_with_every_column,
};
use emmer_test_servers::suite::{self, Store};
use emmer_test_servers::{Certificates, EtcdServer, process, skip};
use tokio::sync::Semaphore;

const STORE: Store = store!(EtcdStore);

/// A server that knows the user root with the password `only/for:tests`.
fn with_users(test: &str) -> Option<EtcdServer> {
    let server = EtcdServer::start_or_skip(test)?;
    server.ctl(&["user", "add", "root:only/for:tests"]).unwrap();
    server.ctl(&["user", "grant-role", "root", "root"]).unwrap();
    server.ctl(&["user", "add", "silo:only/for:tests"]).unwrap();
    server.ctl(&["auth", "enable"]).unwrap();
    Some(server)
}

#[tokio::test]
async fn bad_addresses_are_refused_with_the_store_and_without_the_password() {
    use StoreErrorKind::{Refused, Unavailable};
    let Some(server) = with_users("bad_addresses") else { return };
    let (port, closed) = (server.port(), process::free_port().unwrap());
    let cases = [
        (format!("etcd://root:s3cret@127.0.0.1:{port}"), Refused, "invalid user ID or password"),
        (format!("etcd://nobody:s3cret@127.0.0.1:{port}"), Refused, "invalid user ID or password"),
        (format!("etcd://127.0.0.1:{port}"), Refused, "user name is empty"),
        (format!("etcd://silo:only%2Ffor%3Atests@127.0.0.1:{port}"), Refused, "permission denied"),
        (format!("etcd://root:s3cret@127.0.0.1:{closed}"), Unavailable, "refused"),
        ("etcd://root:s3cret@no-such-host.invalid".to_owned(), Unavailable, "lookup"),
    ];
    suite::refused::addresses(STORE, &cases).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_that_may_write_below_the_prefix_and_nowhere_else_is_enough() {
    let Some(server) = EtcdServer::start_or_skip("a_user_that_may_write") else { return };
    for command in [
        &["user", "add", "root:only/for:tests"][..],
        &["user", "grant-role", "root", "root"],
        &["user", "add", "silo:only/for:tests"],
        &["role", "add", "silo"],
        &["role", "grant-permission", "silo", "readwrite", "emmer/", "--prefix=true"],
        &["user", "grant-role", "silo", "silo"],
        &["auth", "enable"],
    ] {
        server.ctl(command).unwrap();
    }
    let url = format!("etcd://silo:only%2Ffor%3Atests@127.0.0.1:{}", server.port());
    suite::conforms(&url, STORE).await;
    STORE.patient(&url).await.examine().await.unwrap();
    let cases = [(format!("{url}?prefix=other"), StoreErrorKind::Refused, "permission denied")];
    suite::refused::addresses(STORE, &cases).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_is_no_longer_valid_is_replaced_and_a_host_that_is_away_is_passed_over() {
    let Some(mut server) = with_users("a_token_that_is_no_longer") else { return };
    let closed = process::free_port().unwrap();
    let hosts = format!("127.0.0.1:{closed},127.0.0.1:{}", server.port());
    let store = STORE.patient(&format!("etcd://root:only%2Ffor%3Atests@{hosts}")).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    must_commit(&store, "p", all(2, 1)).await;
    // A server that begins again knows no tokens.
    tokio::task::block_in_place(|| {
        server.kill();
        server.start_again().unwrap();
    });
    assert_eq!(same_number(&store.read_partition(&NUMBERS, "p").await.unwrap(), 2), 1);
    must_commit(&store, "p", all(2, 2)).await;
    assert!(!store.examine().await.unwrap().findings.iter().any(|f| f.text.contains("no user")));
}

#[tokio::test]
async fn tls_is_spoken_with_whom_the_operator_trusts() {
    let folder = tempfile::TempDir::new().unwrap();
    let certificates = match Certificates::new(folder.path()) {
        Ok(certificates) => certificates,
        Err(trouble) => return skip("tls_is_spoken", &trouble),
    };
    let path = |file: &std::path::Path| file.to_str().unwrap().to_owned();
    let port = process::free_port().unwrap();
    // In addition to the plain port, by which the test waits for it.
    let urls = |plain: &str| format!("{plain},https://127.0.0.1:{port}");
    let Some(plain) = EtcdServer::start_or_skip("tls_is_spoken") else { return };
    drop(plain);
    let own = process::free_port().unwrap();
    let settings = [
        format!("--listen-client-urls={}", urls(&format!("http://127.0.0.1:{own}"))),
        format!("--cert-file={}", path(&certificates.certificate)),
        format!("--key-file={}", path(&certificates.key)),
    ];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let Some(_server) =
        EtcdServer::start_at(own, &settings).map_err(|t| skip("tls_is_spoken", &t)).ok()
    else {
        return;
    };
    let trusting = format!("etcd://127.0.0.1:{port}?ca_file={}", path(&certificates.authority));
    let cases =
        [(format!("etcd://127.0.0.1:{port}?tls=true"), StoreErrorKind::Refused, "certificate")];
    suite::refused::untrusted(STORE, &trusting, &cases).await;
}

#[tokio::test]
async fn etcdctl_shows_the_columns_of_the_seed() {
    let Some(server) = EtcdServer::start_or_skip("etcdctl_shows") else { return };
    let table = SiloTable::new(STORE.patient(&server.url()).await, cluster("prod"));
    table.ensure().await.unwrap();
    let version = table.read_version().await.unwrap();
    table.commit(&version, vec![silo_with_every_column()], vec![]).await.unwrap();
    table.touch(&silo(1).address, Timestamp::from_millis(1_795_265_085_000)).await.unwrap();
    // As docs/stores/etcd.md says.
    let shown = match server.ctl(&["get", "--prefix", "emmer/silo_instances/prod/"]) {
        Err(trouble @ emmer_test_servers::Trouble::Missing { .. }) => {
            return skip("etcdctl_shows", &trouble);
        }
        shown => shown.unwrap(),
    };
    for column in SILO_INSTANCES.columns.iter().filter(|c| !c.volatile).map(|c| c.name) {
        assert!(shown.contains(&format!("\"{column}\":")), "{column} is not in {shown}");
    }
    for wanted in [
        "emmer/silo_instances/prod/127.0.0.1-11111-1\n{\"PartitionKey\":\"prod\",\"RowKey\":\"127.0.0.1-11111-1\"",
        r#""Status":"Active""#,
        r#""SuspectingSilos":["127.0.0.1:11111:2"]"#,
        "emmer/silo_instances/prod/127.0.0.1-11111-1/IAmAliveTime\n\"2026-11-21T12:44:45.000Z\"\n",
        r#""MembershipVersion":1}"#,
    ] {
        assert!(shown.contains(wanted), "{wanted} is not in {shown}");
    }
    // A row that was written by hand and that no silo can understand is named.
    server
        .ctl(&["put", "emmer/silo_instances/prod/VersionRow", r#"{"MembershipVersion":"two"}"#])
        .unwrap();
    let error = table.read_all().await.unwrap_err();
    assert!(
        error.kind == StoreErrorKind::Corrupt && error.detail.contains("MembershipVersion"),
        "{error}"
    );
    // Data that was deleted is no empty table: it is missing, and made again.
    server.ctl(&["del", "--prefix", "emmer/"]).unwrap();
    assert_eq!(table.read_all().await.unwrap_err().kind, StoreErrorKind::NotFound);
    table.ensure().await.unwrap();
    assert_eq!(table.read_version().await.unwrap().number, 0);
}

#[tokio::test]
async fn the_server_is_examined_and_limits_are_named() {
    let Some(server) = EtcdServer::start_or_skip("the_server_is_examined") else { return };
    let store = STORE.patient(&server.url()).await;
    let found = store.examine().await.unwrap();
    // The same host: the clocks agree as far as a second tells.
    let clock = found.clock.unwrap();
    assert!(clock.ahead_ms.abs() <= clock.uncertainty_ms, "{clock:?}");
    assert!(
        found.server == "etcd" && found.version.starts_with(|c: char| c.is_ascii_digit()),
        "{found:?}"
    );
    assert!(found.findings.iter().any(|f| f.text.contains("one member")), "{found:?}");
    // A server without authentication accepts every client, whatever the URL says.
    let named = format!("etcd://bob:s3cret@127.0.0.1:{}", server.port());
    let found = STORE.patient(&named).await.examine().await.unwrap();
    assert!(
        found.findings.iter().any(|f| f.text.contains("authentication is not enabled")),
        "{found:?}"
    );
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    let large = |kib: usize| {
        let text = Value::Text("x".repeat(kib * 1024).into());
        vec![
            Mutation::Insert { row: row("a", 1) },
            Mutation::Insert { row: Row::new("b").with("Text", text) },
        ]
    };
    for kib in [1_600, 4_000] {
        let error = store.commit(&NUMBERS, "p", large(kib)).await.unwrap_err();
        assert!(
            error.kind == StoreErrorKind::Invalid && error.detail.contains("max-request-bytes"),
            "{error}"
        );
    }
    assert!(store.read_partition(&NUMBERS, "p").await.unwrap().is_empty());
    must_commit(&store, "p", large(1_400)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_of_many_pages_survives_compaction() {
    const ROWS: usize = 2_500;
    let Some(server) = EtcdServer::start_or_skip("a_read_of_many_pages") else { return };
    let store = STORE.patient(&server.url()).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    for part in 0..ROWS / 100 {
        let rows = (0..100).map(|i| Mutation::Upsert { row: row(format!("{part:02}-{i:02}"), 1) });
        must_commit(&store, "p", rows.collect()).await;
    }
    // Every second read is compacted again and again, the others once: a server without a disk to
    // wait for would compact as often as a read asks, and no read would survive.
    let due = Arc::new(Semaphore::new(0));
    let compacting = tokio::spawn({
        let (store, due) = (store.clone(), due.clone());
        async move {
            let mut compacted = 0;
            while let Ok(one) = due.acquire().await {
                one.forget();
                must_commit(&store, "q", all(1, 1)).await;
                let version = store.read_row(&NUMBERS, "q", "r000").await.unwrap().unwrap().etag;
                compacted += u32::from(tokio::task::block_in_place(|| {
                    server.ctl(&["compact", &version]).is_ok()
                }));
            }
            (compacted, server)
        }
    });
    let mut survived = 0;
    for n in 0..40 {
        due.forget_permits(usize::MAX);
        due.add_permits(if n % 2 == 0 { 1 } else { 1_000 });
        match store.read_partition(&NUMBERS, "p").await {
            Ok(rows) => {
                assert_eq!(same_number(&rows, ROWS), 1);
                survived += 1;
            }
            // Compacted again and again during the read: the store says so, and returns no part.
            Err(error) => assert!(error.detail.contains("compacted"), "{error}"),
        }
    }
    due.close();
    let (compacted, _server) = compacting.await.unwrap();
    println!("{survived} reads beside {compacted} compactions");
    assert!(compacted > 0 && survived > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_keys_are_a_table_that_is_gone() {
    let Some(server) = EtcdServer::start_or_skip("deleted_keys") else { return };
    let delete = async || drop(server.ctl(&["del", "--prefix", "emmer/"]).unwrap());
    suite::lost::table(STORE, &server.url(), delete).await;
}
