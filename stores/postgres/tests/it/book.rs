//! The command in the book lists the silos.

use std::process::Command;

use crate::common::STORE;
use emmer_test_servers::PostgresServer;
use emmer_test_servers::suite::book::{
    lists_the_silos, output_of, shows_the_records, shows_the_reminders,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn psql_lists_the_silos() {
    let Some(server) = PostgresServer::start_or_skip("psql_lists_the_silos") else { return };
    let url = server.url_of("postgres");
    lists_the_silos(STORE, &url, include_str!("../../../../docs/stores/postgres.md"), |command| {
        let command = command.replace("postgres://localhost:5432/emmer", &format!("'{url}'"));
        output_of(Command::new("sh").args(["-c", &command]))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn psql_shows_the_reminders() {
    let Some(server) = PostgresServer::start_or_skip("psql_shows_the_reminders") else { return };
    let url = server.url_of("postgres");
    shows_the_reminders(STORE, &url, "psql", |command| {
        let command = command.replace("postgres://localhost:5432/emmer", &format!("'{url}'"));
        output_of(Command::new("sh").args(["-c", &command]))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn psql_shows_the_records() {
    let Some(server) = PostgresServer::start_or_skip("psql_shows_the_records") else { return };
    let url = server.url_of("postgres");
    shows_the_records(STORE, &url, "psql", |command| {
        let command = command.replace("postgres://localhost:5432/emmer", &format!("'{url}'"));
        output_of(Command::new("sh").args(["-c", &command]))
    })
    .await;
}
