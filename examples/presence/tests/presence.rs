//! The promises of presence, in virtual time.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::{Arc, Mutex};

use emmer::prelude::*;
use emmer::test::World;
use emmer_example_presence::game::{Game, Status};
use emmer_example_presence::player::Player;
use emmer_example_presence::presence;
use emmer_example_presence::servers::Servers;
use emmer_example_presence::view::{View, news};
use futures_util::StreamExt;

/// A view that is kept up to date.
fn view(client: &Client) -> Arc<Mutex<View>> {
    let view = Arc::<Mutex<View>>::default();
    let (mut news, shown) = (news(client), Arc::clone(&view));
    tokio::spawn(async move {
        while let Some(news) = news.next().await {
            shown.lock().unwrap().take(news.unwrap());
        }
    });
    view
}

#[emmer::test(seeds = 4)]
async fn a_game_that_falls_silent_is_over(world: World) {
    let cluster = world.cluster(2, presence).await;
    let client = cluster.client().await;
    let (game, ann) = (client.grain::<dyn Game>(7), client.grain::<dyn Player>(1));
    let view = view(&cluster.client().await);
    let status = |players: &[u64]| Status { players: players.to_vec(), score: 3 };
    game.beat(status(&[1, 2])).await.unwrap();
    world.advance(secs(1)).await;
    assert_eq!(ann.game().await.unwrap(), Some(7));
    assert_eq!(view.lock().unwrap().games[&7], status(&[1, 2]).standing());
    // Ann has left, and is in no other game.
    game.beat(status(&[2])).await.unwrap();
    assert_eq!(ann.game().await.unwrap(), None);
    world.advance(secs(16)).await;
    assert_eq!(game.status().await.unwrap(), None);
    assert_eq!(client.grain::<dyn Player>(2).game().await.unwrap(), None);
    assert!(view.lock().unwrap().games.is_empty());
}

/// Nothing is stored: what a silo takes with it, the heartbeats bring back.
#[emmer::test(seeds = 8)]
async fn the_view_is_right_after_silos_die(world: World) {
    let mut cluster = world.cluster(3, presence).await;
    let view = view(&cluster.client().await);
    let mut servers = Servers::new(cluster.client().await, 200, world.seed());
    for n in 0..3 {
        servers.run(secs(3), true).await;
        cluster.kill(n);
        servers.run(secs(3), true).await;
        cluster.restart(n).await;
    }
    // The last heartbeats say it once more.
    servers.run(secs(20), false).await;
    let games = servers.games().iter().enumerate();
    let truth = View { games: games.map(|(n, game)| (n as u64, game.standing())).collect() };
    assert_eq!(*view.lock().unwrap(), truth);
    // All servers stop.
    world.advance(secs(20)).await;
    assert_eq!(*view.lock().unwrap(), View::default());
}
