//! Game servers that play by dice: what they say is the truth that the view is compared with.

use std::time::Duration;

use emmer::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::MissedTickBehavior;

use crate::game::{Game, Status};

/// The players of a game when it begins.
const PLAYERS: u64 = 4;
/// Heartbeats go out in this many portions each second.
const PORTIONS: usize = 100;

/// The servers of some games. Each game sends a heartbeat every second.
#[derive(Debug)]
pub struct Servers {
    client: Client,
    games: Vec<Status>,
    rng: StdRng,
    /// The game whose heartbeat is next.
    next: usize,
    /// The number of heartbeats that were sent.
    pub sent: u64,
}

impl Servers {
    /// Games 0 to `games`, with four players each.
    pub fn new(client: Client, games: u64, seed: u64) -> Self {
        let players = |game: u64| (game * PLAYERS..(game + 1) * PLAYERS).collect();
        let games = (0..games).map(|game| Status { players: players(game), score: 0 });
        let rng = StdRng::seed_from_u64(seed);
        Self { client, games: games.collect(), rng, next: 0, sent: 0 }
    }

    /// By number: how each game stands.
    pub fn games(&self) -> &[Status] {
        &self.games
    }

    /// Sends heartbeats. With `is_played` there are points, and players change their game.
    pub async fn run(&mut self, how_long: Duration, is_played: bool) {
        let portion = self.games.len().div_ceil(PORTIONS);
        let mut pace = tokio::time::interval(Duration::from_secs(1) / PORTIONS as u32);
        // A machine that is too slow sends fewer.
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let end = tokio::time::Instant::now() + how_long;
        while pace.tick().await < end {
            for _ in 0..portion {
                self.beat(is_played);
            }
        }
    }

    fn beat(&mut self, is_played: bool) {
        let game = self.next;
        self.next = (game + 1) % self.games.len();
        if is_played {
            self.games[game].score += self.rng.random_range(0..10);
            if self.rng.random_ratio(1, 20) {
                let to = self.rng.random_range(0..self.games.len());
                let player = self.games[game].players.pop();
                self.games[to].players.extend(player);
            }
        }
        // The next heartbeat makes up for one that cannot be sent.
        let status = self.games[game].clone();
        self.sent +=
            u64::from(self.client.grain::<dyn Game>(game as u64).beat(status).send().is_ok());
    }
}
