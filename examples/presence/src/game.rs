//! A game, as its server tells of it.

use std::time::Duration;

use emmer::prelude::*;
use emmer::reminders::Timer;
use emmer::tables::Timestamp;
use serde::{Deserialize, Serialize};

use crate::board::{Standing, board};
use crate::player::Player;

/// A game whose last heartbeat is older than this is over.
const QUIET: Duration = Duration::from_secs(10);
/// The period at which a game looks whether it is over, and says again how it stands: what was lost
/// with a silo comes back.
const LOOKS: Duration = Duration::from_secs(5);

/// State of a game in a heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The numbers of its players.
    pub players: Vec<u64>,
    /// The points of all of them.
    pub score: u64,
}

impl Status {
    /// The status in short.
    pub fn standing(&self) -> Standing {
        let players = u32::try_from(self.players.len()).unwrap_or(u32::MAX);
        Standing { players, score: self.score }
    }
}

/// A game, by its number.
#[grain_interface(key = u64)]
pub trait Game {
    /// A heartbeat of the game's server. It waits for no answer: the next one says it again.
    async fn beat(&mut self, status: Status);
    /// How the game stands; None if no heartbeat came for ten seconds.
    async fn status(&self) -> Option<Status>;
}

/// The class of games.
#[derive(Grain)]
pub struct GameGrain {
    #[context]
    ctx: Ctx,
    status: Option<Status>,
    beat: Timestamp,
    looks: Option<Timer>,
}

#[grain]
impl Game for GameGrain {
    async fn beat(&mut self, status: Status) {
        self.beat = self.ctx.now();
        if self.looks.is_none() {
            self.looks = Some(self.ctx.timer(LOOKS).every(LOOKS).run(Self::look));
        }
        if self.status.as_ref() == Some(&status) {
            return;
        }
        let before = self.status.replace(status);
        let players = self.players();
        let had = before.map(|before| before.players).unwrap_or_default();
        for player in players.iter().filter(|player| !had.contains(player)) {
            self.plays(*player);
        }
        self.tell_board();
    }

    async fn status(&self) -> Option<Status> {
        self.status.clone()
    }
}

impl GameGrain {
    async fn look(&mut self) {
        let is_over = self.beat + QUIET <= self.ctx.now();
        if is_over {
            self.status = None;
            self.ctx.deactivate_on_idle();
        }
        self.tell_board();
    }

    fn players(&self) -> Vec<u64> {
        self.status.as_ref().map(|status| status.players.clone()).unwrap_or_default()
    }

    fn plays(&self, player: u64) {
        let player = self.ctx.grains().grain::<dyn Player>(player);
        // One that is lost is asked for by the player: see `Player::game`.
        let _ = player.plays(self.key()).send();
    }

    fn tell_board(&self) {
        let standing = self.status.as_ref().map(Status::standing);
        let _ = board(self.ctx.grains(), self.key()).stands(self.key(), standing).send();
    }

    fn key(&self) -> u64 {
        self.ctx.me::<dyn Game>().key()
    }
}
