//! The bank as processes; see `README.md`.

use clap::{Parser, Subcommand};
use emmer::config::SiloFlags;
use emmer::prelude::*;
use emmer_example_axum_bank::{bank, kills, web};

/// A bank whose silos may be killed.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// A silo of the bank; run several for a cluster
    Silo(#[command(flatten)] Box<SiloFlags>),
    /// A web server in front of the silos; run any number of them
    Web {
        /// The store of the silos
        #[arg(long, default_value = "sqlite://bank.db")]
        store: String,
        /// Where it listens
        #[arg(long, default_value = "127.0.0.1:8080")]
        listen: String,
    },
    /// Kills silos under a bank at work, and counts the money afterwards
    Kills(kills::Args),
}

#[tokio::main]
async fn main() -> std::process::ExitCode {
    let result = match Args::parse().command {
        Command::Silo(flags) => silo(*flags).await,
        Command::Web { store, listen } => serve(&store, &listen).await,
        Command::Kills(args) => kills::run(args).await,
    };
    emmer::exit(result)
}

async fn silo(flags: SiloFlags) -> emmer::Result<()> {
    let settings = flags.settings(Vec::new())?;
    let describe = |silo| {
        bank(silo).on_start(|client| async move {
            if let Some(silo) = client.silo() {
                println!("the silo serves at {}", silo.endpoint());
            }
            Ok(())
        })
    };
    emmer::run(&settings, describe).await
}

async fn serve(store: &str, listen: &str) -> emmer::Result<()> {
    let client = Client::connect(store, "bank").await?;
    let listener = tokio::net::TcpListener::bind(listen).await?;
    println!("the bank is open at http://{}", listener.local_addr()?);
    let stop = async {
        // Without a handler Ctrl-C ends the process as it is, which is no worse.
        let _ = tokio::signal::ctrl_c().await;
    };
    axum::serve(listener, web::routes(client.clone())).with_graceful_shutdown(stop).await?;
    client.close().await;
    Ok(())
}
