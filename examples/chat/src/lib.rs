//! A chat: rooms and people as grains, web processes in front of them, and a page that is live.

pub mod doors;
pub mod kills;
pub mod person;
pub mod processes;
pub mod room;
pub mod web;

use emmer::SiloBuilder;

use self::doors::{Doors, DoorsGrain};
use self::person::{Person, PersonGrain};
use self::room::{Room, RoomGrain};

/// The name of the chat's cluster.
pub const CLUSTER: &str = "chat";

/// Adds the grains of the chat to a silo.
pub fn chat(silo: SiloBuilder) -> SiloBuilder {
    silo.host::<dyn Room, RoomGrain>()
        .host::<dyn Person, PersonGrain>()
        .host::<dyn Doors, DoorsGrain>()
}
