//! A person: the rooms, and how far each was read.

use std::collections::BTreeMap;

use emmer::prelude::*;
use serde::{Deserialize, Serialize};

use crate::room::{Room, RoomRef};

/// The most rooms of a person. Another one takes the place of the first by name.
const ROOMS_MAX: usize = 20;

/// A person, by name.
#[grain_interface(key = String)]
pub trait Person {
    /// A page of the person shows `room`, with its lines up to number `seen`. It says so every few
    /// seconds.
    async fn reads(&mut self, room: String, seen: u64) -> emmer::Result<()>;
    /// The rooms, and the number of lines in each that the person has not seen.
    async fn rooms(&self) -> emmer::Result<Vec<(String, u64)>>;
}

/// The class of people.
#[derive(Grain)]
pub struct PersonGrain {
    #[context]
    ctx: Ctx,
    /// By room: the number of the last line that was seen.
    #[state("seen")]
    seen: Persistent<Seen>,
}

#[derive(Default, Serialize, Deserialize)]
struct Seen(BTreeMap<String, u64>);

impl PersonGrain {
    fn room(&self, name: &str) -> RoomRef {
        self.ctx.grains().grain::<dyn Room>(name)
    }
}

#[grain]
impl Person for PersonGrain {
    async fn reads(&mut self, room: String, seen: u64) -> emmer::Result<()> {
        let name = self.ctx.me::<dyn Person>().key().to_owned();
        // The next sign makes up for one that is lost.
        let _ = self.room(&room).beat(name).send();
        let before = self.seen.0.get(&room).copied();
        if before.is_none_or(|before| before < seen) {
            if before.is_none() && self.seen.0.len() >= ROOMS_MAX {
                self.seen.0.pop_first();
            }
            self.seen.0.insert(room, seen);
            self.seen.write().await?;
        }
        Ok(())
    }

    async fn rooms(&self) -> emmer::Result<Vec<(String, u64)>> {
        let mut rooms = Vec::new();
        for (room, seen) in &self.seen.0 {
            let last = self.room(room).last().await?;
            rooms.push((room.clone(), last.saturating_sub(*seen)));
        }
        Ok(rooms)
    }
}
