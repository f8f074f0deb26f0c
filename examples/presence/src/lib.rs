//! Presence: which games are played, by whom, and how they stand. Nothing is stored: heartbeats say
//! it again.

pub mod board;
pub mod game;
pub mod player;
pub mod servers;
pub mod view;
pub mod web;

use emmer::SiloBuilder;

use self::board::{Board, BoardGrain};
use self::game::{Game, GameGrain};
use self::player::{Player, PlayerGrain};

/// Adds the grains of this example to a silo.
pub fn presence(silo: SiloBuilder) -> SiloBuilder {
    silo.host::<dyn Game, GameGrain>()
        .host::<dyn Player, PlayerGrain>()
        .host::<dyn Board, BoardGrain>()
}
