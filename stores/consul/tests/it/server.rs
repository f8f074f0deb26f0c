//! Special to Consul: addresses, tokens, an administrator's view, limits.

use emmer_core::Timestamp;
use emmer_store::silos::SILO_INSTANCES;
use emmer_store::{Mutation, Row, SiloTable, StoreErrorKind, Value};
use emmer_store_consul::ConsulStore;
use emmer_test_servers::consul::TOKEN;
use emmer_test_servers::store;
use emmer_test_servers::suite::rows::{
    NUMBERS, cluster, must_commit, row, silo, silo_with_every_column,
};
use emmer_test_servers::suite::{self, Store};
use emmer_test_servers::{Certificates, ConsulServer, process, skip};

const STORE: Store = store!(ConsulStore);

#[tokio::test]
async fn bad_addresses_and_tokens_are_refused_without_the_token() {
    use StoreErrorKind::{Refused, Unavailable};
    let server = ConsulServer::start_with_tokens().map_err(|t| skip("bad_addresses", &t));
    let Ok(server) = server else { return };
    let (port, closed) = (server.port(), process::free_port().unwrap());
    let cases = [
        (format!("consul://127.0.0.1:{port}?token=s3cret"), Refused, "ACL not found"),
        (format!("consul://127.0.0.1:{port}"), Refused, "ermission denied"),
        (
            format!("consul://127.0.0.1:{port}?token={TOKEN}&dc=nowhere"),
            Refused,
            "No path to datacenter",
        ),
        (format!("consul://127.0.0.1:{closed}?token=s3cret"), Unavailable, "refused"),
        ("consul://no-such-host.invalid?token=s3cret".to_owned(), Unavailable, "lookup"),
        (format!("consul://127.0.0.1:{port}?token=s3cret&tls=true"), Refused, ""),
    ];
    suite::refused::addresses(STORE, &cases).await;
    // A token that may only read is refused at its first write, and that is no lost race.
    let rules = r#"key_prefix "emmer/" { policy = "read" }"#;
    server.cli(&["acl", "policy", "create", "-name=reader", &format!("-rules={rules}")]).unwrap();
    let made = server.cli(&["acl", "token", "create", "-policy-name=reader"]).unwrap();
    let reader =
        made.lines().find_map(|line| line.strip_prefix("SecretID:")).unwrap().trim().to_owned();
    let all = STORE.patient(&format!("{}?token={TOKEN}", server.url())).await;
    all.ensure_tables(&[&NUMBERS]).await.unwrap();
    must_commit(&all, "p", vec![Mutation::Insert { row: row("r", 1) }]).await;
    let reader = STORE.patient(&format!("{}?token={reader}", server.url())).await;
    let before = reader.read_partition(&NUMBERS, "p").await.unwrap();
    assert_eq!(before.len(), 1);
    let replace = vec![Mutation::Replace { row: row("r", 2), etag: before[0].etag.clone() }];
    let error = reader.commit(&NUMBERS, "p", replace).await.unwrap_err();
    assert!(error.kind == Refused && error.detail.contains("ermission denied"), "{error}");
}

#[tokio::test]
async fn tls_is_spoken_with_whom_the_operator_trusts() {
    use StoreErrorKind::Refused;
    let folder = tempfile::TempDir::new().unwrap();
    let certificates = match Certificates::new(folder.path()) {
        Ok(certificates) => certificates,
        Err(trouble) => return skip("tls_is_spoken", &trouble),
    };
    let port = process::free_port().unwrap();
    // In addition to the plain port, by which the test waits for it.
    let encrypted = format!(
        "ports {{ https = {port} }} cert_file = {:?} key_file = {:?}",
        certificates.certificate, certificates.key
    );
    let Some(server) = ConsulServer::start_with_or_skip("tls_is_spoken", &["-hcl", &encrypted])
    else {
        return;
    };
    let trusting =
        format!("consul://127.0.0.1:{port}?ca_file={}", certificates.authority.display());
    // Another authority.
    let other = tempfile::TempDir::new().unwrap();
    let other = Certificates::new(other.path()).unwrap().authority;
    let cases = [
        (format!("consul://127.0.0.1:{port}?tls=true&token=s3cret"), Refused, "certificate"),
        (
            format!("consul://127.0.0.1:{port}?ca_file={}&token=s3cret", other.display()),
            Refused,
            "certificate",
        ),
        (format!("consul://127.0.0.1:{port}?token=s3cret"), Refused, "HTTP"),
        (
            format!("consul://127.0.0.1:{}?tls=true&token=s3cret", server.port()),
            Refused,
            "may not speak TLS",
        ),
    ];
    suite::refused::untrusted(STORE, &trusting, &cases).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_may_write_below_the_prefix_and_nowhere_else_is_enough() {
    let server = ConsulServer::start_with_tokens().map_err(|t| skip("a_token_that_may_write", &t));
    let Ok(server) = server else { return };
    let rules = r#"key_prefix "emmer/" { policy = "write" }"#;
    server.cli(&["acl", "policy", "create", "-name=silo", &format!("-rules={rules}")]).unwrap();
    let made = server.cli(&["acl", "token", "create", "-policy-name=silo"]).unwrap();
    let token = made.lines().find_map(|line| line.strip_prefix("SecretID:")).unwrap().trim();
    let url = format!("{}?token={token}", server.url());
    suite::conforms(&url, STORE).await;
    let found = STORE.patient(&url).await.examine().await.unwrap();
    assert!(
        found.findings.iter().any(|f| f.text.contains("does not describe itself")),
        "{found:?}"
    );
}

#[tokio::test]
async fn consul_kv_shows_the_columns_of_the_seed() {
    let Some(server) = ConsulServer::start_or_skip("consul_kv_shows") else { return };
    let table = SiloTable::new(STORE.patient(&server.url()).await, cluster("prod"));
    table.ensure().await.unwrap();
    let version = table.read_version().await.unwrap();
    table.commit(&version, vec![silo_with_every_column()], vec![]).await.unwrap();
    table.touch(&silo(1).address, Timestamp::from_millis(1_795_265_085_000)).await.unwrap();
    // As docs/stores/consul.md says.
    let shown = server.cli(&["kv", "get", "-recurse", "emmer/silo_instances/prod/"]).unwrap();
    for column in SILO_INSTANCES.columns.iter().filter(|c| !c.volatile).map(|c| c.name) {
        assert!(shown.contains(&format!("\"{column}\":")), "{column} is not in {shown}");
    }
    for wanted in [
        "emmer/silo_instances/prod/127.0.0.1-11111-1/.row:{",
        r#""PartitionKey":"prod","RowKey":"127.0.0.1-11111-1""#,
        r#""Status":"Active""#,
        r#""SuspectingSilos":["127.0.0.1:11111:2"]"#,
        "emmer/silo_instances/prod/127.0.0.1-11111-1/IAmAliveTime:\"2026-11-21T12:44:45.000Z\"\n",
        r#""MembershipVersion":1}"#,
    ] {
        assert!(shown.contains(wanted), "{wanted} is not in {shown}");
    }
    // A row that was written by hand and that no silo can understand is named.
    let broken = r#"{".commit":"x.1","MembershipVersion":"two"}"#;
    server.cli(&["kv", "put", "emmer/silo_instances/prod/VersionRow/.row", broken]).unwrap();
    let error = table.read_all().await.unwrap_err();
    assert!(
        error.kind == StoreErrorKind::Corrupt && error.detail.contains("MembershipVersion"),
        "{error}"
    );
    // Data that was deleted is no empty table: it is missing, and made again.
    server.cli(&["kv", "delete", "-recurse", "emmer/"]).unwrap();
    assert_eq!(table.read_all().await.unwrap_err().kind, StoreErrorKind::NotFound);
    table.ensure().await.unwrap();
    assert_eq!(table.read_version().await.unwrap().number, 0);
}

#[tokio::test]
async fn the_server_is_examined_and_limits_are_named() {
    let Some(server) = ConsulServer::start_or_skip("the_server_is_examined") else { return };
    let store = STORE.patient(&server.url()).await;
    let found = store.examine().await.unwrap();
    // The same host: the clocks agree as far as a second tells.
    let clock = found.clock.unwrap();
    assert!(clock.ahead_ms.abs() <= clock.uncertainty_ms, "{clock:?}");
    assert!(
        found.server == "Consul" && found.version.starts_with(|c: char| c.is_ascii_digit()),
        "{found:?}"
    );
    assert!(found.findings.iter().any(|f| f.text.contains("one server")), "{found:?}");
    assert!(!found.warns_of_lost_writes(), "{found:?}");
    // A server without access control accepts every client, whatever the URL says.
    let named = STORE.patient(&format!("{}?token=s3cret", server.url())).await;
    let found = named.examine().await.unwrap();
    assert!(found.findings.iter().any(|f| f.text.contains("lists are not enabled")), "{found:?}");
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    let large = |kib: usize, rows: usize| -> Vec<Mutation> {
        let text = Value::Text("x".repeat(kib * 1024).into());
        let wide = std::iter::once(Mutation::Insert { row: Row::new("b").with("Text", text) });
        wide.chain((0..rows).map(|n| Mutation::Insert { row: row(format!("r{n}"), 1) })).collect()
    };
    // Small and large commits have the same limit.
    for (kib, rows) in [(400, 0), (2_000, 0), (400, 80)] {
        let error = store.commit(&NUMBERS, "p", large(kib, rows)).await.unwrap_err();
        assert!(
            error.kind == StoreErrorKind::Invalid && error.detail.contains("512 KiB"),
            "{error}"
        );
        assert!(store.read_partition(&NUMBERS, "p").await.unwrap().is_empty());
    }
    must_commit(&store, "p", large(350, 0)).await;
    must_commit(&store, "q", large(250, 80)).await;
    assert_eq!(store.read_partition(&NUMBERS, "q").await.unwrap().len(), 81);
}

#[tokio::test]
async fn a_server_that_keeps_nothing_is_told() {
    let server =
        ConsulServer::start_in_memory().map_err(|t| skip("a_server_that_keeps_nothing", &t));
    let Ok(server) = server else { return };
    let found = STORE.patient(&server.url()).await.examine().await.unwrap();
    assert!(found.warns_of_lost_writes() && found.findings[0].text.contains("-dev"), "{found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_keys_are_a_table_that_is_gone() {
    let Some(server) = ConsulServer::start_or_skip("deleted_keys") else { return };
    let delete = async || drop(server.cli(&["kv", "delete", "-recurse", "emmer/"]).unwrap());
    suite::lost::table(STORE, &server.url(), delete).await;
}
