//! A room: its last lines in the store, the people that are here in memory.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use emmer::prelude::*;
use emmer::tables::Timestamp;
use serde::{Deserialize, Serialize};

/// The lines that a room keeps.
const LINES_MAX: usize = 200;
/// The most people in a room.
const PEOPLE_MAX: usize = 1_000;
/// The longest line, in bytes.
pub const TEXT_MAX: usize = 2_000;
/// A person whose last sign is older than this is no longer here.
const HERE_FOR: Duration = Duration::from_secs(15);

/// A line that was said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// The place of the line in its room, from 1 on.
    pub number: u64,
    /// The name of the person.
    pub name: String,
    /// The words.
    pub text: String,
    /// A text that the page has drawn for the line. Saying it again adds no second line.
    pub token: String,
}

/// Events of a room.
#[observer]
pub trait RoomEvents {
    /// A line was said. It is stored.
    fn said(&self, line: Line);
    /// These people are here now.
    fn here(&self, names: Vec<String>);
    /// A person is typing.
    fn types(&self, name: String);
}

/// A room, by its name.
#[grain_interface(key = String)]
pub trait Room {
    /// Watches the room.
    async fn join(&mut self, who: ObserverRef<dyn RoomEvents>) -> emmer::Result<()>;
    /// A sign that a person is here. It counts for fifteen seconds.
    async fn beat(&mut self, name: String);
    /// Says a line; returns its number. A token that was said already gets the number of its line.
    async fn say(&mut self, name: String, text: String, token: String) -> Result<u64, SayError>;
    /// A person is typing.
    async fn types(&self, name: String);
    /// The lines behind number `after` that the room still has, and the people that are here.
    async fn read(&self, after: u64) -> (Vec<Line>, Vec<String>);
    /// The number of the last line.
    async fn last(&self) -> u64;
}

/// The room does not take the line.
#[derive(Debug, thiserror::Error, Serialize, Deserialize, GrainError)]
pub enum SayError {
    /// There are no words in it, or too many.
    #[error("a line has 1 to {TEXT_MAX} bytes, and this one has {0}")]
    Length(usize),
    /// It did not work now: say it again, with the same token.
    #[error("{0}")]
    #[other]
    Other(emmer::Error),
}

/// The stored part of a room.
#[derive(Default, Serialize, Deserialize)]
struct Lines {
    /// The number of the last line.
    said: u64,
    kept: VecDeque<Line>,
}

/// The class of rooms.
#[derive(Grain)]
pub struct RoomGrain {
    #[context]
    ctx: Ctx,
    watchers: Observers<dyn RoomEvents>,
    /// By name: the time of the last sign.
    people: BTreeMap<String, Timestamp>,
    #[state("lines")]
    lines: Persistent<Lines>,
}

impl RoomGrain {
    fn here(&self) -> Vec<String> {
        let now = self.ctx.now();
        let here = self.people.iter().filter(|(_, beat)| **beat + HERE_FOR > now);
        here.map(|(name, _)| name.clone()).collect()
    }
}

#[grain]
impl Room for RoomGrain {
    async fn join(&mut self, who: ObserverRef<dyn RoomEvents>) -> emmer::Result<()> {
        Ok(self.watchers.add(who)?)
    }

    async fn beat(&mut self, name: String) {
        let now = self.ctx.now();
        let known = self.people.len();
        self.people.retain(|_, beat| *beat + HERE_FOR > now);
        let has_left = self.people.len() < known;
        let is_full = self.people.len() >= PEOPLE_MAX && !self.people.contains_key(&name);
        let has_come = !is_full && self.people.insert(name, now).is_none();
        if has_come || has_left {
            let here = self.here();
            self.watchers.tell(|to| to.here(here));
        }
    }

    async fn say(&mut self, name: String, text: String, token: String) -> Result<u64, SayError> {
        if !(1..=TEXT_MAX).contains(&text.len()) {
            return Err(SayError::Length(text.len()));
        }
        if let Some(line) = self.lines.kept.iter().find(|line| line.token == token) {
            return Ok(line.number);
        }
        let line = Line { number: self.lines.said + 1, name, text, token };
        self.lines.said = line.number;
        self.lines.kept.push_back(line.clone());
        if self.lines.kept.len() > LINES_MAX {
            self.lines.kept.pop_front();
        }
        // Stored first: a line that a page shows is never lost.
        self.lines.write().await?;
        let number = line.number;
        self.watchers.tell(|to| to.said(line));
        Ok(number)
    }

    async fn types(&self, name: String) {
        self.watchers.tell(|to| to.types(name));
    }

    async fn read(&self, after: u64) -> (Vec<Line>, Vec<String>) {
        let lines = self.lines.kept.iter().filter(|line| line.number > after);
        (lines.cloned().collect(), self.here())
    }

    async fn last(&self) -> u64 {
        self.lines.said
    }
}
