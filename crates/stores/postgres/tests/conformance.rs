//! The store passes the conformance suite against a real server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use common::PATIENT;
use emmer_store::conformance;
use emmer_store::{BoxFuture, Result, SystemStore};
use emmer_store_postgres::PostgresStore;
use emmer_test_servers::PostgresServer;

async fn conforms(url: String) {
    let open = || -> BoxFuture<'static, Result<Arc<dyn SystemStore>>> {
        let url = url.clone();
        Box::pin(async move { Ok(Arc::new(PostgresStore::open(&url).await?) as Arc<dyn SystemStore>) })
    };
    let report = conformance::run(&open, &mut |line| println!("{line}")).await;
    assert!(report.is_success(), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_postgres_store_conforms() {
    let Some(server) = PostgresServer::start_or_skip("the_postgres_store_conforms") else { return };
    println!("{}", server.psql(&["-Atc", "SELECT version()"]).unwrap());
    conforms(format!("{}?{PATIENT}", server.url("postgres"))).await;
}

/// A database as an administrator may have set it up: another locale, serializable and read-only by default, commits
/// that do not wait for the disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_conforms_whatever_the_database_defaults_to() {
    let Some(server) = PostgresServer::start_or_skip("it_conforms_whatever_the_database_defaults_to") else {
        return;
    };
    for sql in [
        "CREATE DATABASE odd TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'de-u-ks-level2' LOCALE 'C.UTF-8'",
        "ALTER DATABASE odd SET default_transaction_isolation = 'serializable'",
        "ALTER DATABASE odd SET default_transaction_read_only = on",
        "ALTER DATABASE odd SET synchronous_commit = off",
        "ALTER DATABASE odd SET timezone = 'Asia/Kathmandu'",
        "ALTER DATABASE odd SET bytea_output = 'escape'",
    ] {
        server.psql(&["-c", sql]).unwrap();
    }
    conforms(format!("{}?pool_max=1&{PATIENT}", server.url("odd"))).await;
}
