//! Credentials that change while a store is in use, on real servers: no request fails.

#![cfg(any(
    feature = "consul",
    feature = "etcd",
    feature = "mysql",
    feature = "postgres",
    feature = "redis"
))]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::sync::Arc;

use emmer_store::{CommitOutcome, Mutation, StoreErrorKind, SystemStore};
use emmer_test_servers::suite::rows::{NUMBERS, number_of, row};

/// A file of a secret. Dropped, it is removed.
struct Secret(PathBuf);

impl Secret {
    fn new(name: &str, text: &str) -> Self {
        let name = format!("emmer-rotation-{name}-{}", std::process::id());
        let secret = Self(std::env::temp_dir().join(name));
        secret.write(text);
        secret
    }

    fn write(&self, text: &str) {
        std::fs::write(&self.0, text).unwrap();
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        // One that is gone already is as good.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A store is used while its secret changes from the first to the second and on to the third.
/// `change` makes the server take the second of two secrets alone, and ends what the first one had
/// allowed.
async fn rotates(
    name: &str,
    [one, two, three]: [&str; 3],
    url: impl Fn(&str) -> String,
    change: impl Fn(&str, &str),
) {
    let secret = Secret::new(name, one);
    // A busy machine takes long to check a password.
    let url = url(secret.0.to_str().unwrap()) + "&timeout_ms=30000";
    let store = emmer_stores::open(&url).await.unwrap();
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    write_and_read(&store, 0).await;
    // The server first.
    tokio::task::block_in_place(|| change(one, two));
    secret.write(two);
    write_and_read(&store, 10).await;
    // The file first, with the accepted secret on its second line.
    secret.write(&format!("{three}\n{two}\n"));
    write_and_read(&store, 20).await;
    let again = emmer_stores::open(&url).await.unwrap();
    write_and_read(&again, 30).await;
    tokio::task::block_in_place(|| change(two, three));
    write_and_read(&store, 40).await;
    write_and_read(&again, 50).await;
    secret.write(one);
    let error = match emmer_stores::open(&url).await {
        Err(error) => error,
        Ok(store) => store.read_row(&NUMBERS, "p", "r").await.unwrap_err(),
    };
    assert_eq!(error.kind, StoreErrorKind::Refused, "{error}");
    assert!(!error.to_string().contains(one) || one.len() < 8, "{error}");
}

/// Writes, and reads at the same time, so that several connections are needed.
async fn write_and_read(store: &Arc<dyn SystemStore>, from: i64) {
    for number in from + 1..=from + 3 {
        // A connection that the server ended may have taken the commit with it.
        loop {
            let upsert = Mutation::Upsert { row: row("r", number) };
            match store.commit(&NUMBERS, "p", vec![upsert]).await.unwrap() {
                CommitOutcome::Committed(_) => break,
                CommitOutcome::Unknown(_) => {}
                CommitOutcome::Conflict(_) => panic!("an upsert has no condition"),
            }
        }
        let reads = (0..4).map(|_| {
            let store = store.clone();
            tokio::spawn(async move { number_of(&store, "r").await })
        });
        for read in reads.collect::<Vec<_>>() {
            assert_eq!(read.await.unwrap(), number);
        }
    }
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_takes_a_new_password() {
    let server = emmer_test_servers::PostgresServer::start_or_skip("postgres_takes");
    let Some(server) = server else { return };
    let psql = |sql: &str| server.psql(&["-Atc", sql]).unwrap();
    // The server trusts every user of this machine but this one.
    let rules = server.data().join("pg_hba.conf");
    let others = std::fs::read_to_string(&rules).unwrap();
    let first = "host all app 127.0.0.1/32 scram-sha-256\n";
    std::fs::write(&rules, first.to_owned() + &others).unwrap();
    psql("SELECT pg_reload_conf()");
    psql("CREATE ROLE app LOGIN PASSWORD 'one'");
    psql("CREATE DATABASE app OWNER app");
    let port = server.port();
    let url = |file: &str| format!("postgres://app@127.0.0.1:{port}/app?password_file={file}");
    rotates("postgres", ["one", "two", "three"], url, |_, to| {
        psql(&format!("ALTER ROLE app PASSWORD '{to}'"));
        psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'");
    })
    .await;
}

#[cfg(feature = "mysql")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_takes_a_new_password() {
    let server = emmer_test_servers::MariadbServer::start_or_skip("mariadb_takes");
    let Some(server) = server else { return };
    server.sql("CREATE USER app IDENTIFIED BY 'one'; GRANT ALL ON emmer.* TO app").unwrap();
    let port = server.port();
    let url = |file: &str| format!("mariadb://app@127.0.0.1:{port}/emmer?password_file={file}");
    rotates("mariadb", ["one", "two", "three"], url, |_, to| {
        server.sql(&format!("ALTER USER app IDENTIFIED BY '{to}'; KILL USER app")).unwrap();
    })
    .await;
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_takes_a_new_password() {
    let server = emmer_test_servers::RedisServer::start_or_skip("redis_takes");
    let Some(server) = server else { return };
    server.cli(&["ACL", "SETUSER", "app", "on", ">one", "~*", "&*", "+@all"]).unwrap();
    let port = server.port();
    let url = |file: &str| format!("redis://app@127.0.0.1:{port}/0?password_file={file}");
    rotates("redis", ["one", "two", "three"], url, |from, to| {
        let (from, to) = (format!("<{from}"), format!(">{to}"));
        server.cli(&["ACL", "SETUSER", "app", &from, &to]).unwrap();
        server.cli(&["CLIENT", "KILL", "USER", "app"]).unwrap();
    })
    .await;
}

#[cfg(feature = "etcd")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_takes_a_new_password() {
    let server = emmer_test_servers::EtcdServer::start_or_skip("etcd_takes");
    let Some(server) = server else { return };
    for line in [
        &["user", "add", "root:only/for:tests"][..],
        &["user", "grant-role", "root", "root"],
        &["user", "add", "app:one"],
        &["role", "add", "app"],
        &["role", "grant-permission", "app", "--prefix=true", "readwrite", "emmer/"],
        &["user", "grant-role", "app", "app"],
        &["auth", "enable"],
    ] {
        server.ctl(line).unwrap();
    }
    let port = server.port();
    let url = |file: &str| format!("etcd://app@127.0.0.1:{port}?password_file={file}");
    rotates("etcd", ["one", "two", "three"], url, |_, to| {
        let root = "--user=root:only/for:tests";
        // The command that changes a password asks for it at a terminal: the user is made again.
        server.ctl(&[root, "user", "delete", "app"]).unwrap();
        server.ctl(&[root, "user", "add", &format!("app:{to}")]).unwrap();
        server.ctl(&[root, "user", "grant-role", "app", "app"]).unwrap();
    })
    .await;
}

#[cfg(feature = "consul")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consul_takes_a_new_token() {
    let server = match emmer_test_servers::ConsulServer::start_with_tokens() {
        Ok(server) => server,
        Err(trouble) => return emmer_test_servers::skip("consul_takes", &trouble),
    };
    let rules = r#"-rules=key_prefix "emmer/" { policy = "write" }"#;
    server.cli(&["acl", "policy", "create", "-name=silo", rules]).unwrap();
    let tokens = [(); 3].map(|()| {
        let made = server.cli(&["acl", "token", "create", "-policy-name=silo"]).unwrap();
        let field = |name: &str| {
            made.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned()
        };
        (field("SecretID:"), field("AccessorID:"))
    });
    let port = server.port();
    let url = |file: &str| format!("consul://127.0.0.1:{port}?token_file={file}");
    let secrets = [0, 1, 2].map(|n: usize| tokens[n].0.as_str());
    rotates("consul", secrets, url, |from, _| {
        let (_, accessor) = tokens.iter().find(|(secret, _)| secret == from).unwrap();
        server.cli(&["acl", "token", "delete", &format!("-id={accessor}")]).unwrap();
    })
    .await;
}
