//! Special to Cassandra: addresses, rights, an administrator's view, limits, pages, lost answers.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use emmer_core::Timestamp;
use emmer_store::silos::{SILO_INSTANCES, VERSION_ROW};
use emmer_store::{CommitOutcome, Mutation, Row, SiloTable, StoreErrorKind, SystemStore, Value};
use emmer_store_cassandra::CassandraStore;
use emmer_test_servers::cassandra::{ONLY_FOR_USERS, USER, cqlsh};
use emmer_test_servers::suite::book::{lists_the_silos, output_of};
use emmer_test_servers::suite::proxy::{Cut, Proxy};
use emmer_test_servers::suite::rows::{
    NUMBERS, all, cluster, must_commit, number_of, row, same_number, silo, silo_with_every_column,
};
use emmer_test_servers::suite::{self, Store, TestServer as _};
use emmer_test_servers::{CassandraKeyspace, CassandraServer, Certificates, process, skip, store};

const STORE: Store = store!(CassandraStore);
/// A server that looks at who may do what.
const AUTHORIZER: &str = "authorizer: CassandraAuthorizer\nrole_manager: CassandraRoleManager";

fn server(test: &str) -> Option<CassandraKeyspace> {
    CassandraKeyspace::start_or_skip(test, &[], false)
}

/// The command line, in a keyspace of a server; none where it is not installed.
struct Shell {
    folder: PathBuf,
    port: u16,
}

impl Shell {
    fn at(test: &str, port: u16) -> Option<Self> {
        cqlsh().map_err(|trouble| skip(test, &trouble)).ok().map(|folder| Self { folder, port })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(self.folder.join("bin")).chain(std::env::split_paths(&path));
        command.env("PATH", std::env::join_paths(folders).unwrap()).env("PYTHONPATH", &self.folder);
        command.env("CQLSH_HOST", "127.0.0.1").env("CQLSH_PORT", self.port.to_string());
        command
    }

    /// Output of statements.
    fn ask(&self, cql: &str) -> String {
        tokio::task::block_in_place(|| output_of(self.command("cqlsh").args(["-e", cql])))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_on_the_page_lists_the_silos() {
    let Some(server) = server("the_command_on_the_page") else { return };
    let Some(shell) = Shell::at("the_command_on_the_page", server.port()) else { return };
    let url = format!("cassandra://127.0.0.1:{}?replication=1", server.port());
    lists_the_silos(STORE, &url, include_str!("../../../../docs/stores/cassandra.md"), |command| {
        output_of(shell.command("sh").args(["-c", command]))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_addresses_are_refused_with_the_store_and_without_the_secret() {
    use StoreErrorKind::{Invalid, Refused, Unavailable};
    let Some(server) = server("bad_addresses") else { return };
    let (port, closed) = (server.port(), process::free_port().unwrap());
    let cases = [
        (format!("cassandra://silo:s3cret@127.0.0.1:{closed}"), Unavailable, "refused"),
        ("cassandra://silo:s3cret@no-such-host.invalid".to_owned(), Unavailable, "no-such-host"),
        (format!("cassandra://silo:s3cret@127.0.0.1:{port}/Emmer"), Invalid, "lower-case"),
        (
            format!("cassandra://silo:s3cret@127.0.0.1:{port}?tls=true&ca_file=/none.pem"),
            Invalid,
            "/none.pem",
        ),
        (format!("cassandra://silo:s3cret@127.0.0.1:{port}?tls=true"), Refused, "TLS"),
    ];
    suite::refused::addresses(STORE, &cases).await;
    // A keyspace that would have more copies than there are nodes is not made.
    let store = STORE.patient(&format!("cassandra://127.0.0.1:{port}/three")).await;
    let error = store.ensure_tables(&[&NUMBERS]).await.unwrap_err();
    assert!(error.kind == Invalid && error.detail.contains("3 copies"), "{error}");
    // A client that is not asked for a password hears so.
    let store = STORE.patient(&format!("cassandra://silo:s3cret@127.0.0.1:{port}")).await;
    let found = store.examine().await.unwrap();
    assert!(
        found.findings.iter().any(|finding| finding.text.contains("AllowAllAuthenticator")),
        "{found:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_asks_lets_in_who_it_knows_and_encrypts() {
    use StoreErrorKind::{Refused, Unavailable};
    let test = "a_server_that_asks";
    let folder = tempfile::TempDir::new().unwrap();
    let certificates = match Certificates::new(folder.path()) {
        Ok(made) => made,
        Err(trouble) => return skip(test, &trouble),
    };
    let read = |file: &PathBuf| std::fs::read_to_string(file).unwrap();
    let both = folder.path().join("both.pem");
    std::fs::write(
        &both,
        format!("{}{}", read(&certificates.key), read(&certificates.certificate)),
    )
    .unwrap();
    let encrypts = format!(
        "client_encryption_options:\n  enabled: true\n  optional: true\n  \
         ssl_context_factory:\n    class_name: \
         org.apache.cassandra.security.PEMBasedSslContextFactory\n  keystore: {}",
        both.display()
    );
    let Some(server) =
        CassandraServer::start_with_or_skip(test, &[ONLY_FOR_USERS, AUTHORIZER, &encrypts])
    else {
        return;
    };
    let Some(shell) = Shell::at(test, server.port()) else { return };
    let (port, ca) = (server.port(), certificates.authority.display());
    let at = |who: &str, more: &str| {
        format!("cassandra://{who}127.0.0.1:{port}/emmer?replication=1{more}")
    };
    let user = format!("{USER}:{USER}@");
    let cases = [
        (at(&format!("{USER}:s3cret@"), ""), Refused, "password"),
        (at("", ""), Refused, "auth"),
        (at(&user, "&tls=true"), Refused, "TLS"),
        (
            at(&user, "&tls=true").replace("127.0.0.1", "no-such-host.invalid"),
            Unavailable,
            "no-such-host",
        ),
    ];
    suite::refused::untrusted(STORE, &at(&user, &format!("&tls=true&ca_file={ca}")), &cases).await;
    // The rights that the page names for a user who may make no tables.
    let rights = "CREATE ROLE silo WITH PASSWORD = 's3cret' AND LOGIN = true; GRANT SELECT ON \
                  KEYSPACE emmer TO silo; GRANT MODIFY ON KEYSPACE emmer TO silo";
    let mut command = shell.command("cqlsh");
    command.args(["-u", USER, "-p", USER, "-e", rights]);
    tokio::task::block_in_place(|| output_of(&mut command));
    let store = STORE.patient(&at("silo:s3cret@", "")).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    must_commit(&store, "p", all(3, 8)).await;
    store.touch(&NUMBERS, "p", "r000", "At", Value::Time(Timestamp::from_millis(1))).await.unwrap();
    let error = store.ensure_tables(&[&SILO_INSTANCES]).await.unwrap_err();
    assert!(error.kind == Refused && error.detail.contains("CREATE"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_administrator_sees_the_columns_of_the_seed() {
    let Some(server) = server("an_administrator_sees") else { return };
    let Some(shell) = Shell::at("an_administrator_sees", server.port()) else { return };
    let table = SiloTable::new(STORE.patient(&server.url()).await, cluster("prod"));
    table.ensure().await.unwrap();
    let version = table.read_version().await.unwrap();
    table.commit(&version, vec![silo_with_every_column()], vec![]).await.unwrap();
    table.touch(&silo(1).address, Timestamp::from_millis(1_795_265_085_000)).await.unwrap();
    let name = format!("{}.silo_instances", server.name());
    let shown = shell.ask(&format!(
        "SELECT RowKey, Status, SuspectingSilos, IAmAliveTime, MembershipVersion, \"primary\" FROM \
         {name}"
    ));
    for wanted in [
        "127.0.0.1-11111-1",
        "Active",
        "['127.0.0.1:11111:2']",
        "2026-11-21 12:44:45",
        "VersionRow",
        "(2 rows)",
    ] {
        assert!(shown.contains(wanted), "{wanted} is not in {shown}");
    }
    let described = shell.ask(&format!("DESCRIBE TABLE {name}"));
    for column in SILO_INSTANCES.columns {
        let column = format!("{} ", column.name.to_ascii_lowercase());
        assert!(described.replace('"', "").contains(&column), "{column} is not in {described}");
    }
    // A row that was written by hand and that no silo can understand is named.
    shell.ask(&format!(
        "INSERT INTO {name} (partitionkey, rowkey, etag) VALUES ('prod', 'VersionRow', 'x') IF NOT \
         EXISTS;\
         DELETE membershipversion FROM {name} WHERE partitionkey = 'prod' AND rowkey = \
         'VersionRow' IF EXISTS"
    ));
    let error = table.read_all().await.unwrap_err();
    assert!(
        error.kind == StoreErrorKind::Corrupt && error.detail.contains("VersionRow"),
        "{error}"
    );
    // A table that was dropped is no empty table: it is missing, and made again.
    shell.ask(&format!("DROP TABLE {name}"));
    assert_eq!(table.read_all().await.unwrap_err().kind, StoreErrorKind::NotFound);
    table.ensure().await.unwrap();
    assert_eq!(table.read_version().await.unwrap().number, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_script_for_administrators_makes_what_a_silo_finds() {
    let Some(server) = server("the_script") else { return };
    let Some(shell) = Shell::at("the_script", server.port()) else { return };
    let script =
        emmer_store_cassandra::script(&server.url(), &[&SILO_INSTANCES, &NUMBERS]).unwrap();
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("tables.cql");
    std::fs::write(&file, script).unwrap();
    tokio::task::block_in_place(|| output_of(shell.command("cqlsh").arg("-f").arg(&file)));
    // Nothing is made, for it would have too many copies.
    let store = STORE.patient(&server.url().replace("replication=1", "replication=3")).await;
    must_commit(&store, "p", all(3, 1)).await;
    store.ensure_tables(&[&SILO_INSTANCES, &NUMBERS]).await.unwrap();
    assert_eq!(same_number(&store.read_partition(&NUMBERS, "p").await.unwrap(), 3), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_is_examined_and_limits_are_named() {
    let Some(server) = server("the_server_is_examined") else { return };
    let store = STORE.patient(&server.url()).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    let found = store.examine().await.unwrap();
    assert_eq!(format!("{} {}", found.server, found.version), server.version());
    let clock = found.clock.unwrap();
    assert!(clock.ahead_ms.abs() <= clock.uncertainty_ms, "{clock:?}");
    // One copy, and a disk that is written to later.
    assert!(found.warns_of_lost_writes(), "{found:?}");
    let text = |key: usize, bytes: usize| {
        Row::new(format!("{key}")).with("Text", Value::Text("x".repeat(bytes).into()))
    };
    let insert = |row| Mutation::Insert { row };
    let limits = store.limits();
    for (commit, word) in [
        (vec![insert(row("a", 1)), insert(text(1, limits.row_bytes + 1))], limits.row_bytes),
        ((0..5).map(|n| insert(text(n, limits.row_bytes))).collect(), limits.commit_bytes),
    ] {
        let error = store.commit(&NUMBERS, "p", commit).await.unwrap_err();
        assert!(
            error.kind == StoreErrorKind::Invalid && error.detail.contains(&word.to_string()),
            "{error}"
        );
    }
    assert!(store.read_partition(&NUMBERS, "p").await.unwrap().is_empty());
    // A commit as large as the store says, in few rows and in many: the server's limit of 50 KiB is
    // for batches of several partitions.
    let rows = limits.commit_bytes / limits.row_bytes;
    must_commit(&store, "q", (0..rows).map(|n| insert(text(n, limits.row_bytes))).collect()).await;
    let most = limits.commit_bytes / 100;
    must_commit(&store, "s", (0..100).map(|n| Mutation::Upsert { row: text(n, most) }).collect())
        .await;
    assert_eq!(store.read_partition(&NUMBERS, "s").await.unwrap().len(), 100);
}

/// Commits that change all rows of `p` until they are stopped.
fn writer(
    store: Arc<dyn SystemStore>,
    rows: usize,
) -> (tokio::task::JoinHandle<i64>, tokio::sync::watch::Sender<bool>) {
    let (done, is_done) = tokio::sync::watch::channel(false);
    let task = tokio::spawn(async move {
        let mut n = 1;
        while !*is_done.borrow() {
            n += 1;
            must_commit(&store, "p", all(rows, n)).await;
        }
        n
    });
    (task, done)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_pages_are_put_together() {
    const ROWS: usize = 60;
    let Some(server) = server("small_pages") else { return };
    let store = STORE.patient(&suite::with(&server.url(), "page_rows=7")).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    for partition in ["a/b", "p", "q"] {
        must_commit(&store, partition, all(ROWS, 1)).await;
    }
    assert_eq!(same_number(&store.read_partition(&NUMBERS, "p").await.unwrap(), ROWS), 1);
    assert_eq!(store.scan(&NUMBERS, "N", 1..=1, 1_000).await.unwrap().len(), 3 * ROWS);
    assert_eq!(store.scan(&NUMBERS, "N", 1..=1, 50).await.unwrap().len(), 50);
    for (from, limit) in [("a", 50), ("r030", 40), ("z", 9)] {
        assert_eq!(store.read_some(&NUMBERS, "p", from, limit).await.unwrap().len(), limit);
    }
    // While a writer of another process writes: one moment, or an error to come back.
    let (task, done) = writer(STORE.patient(&server.url()).await, ROWS);
    for _ in 0..20 {
        match store.read_partition(&NUMBERS, "p").await {
            Ok(rows) => drop(same_number(&rows, ROWS)),
            Err(error) => assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}"),
        }
    }
    done.send_replace(true);
    let n = task.await.unwrap();
    assert_eq!(same_number(&store.read_partition(&NUMBERS, "p").await.unwrap(), ROWS), n);
    for n in 0..ROWS / 2 {
        let at = Value::Time(Timestamp::from_millis(i64::try_from(n).unwrap()));
        store.touch(&NUMBERS, "p", &format!("r{n:03}"), "At", at).await.unwrap();
    }
    let deleted =
        store.delete_older_than(&NUMBERS, "p", "At", Timestamp::from_millis(20)).await.unwrap();
    assert_eq!(
        (deleted, store.read_partition(&NUMBERS, "p").await.unwrap().len()),
        (20, ROWS - 20)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_became_of_a_commit_whose_answer_is_lost_is_found_out() {
    let Some(server) = server("what_became_of_a_commit") else { return };
    let direct = STORE.patient(&server.url()).await;
    direct.ensure_tables(&[&NUMBERS]).await.unwrap();
    must_commit(&direct, "p", vec![Mutation::Insert { row: row("r", 1) }]).await;
    let proxy = Proxy::start(server.port()).await;
    let store = STORE.patient(&server.url_at(proxy.port())).await;
    let mut n = 1;
    // The first of each is for work that is done once.
    for (side, count) in [(Cut::Answer, 3), (Cut::Request, 3)] {
        for _ in 0..count {
            n += 1;
            let etag = store.read_row(&NUMBERS, "p", "r").await.unwrap().unwrap().etag;
            let stale = Mutation::Replace { row: row("r", 0), etag: "1".into() };
            assert_eq!(
                store.commit(&NUMBERS, "p", vec![stale]).await.unwrap(),
                CommitOutcome::Conflict(0)
            );
            proxy.arm(side, 0);
            let outcome = store
                .commit(&NUMBERS, "p", vec![Mutation::Replace { row: row("r", n), etag }])
                .await;
            assert!(proxy.disarm());
            assert!(matches!(outcome, Ok(CommitOutcome::Committed(_))), "{side:?}: {outcome:?}");
            assert_eq!(number_of(&direct, "r").await, n);
        }
    }
}

/// Returns true if a frame of the server's protocol is a batch.
fn is_batch(frame: &[u8]) -> bool {
    const OPCODE_AT: usize = 4;
    const BATCH: u8 = 13;
    frame.get(OPCODE_AT) == Some(&BATCH)
}

/// A node that stood still takes up a commit that the store has refused: the commit never happens.
/// It has no condition of its own that would fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_is_taken_up_too_late_does_not_happen() {
    let Some(server) = server("a_commit_that_is_taken_up_too_late") else { return };
    let direct = STORE.patient(&server.url()).await;
    direct.ensure_tables(&[&NUMBERS]).await.unwrap();
    let late = Proxy::start(server.port()).await;
    let store = STORE.patient(&server.url_at(late.port())).await;
    must_commit(&store, "p", all(2, 1)).await;
    late.keep(is_batch);
    // Its first attempt is held back, its second one happens.
    must_commit(&store, "p", all(2, 2)).await;
    must_commit(&direct, "p", all(2, 3)).await;
    late.deliver().await;
    assert_eq!(same_number(&direct.read_partition(&NUMBERS, "p").await.unwrap(), 2), 3);
}

/// An abandoned commit may happen later. If it took the next commit's place in memory, the outcome
/// of the next commit could not be found.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_is_left_behind_is_not_taken_for_the_next_one() {
    let Some(server) = server("a_commit_that_is_left_behind") else { return };
    let Some(shell) = Shell::at("a_commit_that_is_left_behind", server.port()) else { return };
    let store = STORE.patient(&server.url()).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    must_commit(&store, "p", all(1, 1)).await;
    let writers = || {
        let cql =
            format!("SELECT \"_commits\" FROM {}.numbers WHERE part = 'p' LIMIT 1", server.name());
        let shown = shell.ask(&cql);
        ["-0'", "-1'"].map(|end| shown.matches(end).count())
    };
    assert_eq!(writers(), [1, 0]);
    must_commit(&store, "p", all(1, 2)).await;
    assert_eq!(writers(), [1, 0]);
    // Its caller gives up when it has just been sent.
    tokio::select! {
        biased;
        outcome = store.commit(&NUMBERS, "p", all(1, 3)) => panic!("{outcome:?}"),
        () = std::future::ready(()) => {}
    }
    must_commit(&store, "p", all(1, 4)).await;
    assert_eq!(writers(), [1, 1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upserts_guess_whether_their_rows_are_there_and_may_guess_wrong() {
    let Some(server) = server("upserts_guess") else { return };
    let [one, other] = [STORE.patient(&server.url()).await, STORE.patient(&server.url()).await];
    one.ensure_tables(&[&NUMBERS]).await.unwrap();
    let at = |ms| Value::Time(Timestamp::from_millis(ms));
    let upsert = |n| vec![Mutation::Upsert { row: row("r", n).with("At", at(n)) }];
    let found = async || one.read_row(&NUMBERS, "p", "r").await.unwrap().unwrap().row;
    // The other store does not know the row, then knows an old version of it.
    must_commit(&one, "p", upsert(1)).await;
    must_commit(&other, "p", upsert(2)).await;
    assert_eq!(found().await, row("r", 2).with("At", at(1)));
    must_commit(&one, "p", vec![Mutation::Delete { row_key: "r".into(), etag: None }]).await;
    must_commit(&other, "p", upsert(3)).await;
    assert_eq!(found().await, row("r", 3).with("At", at(3)));
    // A conflict is the caller's, not that of a guess.
    must_commit(&one, "p", vec![Mutation::Delete { row_key: "r".into(), etag: None }]).await;
    let mut commit = upsert(4);
    commit.push(Mutation::Replace { row: row(VERSION_ROW, 1), etag: "1".into() });
    assert_eq!(other.commit(&NUMBERS, "p", commit).await.unwrap(), CommitOutcome::Conflict(1));
    assert_eq!(one.read_row(&NUMBERS, "p", "r").await.unwrap(), None);
}
