//! The command in the book lists the silos.

use std::process::Command;

use emmer_store_redis::RedisStore;
use emmer_test_servers::RedisServer;
use emmer_test_servers::redis::PASSWORD;
use emmer_test_servers::store;
use emmer_test_servers::suite::Store;
use emmer_test_servers::suite::book::{
    lists_the_silos, output_of, shows_the_records, shows_the_reminders,
};

const STORE: Store = store!(RedisStore);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_servers_own_tool_lists_the_silos() {
    let Some(server) = RedisServer::start_or_skip("the_servers_own_tool") else { return };
    lists_the_silos(
        STORE,
        &server.url(),
        include_str!("../../../../docs/stores/redis.md"),
        |command| {
            let command = command
                .replace("-h localhost -p 6379", &format!("-h 127.0.0.1 -p {}", server.port()));
            output_of(Command::new("sh").args(["-c", &command]).env("REDISCLI_AUTH", PASSWORD))
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_servers_own_tool_shows_the_reminders() {
    let Some(server) = RedisServer::start_or_skip("the_servers_own_tool") else { return };
    shows_the_reminders(STORE, &server.url(), "redis-cli", |command| {
        let command =
            command.replace("-h localhost -p 6379", &format!("-h 127.0.0.1 -p {}", server.port()));
        output_of(Command::new("sh").args(["-c", &command]).env("REDISCLI_AUTH", PASSWORD))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_servers_own_tool_shows_the_records() {
    let Some(server) = RedisServer::start_or_skip("the_servers_own_tool") else { return };
    shows_the_records(STORE, &server.url(), "redis-cli", |command| {
        let command =
            command.replace("-h localhost -p 6379", &format!("-h 127.0.0.1 -p {}", server.port()));
        output_of(Command::new("sh").args(["-c", &command]).env("REDISCLI_AUTH", PASSWORD))
    })
    .await;
}
