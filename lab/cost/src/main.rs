//! What a system store costs over its server's driver by hand, on this machine, in one run:
//! `cargo run --release -p emmer-cost --features redis -- redis`. Each module says what by
//! hand means there, and which server it starts; some take more words behind the name.

#[cfg(feature = "azure")]
mod azure;
#[cfg(feature = "cassandra")]
mod cassandra;
#[cfg(feature = "consul")]
mod consul;
#[cfg(feature = "cosmos")]
mod cosmos;
#[cfg(feature = "dynamodb")]
mod dynamodb;
#[cfg(feature = "etcd")]
mod etcd;
mod measure;
#[cfg(feature = "mongodb")]
mod mongodb;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "zookeeper")]
mod zookeeper;

use std::process::ExitCode;

use measure::Outcome;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some((store, words)) = words.split_first() else {
        eprintln!("emmer-cost: which store? {}", known());
        return ExitCode::from(2);
    };
    match run(store, words).await {
        None => {
            eprintln!("emmer-cost: there is no store {store:?} here. {}", known());
            ExitCode::from(2)
        }
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(error)) => {
            eprintln!("emmer-cost: {store}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Measures a store; nothing where there is none of that name.
async fn run(store: &str, words: &[String]) -> Option<Outcome<()>> {
    Some(match store {
        #[cfg(feature = "azure")]
        "azure" => Box::pin(azure::run(words)).await,
        #[cfg(feature = "cassandra")]
        "cassandra" => Box::pin(cassandra::run(words)).await,
        #[cfg(feature = "consul")]
        "consul" => Box::pin(consul::run(words)).await,
        #[cfg(feature = "cosmos")]
        "cosmos" => Box::pin(cosmos::run(words)).await,
        #[cfg(feature = "dynamodb")]
        "dynamodb" => Box::pin(dynamodb::run(words)).await,
        #[cfg(feature = "etcd")]
        "etcd" => Box::pin(etcd::run(words)).await,
        #[cfg(feature = "mongodb")]
        "mongodb" => Box::pin(mongodb::run(words)).await,
        #[cfg(feature = "mysql")]
        "mysql" => Box::pin(mysql::run(words)).await,
        #[cfg(feature = "postgres")]
        "postgres" => Box::pin(postgres::run(words)).await,
        #[cfg(feature = "redis")]
        "redis" => Box::pin(redis::run(words)).await,
        #[cfg(feature = "sqlite")]
        "sqlite" => Box::pin(sqlite::run(words)).await,
        #[cfg(feature = "zookeeper")]
        "zookeeper" => Box::pin(zookeeper::run(words)).await,
        _ => return None,
    })
}

fn known() -> String {
    let compiled: Vec<&str> = [
        cfg!(feature = "azure").then_some("azure"),
        cfg!(feature = "cassandra").then_some("cassandra"),
        cfg!(feature = "consul").then_some("consul"),
        cfg!(feature = "cosmos").then_some("cosmos"),
        cfg!(feature = "dynamodb").then_some("dynamodb"),
        cfg!(feature = "etcd").then_some("etcd"),
        cfg!(feature = "mongodb").then_some("mongodb"),
        cfg!(feature = "mysql").then_some("mysql"),
        cfg!(feature = "postgres").then_some("postgres"),
        cfg!(feature = "redis").then_some("redis"),
        cfg!(feature = "sqlite").then_some("sqlite"),
        cfg!(feature = "zookeeper").then_some("zookeeper"),
    ]
    .into_iter()
    .flatten()
    .collect();
    format!("Compiled in: {}; --features has the rest", compiled.join(", "))
}
