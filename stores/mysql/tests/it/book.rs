//! The command in the book lists the silos.

use std::process::Command;

use crate::common::STORE;
use emmer_test_servers::MariadbServer;
use emmer_test_servers::mariadb::{PASSWORD, USER};
use emmer_test_servers::suite::book::{lists_the_silos, output_of};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_lists_the_silos() {
    let Some(server) = MariadbServer::start_or_skip("the_client_lists_the_silos") else { return };
    let url = server.url();
    lists_the_silos(STORE, &url, include_str!("../../../../docs/stores/mariadb.md"), |command| {
        let here = format!("--no-defaults -h 127.0.0.1 -P {} -u {USER}", server.port());
        let command = command.replace("-h localhost -P 3306", &here);
        output_of(Command::new("sh").args(["-c", &command]).env("MYSQL_PWD", PASSWORD))
    })
    .await;
}
