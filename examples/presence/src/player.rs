//! A player, and the game that is played.

use emmer::prelude::*;

use crate::game::Game;

/// A player, by number.
#[grain_interface(key = u64)]
pub trait Player {
    /// The player has come into this game.
    async fn plays(&mut self, game: u64);
    /// The game that the player is in.
    async fn game(&mut self) -> emmer::Result<Option<u64>>;
}

/// The class of players.
#[derive(Grain)]
pub struct PlayerGrain {
    #[context]
    ctx: Ctx,
    game: Option<u64>,
}

#[grain]
impl Player for PlayerGrain {
    async fn plays(&mut self, game: u64) {
        self.game = Some(game);
    }

    async fn game(&mut self) -> emmer::Result<Option<u64>> {
        let Some(game) = self.game else { return Ok(None) };
        // The game knows best: a player leaves without a word.
        let status = self.ctx.grains().grain::<dyn Game>(game).status().await?;
        let me = self.ctx.me::<dyn Player>().key();
        if !status.is_some_and(|status| status.players.contains(&me)) {
            self.game = None;
        }
        Ok(self.game)
    }
}
