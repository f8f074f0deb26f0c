//! The chat as processes; see `README.md`.

use clap::{Parser, Subcommand};
use emmer::config::SiloFlags;
use emmer::prelude::*;
use emmer_axum::Drain;
use emmer_example_chat::web::{Web, routes};
use emmer_example_chat::{CLUSTER, chat, doors, kills};

/// A chat whose processes may be killed.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// A silo of the chat; run several for a cluster
    Silo(#[command(flatten)] Box<SiloFlags>),
    /// A web server in front of the silos; run any number of them
    Web {
        /// The store of the silos
        #[arg(long, default_value = "sqlite://chat.db")]
        store: String,
        /// Where it listens
        #[arg(long, default_value = "127.0.0.1:8080")]
        listen: String,
    },
    /// Kills silos and web servers under people at work, and compares what each has read
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
        chat(silo).on_start(|client| async move {
            if let Some(silo) = client.silo() {
                println!("the silo serves at {}", silo.endpoint());
            }
            Ok(())
        })
    };
    emmer::run(&settings, describe).await
}

async fn serve(store: &str, listen: &str) -> emmer::Result<()> {
    let client = Client::connect(store, CLUSTER).await?;
    let listener = tokio::net::TcpListener::bind(listen).await?;
    let origin = format!("http://{}", listener.local_addr()?);
    println!("the chat is open at {origin}");
    let open = tokio::spawn(doors::stay_open(client.clone(), origin));
    let drain = Drain::new();
    let pages = drain.clone();
    let stop = async move {
        // Without a handler Ctrl-C ends the process as it is, which is no worse.
        let _ = tokio::signal::ctrl_c().await;
        pages.begin();
    };
    let routes = routes(Web { client: client.clone(), drain });
    axum::serve(listener, routes).with_graceful_shutdown(stop).await?;
    open.abort();
    client.close().await;
    Ok(())
}
