//! The store passes what every store passes, on a real server.

use crate::common::STORE;
use emmer_test_servers::{PostgresServer, store_suite, suite};

store_suite!(PostgresServer::start_or_skip, STORE);

/// A database as an administrator may have set it up: another locale, serializable and read-only by
/// default, commits that do not wait for the disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_conforms_whatever_the_database_defaults_to() {
    let Some(server) =
        PostgresServer::start_or_skip("it_conforms_whatever_the_database_defaults_to")
    else {
        return;
    };
    for sql in [
        "CREATE DATABASE odd TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'de-u-ks-level2' \
         LOCALE 'C.UTF-8'",
        "ALTER DATABASE odd SET default_transaction_isolation = 'serializable'",
        "ALTER DATABASE odd SET default_transaction_read_only = on",
        "ALTER DATABASE odd SET synchronous_commit = off",
        "ALTER DATABASE odd SET timezone = 'Asia/Kathmandu'",
        "ALTER DATABASE odd SET bytea_output = 'escape'",
    ] {
        server.psql(&["-c", sql]).unwrap();
    }
    suite::conforms(&format!("{}?pool_max=1", server.url_of("odd")), STORE).await;
}
