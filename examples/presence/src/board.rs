//! Boards: how many games stand, and what has changed since half a second ago.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use emmer::prelude::*;
use emmer::reminders::Timer;
use emmer::tables::Timestamp;
use serde::{Deserialize, Serialize};

/// The number of boards. Each has its share of the games, so that no single grain hears all.
pub const BOARDS: u64 = 16;
/// The period at which a board tells what has changed.
const TELLS: Duration = Duration::from_millis(500);
/// A game that was not heard of for this long is over. Games tell every five seconds.
const HEARD: Duration = Duration::from_secs(15);

/// A game's status in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// The number of players.
    pub players: u32,
    /// Their points.
    pub score: u64,
}

/// A game, and how it stands; None: it is over.
pub type Change = (u64, Option<Standing>);

/// Events of a board.
#[observer]
pub trait BoardEvents {
    /// These games have changed.
    fn changed(&self, games: Vec<Change>);
}

/// A board, by its number below [`BOARDS`].
#[grain_interface(key = u64)]
pub trait Board {
    /// A game stands like this; None: it is over.
    async fn stands(&mut self, game: u64, standing: Option<Standing>);
    /// Watches the board.
    async fn join(&mut self, who: ObserverRef<dyn BoardEvents>) -> emmer::Result<()>;
    /// All games of the board.
    async fn read(&self) -> Vec<(u64, Standing)>;
}

/// The board of a game.
pub fn board(grains: &GrainFactory, game: u64) -> BoardRef {
    grains.grain::<dyn Board>(game % BOARDS)
}

/// The class of boards.
#[derive(Grain)]
pub struct BoardGrain {
    #[context]
    ctx: Ctx,
    watchers: Observers<dyn BoardEvents>,
    /// By game: how it stands, and when it was heard.
    games: BTreeMap<u64, (Standing, Timestamp)>,
    changed: BTreeSet<u64>,
    tells: Option<Timer>,
}

#[grain]
impl Board for BoardGrain {
    async fn stands(&mut self, game: u64, standing: Option<Standing>) {
        if self.tells.is_none() {
            self.tells = Some(self.ctx.timer(TELLS).every(TELLS).run(Self::tell));
        }
        let now = self.ctx.now();
        let before = match standing {
            Some(standing) => self.games.insert(game, (standing, now)),
            None => self.games.remove(&game),
        };
        if before.map(|(standing, _)| standing) != standing {
            self.changed.insert(game);
        }
    }

    async fn join(&mut self, who: ObserverRef<dyn BoardEvents>) -> emmer::Result<()> {
        Ok(self.watchers.add(who)?)
    }

    async fn read(&self) -> Vec<(u64, Standing)> {
        self.games.iter().map(|(game, (standing, _))| (*game, *standing)).collect()
    }
}

impl BoardGrain {
    async fn tell(&mut self) {
        let now = self.ctx.now();
        let lost = self.games.extract_if(.., |_, (_, heard)| *heard + HEARD <= now);
        self.changed.extend(lost.map(|(game, _)| game));
        if self.changed.is_empty() {
            return;
        }
        let changed = std::mem::take(&mut self.changed).into_iter();
        let standing = |game| (game, self.games.get(&game).map(|(standing, _)| *standing));
        let changes = changed.map(standing).collect();
        self.watchers.tell(|to| to.changed(changes));
    }
}
