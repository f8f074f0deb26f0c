//! Special to ZooKeeper: owners of nodes, an administrator's view, the limit of a request, and a
//! row made again that is not the old one.

use std::sync::Arc;

use emmer_store::{
    CommitOutcome, Etag, FindingSubject, Mutation, StoreErrorKind, SystemStore, Value,
};
use emmer_store_zookeeper::ZooKeeperStore;
use emmer_test_servers::store;
use emmer_test_servers::suite::book::lists_the_silos;
use emmer_test_servers::suite::refused::addresses;
use emmer_test_servers::suite::rows::{NUMBERS, all, must_commit, number_of, row};
use emmer_test_servers::suite::{Store, TestServer, lost};
use emmer_test_servers::{Certificates, ZooKeeperServer, process, skip};

const STORE: Store = store!(ZooKeeperStore);

/// The server's store for every client.
fn open_to_all(server: &ZooKeeperServer) -> String {
    format!("zookeeper://127.0.0.1:{}", server.port())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_addresses_passwords_and_tls_are_named() {
    use StoreErrorKind::{Invalid, Refused, Unavailable};
    let Some(server) = ZooKeeperServer::start_or_skip("wrong_addresses") else { return };
    STORE.patient(&server.url()).await.ensure_tables(&[&NUMBERS]).await.unwrap();
    let (port, closed) = (server.port(), process::free_port().unwrap());
    let ca = "ca_file=/etc/ssl/certs/ca-certificates.crt";
    let mut cases = vec![
        (format!("zookeeper://silo:s3cret@127.0.0.1:{port}/emmer"), Refused, "not authorized"),
        (format!("zookeeper://127.0.0.1:{port}/emmer"), Refused, "not authorized"),
        (format!("zookeeper://silo:s3cret@127.0.0.1:{closed}/emmer"), Unavailable, "refused"),
        (
            "zookeeper://silo:s3cret@no-such-host.invalid/emmer".to_owned(),
            Unavailable,
            "no-such-host",
        ),
        (
            format!("zookeeper://silo:s3cret@127.0.0.1:{port}/emmer?tls=true&ca_file=/none.pem"),
            Invalid,
            "/none.pem",
        ),
    ];
    if std::path::Path::new("/etc/ssl/certs/ca-certificates.crt").is_file() {
        let url =
            format!("zookeeper://silo:s3cret@127.0.0.1:{port}/emmer?tls=true&{ca}&timeout_ms=2000");
        cases.push((url, Refused, "answers without TLS"));
    }
    addresses(STORE, &cases).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_encrypted_and_unknown_authorities_refused() {
    let folder = tempfile::TempDir::new().unwrap();
    let made = Certificates::new(folder.path()).and_then(|certificates| {
        ZooKeeperServer::start_with_tls(&certificates)
            .map(|(server, port)| (certificates, server, port))
    });
    let (certificates, _server, port) = match made {
        Ok(made) => made,
        Err(trouble) => return skip("connections_are_encrypted", &trouble),
    };
    let url = |host: &str, ca: &std::path::Path| {
        format!(
            "zookeeper://silo:s3cret@{host}:{port}/emmer?timeout_ms=5000&tls=true&ca_file={}",
            ca.display()
        )
    };
    let store = (STORE.open)(url("127.0.0.1", &certificates.authority)).await.unwrap();
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    must_commit(&store, "p", all(2, 1)).await;
    assert_eq!(store.read_partition(&NUMBERS, "p").await.unwrap().len(), 2);
    // Another authority, and no encryption at all.
    let other = tempfile::TempDir::new().unwrap();
    let other = Certificates::new(other.path()).unwrap();
    let plain = format!("zookeeper://silo:s3cret@127.0.0.1:{port}/emmer?timeout_ms=2000");
    let stranger = (url("127.0.0.1", &other.authority), StoreErrorKind::Refused, "certificate");
    addresses(STORE, &[stranger, (plain, StoreErrorKind::Unavailable, "hosts")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zkcli_shows_the_columns_of_the_seed() {
    let Some(server) = ZooKeeperServer::start_or_skip("zkcli_shows_the_columns") else { return };
    let page = include_str!("../../../../docs/stores/zookeeper.md");
    lists_the_silos(STORE, &open_to_all(&server), page, |command| {
        let command = command.replace("localhost:2181", &format!("127.0.0.1:{}", server.port()));
        server.shell(&command).unwrap()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_somebody_did_by_hand_is_named() {
    let Some(server) = ZooKeeperServer::start_or_skip("what_somebody_did_by_hand") else { return };
    let store = STORE.patient(&open_to_all(&server)).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    must_commit(&store, "p", all(2, 1)).await;
    let by_hand = |command: &str| {
        let line = format!("zkCli.sh -server 127.0.0.1:{} {command}", server.port());
        tokio::task::block_in_place(|| server.shell(&line)).unwrap();
    };
    for (command, undo, word) in [
        ("set /emmer/numbers/p/r000 hello", "delete /emmer/numbers/p/r000/At", "r000"),
        ("create /emmer/numbers/p/a%ZZ x", "delete /emmer/numbers/p/a%ZZ", "a%ZZ"),
    ] {
        by_hand(command);
        let error = store.read_partition(&NUMBERS, "p").await.unwrap_err();
        assert!(error.kind == StoreErrorKind::Corrupt && error.detail.contains(word), "{error}");
        by_hand(undo);
    }
    // A volatile column's node is gone.
    let error = store.read_partition(&NUMBERS, "p").await.unwrap_err();
    assert!(error.kind == StoreErrorKind::Corrupt && error.detail.contains("node At"), "{error}");
    let error = store.read_row(&NUMBERS, "p", "r000").await.unwrap_err();
    assert!(error.kind == StoreErrorKind::Corrupt && error.detail.contains("node At"), "{error}");
    // The whole table is gone.
    by_hand("deleteall /emmer/numbers");
    let error = store.read_partition(&NUMBERS, "p").await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::NotFound, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_made_again_is_another_row() {
    let Some(server) = ZooKeeperServer::start_or_skip("a_row_made_again") else { return };
    let here = STORE.patient(&server.url()).await;
    let there = STORE.patient(&server.url()).await;
    here.ensure_tables(&[&NUMBERS]).await.unwrap();
    let commit = async |store: &Arc<dyn SystemStore>, mutation| {
        store.commit(&NUMBERS, "p", vec![mutation]).await.unwrap()
    };
    let etag = |outcome: &CommitOutcome| -> Etag {
        match outcome {
            CommitOutcome::Committed(etags) => etags[0].clone().unwrap(),
            other => panic!("{other:?}"),
        }
    };
    let insert = |n| Mutation::Insert { row: row("r", n) };
    let old = etag(&commit(&here, insert(1)).await);
    // `here` now remembers how the deletions of the partition stand.
    let other = etag(&commit(&here, Mutation::Insert { row: row("other", 1) }).await);
    let other = etag(&commit(&here, Mutation::Replace { row: row("other", 2), etag: other }).await);
    for n in 2..6 {
        let gone = commit(&there, Mutation::Delete { row_key: "r".into(), etag: None }).await;
        assert_eq!(gone, CommitOutcome::Committed(vec![None]));
        let new = etag(&commit(&there, insert(n)).await);
        // The same version of the node, and yet another row.
        assert_eq!(new.split('-').nth(1), old.split('-').nth(1));
        for stale in [
            Mutation::Replace { row: row("r", 0), etag: old.clone() },
            Mutation::Check { row_key: "r".into(), etag: old.clone() },
            Mutation::Delete { row_key: "r".into(), etag: Some(old.clone()) },
        ] {
            assert_eq!(commit(&here, stale).await, CommitOutcome::Conflict(0), "{n}");
        }
        let check = Mutation::Check { row_key: "r".into(), etag: new };
        assert_eq!(commit(&here, check).await, CommitOutcome::Committed(vec![None]));
        assert_eq!(number_of(&here, "r").await, n);
    }
    // A row that stayed keeps its etag across the deletions of others, in a commit with them as
    // well.
    let both = vec![
        Mutation::Replace { row: row("other", 3), etag: other },
        Mutation::Delete { row_key: "r".into(), etag: None },
    ];
    let outcome = here.commit(&NUMBERS, "p", both).await.unwrap();
    assert!(matches!(outcome, CommitOutcome::Committed(_)), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_as_large_as_the_server_takes_and_no_larger() {
    let Some(server) = ZooKeeperServer::start_or_skip("requests_are_as_large") else { return };
    let store = STORE.patient(&server.url()).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    let large =
        |key: &str, bytes: usize| row(key, 1).with("Text", Value::Text("x".repeat(bytes).into()));
    let upsert = |row| vec![Mutation::Upsert { row }];
    must_commit(&store, "p", upsert(large("fits", 990_000))).await;
    let error = store.commit(&NUMBERS, "p", upsert(large("not", 1_000_000))).await.unwrap_err();
    assert!(
        error.kind == StoreErrorKind::Invalid && error.detail.contains("jute.maxbuffer"),
        "{error}"
    );
    let error = store.append(&NUMBERS, "p", vec![large("not", 1_000_000)]).await.unwrap_err();
    assert!(
        error.kind == StoreErrorKind::Invalid && error.detail.contains("jute.maxbuffer"),
        "{error}"
    );
    // Many rows of an append go in as many requests as they need.
    let rows = (0..12).map(|n| large(&format!("a{n:02}"), 300_000)).collect();
    store.append(&NUMBERS, "many", rows).await.unwrap();
    assert_eq!(store.read_partition(&NUMBERS, "many").await.unwrap().len(), 12);
    assert_eq!(store.read_partition(&NUMBERS, "p").await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_is_examined() {
    let Some(server) = ZooKeeperServer::start_or_skip("the_server_is_examined") else { return };
    let found = STORE.patient(&server.url()).await.examine().await.unwrap();
    assert_eq!(format!("{} {}", found.server, found.version), TestServer::version(&server));
    assert!(!found.version.is_empty() && !found.warns_of_lost_writes());
    let about = |subject| found.findings.iter().any(|finding| finding.subject == subject);
    assert!(about(FindingSubject::Durability) && about(FindingSubject::Security), "{found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_nodes_are_a_table_that_is_gone() {
    let Some(server) = ZooKeeperServer::start_or_skip("deleted_nodes") else { return };
    let line = format!("zkCli.sh -server 127.0.0.1:{} deleteall /emmer", server.port());
    let delete = async || drop(server.shell(&line).unwrap());
    lost::table(STORE, &open_to_all(&server), delete).await;
}
