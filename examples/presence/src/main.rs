//! Ten thousand games in one program: three silos, the games' servers, and the view; see
//! `README.md`.

use std::time::Duration;

use clap::Parser;
use emmer::prelude::*;
use emmer_axum::Drain;
use emmer_example_presence::servers::Servers;
use emmer_example_presence::view::{self, View};
use emmer_example_presence::{presence, web};
use futures_util::StreamExt;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

const SILOS: usize = 3;
const CLUSTER: &str = "presence";
/// The view shows the truth within this time after the last change, or something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);

/// Games that send heartbeats, and a live view of all of them.
#[derive(Parser)]
struct Args {
    /// The time for which they are played, in seconds; without it until Ctrl-C
    seconds: Option<u64>,
    /// The number of games
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    games: u64,
    /// The address of the view in the browser
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: String,
}

#[tokio::main]
async fn main() -> std::process::ExitCode {
    emmer::exit(run(Args::parse()).await)
}

async fn run(Args { seconds, games, listen }: Args) -> emmer::Result<()> {
    let dir = tempfile::tempdir()?;
    let store = format!("sqlite://{}?mode=rwc", dir.path().join("presence.db").display());
    let mut silos = Vec::new();
    for _ in 0..SILOS {
        let silo = Silo::builder().store(store.clone()).cluster_id(CLUSTER);
        let silo = silo.listen("127.0.0.1:0").gateway("127.0.0.1:0");
        silos.push(presence(silo).start().await?);
    }
    let (players, viewer) = tokio::try_join!(
        Client::connect(store.as_str(), CLUSTER),
        Client::connect(store.as_str(), CLUSTER)
    )?;

    let listener = tokio::net::TcpListener::bind(listen).await?;
    println!("{SILOS} silos; {games} games at http://{}", listener.local_addr()?);
    let drain = Drain::new();
    let pages = axum::serve(listener, web::routes(viewer.clone(), drain.clone()));
    let pages = tokio::spawn(pages.into_future());
    let (shows, shown) = watch::channel((View::default(), 0_u64));
    let follows = tokio::spawn(async move {
        let mut news = view::news(&viewer);
        while let Some(Ok(news)) = news.next().await {
            shows.send_modify(|(view, changes)| {
                *changes += news.games.len() as u64;
                view.take(news);
            });
        }
    });

    let mut servers = Servers::new(players, games, 1);
    let begun = Instant::now();
    let is_over = |begun: Instant| seconds.is_some_and(|all| begun.elapsed().as_secs() >= all);
    let (mut sent, mut changes) = (0, 0);
    while !is_over(begun) {
        tokio::select! {
            () = servers.run(Duration::from_secs(1), true) => {}
            _ = tokio::signal::ctrl_c() => break,
        }
        let shown = shown.borrow();
        println!(
            "{:>6} games, {:>6} players, {:>6} heartbeats, {:>6} changes seen",
            shown.0.games.len(),
            shown.0.players(),
            servers.sent - sent,
            shown.1 - changes
        );
        (sent, changes) = (servers.sent, shown.1);
    }
    let compared = compare(&mut servers, shown).await;
    drain.begin();
    pages.abort();
    follows.abort();
    for silo in silos {
        silo.stop().await?;
    }
    compared
}

/// Waits until the view shows what the servers know.
async fn compare(
    servers: &mut Servers,
    mut shown: watch::Receiver<(View, u64)>,
) -> emmer::Result<()> {
    let games = servers.games().iter().enumerate();
    let truth =
        View { games: games.map(|(game, status)| (game as u64, status.standing())).collect() };
    let same = shown.wait_for(|(view, _)| *view == truth);
    let beats = async { servers.run(PATIENCE, false).await };
    tokio::select! {
        same = timeout(PATIENCE, same) => match same {
            Ok(Ok(_)) => {
                println!("the view shows each of the {} games as its server does", truth.games.len());
                Ok(())
            }
            _ => Err(emmer::Error::new("the view is not what the games' servers know")),
        },
        () = beats => Err(emmer::Error::new("the view is not what the games' servers know")),
    }
}
