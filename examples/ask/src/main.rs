//! Asks in the terminal, or serves the page; see `README.md`.

use std::io::Write;
use std::sync::Arc;

use clap::Parser;
use emmer::prelude::*;
use emmer_axum::Drain;
use emmer_example_ask::model::Parrot;
use emmer_example_ask::session::{Ending, Part, Session};
use emmer_example_ask::{sessions, web};

/// A model that answers word by word.
#[derive(Parser)]
struct Args {
    /// The question; without it, the page is served until Ctrl-C
    question: Option<String>,
    /// The name of the session of that question
    #[arg(long, default_value = "terminal")]
    session: String,
    /// The store of the sessions
    #[arg(long, default_value = "sqlite://ask.db")]
    store: String,
    /// The address of the page
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: String,
}

#[tokio::main]
async fn main() -> std::process::ExitCode {
    emmer::exit(run(Args::parse()).await)
}

async fn run(Args { question, session, store, listen }: Args) -> emmer::Result<()> {
    let silo = Silo::builder().store(store).cluster_id("ask");
    let silo = silo.listen("127.0.0.1:0").gateway("127.0.0.1:0");
    let silo = sessions(silo, Arc::new(Parrot { word: millis(50) })).start().await?;
    let done = match question {
        Some(question) => ask(&silo.grains().grain::<dyn Session>(session), question).await,
        None => serve(silo.grains(), &listen).await,
    };
    silo.stop().await?;
    done
}

/// Asks, and prints the words as they come. Ctrl-C stops the model.
async fn ask(
    session: &emmer_example_ask::session::SessionRef,
    question: String,
) -> emmer::Result<()> {
    let token = format!("{:?}", std::time::SystemTime::now());
    session.ask(question, token.clone()).await?;
    let (mut number, mut is_ours) = (0, false);
    loop {
        let mut parts = session.read(number);
        loop {
            let part = tokio::select! {
                part = parts.next() => part,
                _ = tokio::signal::ctrl_c() => {
                    session.stop().await?;
                    continue;
                }
            };
            let Some(part) = part else { break };
            let (this, part) = part?;
            number = this + 1;
            match part {
                Part::Question { token: this, .. } => is_ours = this == token,
                Part::Words(words) if is_ours => {
                    print!("{words} ");
                    std::io::stdout().flush()?;
                }
                Part::End(how) if is_ours => {
                    println!("{}", if how == Ending::Complete { "" } else { "(stopped)" });
                    return Ok(());
                }
                _ => {}
            }
        }
    }
}

async fn serve(grains: GrainFactory, listen: &str) -> emmer::Result<()> {
    let listener = tokio::net::TcpListener::bind(listen).await?;
    println!("ask at http://{}", listener.local_addr()?);
    let drain = Drain::new();
    let pages = drain.clone();
    let stop = async move {
        // Without a handler Ctrl-C ends the process as it is, which is no worse.
        let _ = tokio::signal::ctrl_c().await;
        pages.begin();
    };
    axum::serve(listener, web::routes(grains, drain)).with_graceful_shutdown(stop).await?;
    Ok(())
}
