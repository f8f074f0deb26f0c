//! The book's commands are run as they stand there.

use std::process::Command;

use emmer_test_servers::suite::book::{output_of, shows_the_records, shows_the_reminders};

use crate::conformance::STORE;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite3_shows_the_reminders() {
    if Command::new("sqlite3").arg("--version").output().is_err() {
        println!("SKIPPED sqlite3_shows_the_reminders: there is no program sqlite3");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cluster.db");
    let url = format!("sqlite://{}", file.display());
    shows_the_reminders(STORE, &url, "sqlite3", |command| {
        let command = command.replace("cluster.db", &file.display().to_string());
        output_of(Command::new("sh").args(["-c", &command]))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite3_shows_the_records() {
    if Command::new("sqlite3").arg("--version").output().is_err() {
        println!("SKIPPED sqlite3_shows_the_records: there is no program sqlite3");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cluster.db");
    let url = format!("sqlite://{}", file.display());
    shows_the_records(STORE, &url, "sqlite3", |command| {
        let command = command.replace("cluster.db", &file.display().to_string());
        output_of(Command::new("sh").args(["-c", &command]))
    })
    .await;
}
