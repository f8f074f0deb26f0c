//! A tick on its way: a call like any other, of a method that every class with reminders has.

use std::fmt::Display;
use std::time::Duration;

use bytes::BytesMut;
use emmer_core::hash::name32;
use emmer_core::{Reminder, Timestamp};
use emmer_wire::{CodecError, codec};
use serde::{Deserialize, Serialize};

use crate::grain::{Grain, Interface, Method, RawRef};
use crate::hosting::MethodEntry;

/// One occurrence of a reminder, for its handler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Tick {
    /// The reminder's name.
    pub name: String,
    /// Time at which it was due first.
    pub first: Timestamp,
    /// The time between two occurrences; none for a reminder that is due once.
    pub period: Option<Duration>,
    /// The number of this occurrence, from 1. A tick that is delivered again has the same.
    pub number: u64,
    /// Time at which this occurrence was due.
    pub due: Timestamp,
    /// The number of occurrences before this one that were missed, or given up after failures,
    /// since the last one that was delivered.
    pub missed: u64,
}

impl Tick {
    pub(super) fn of(reminder: &Reminder, tick: &emmer_reminders::Tick) -> Self {
        Self {
            name: reminder.name.to_string(),
            first: reminder.schedule.start,
            period: reminder.schedule.period,
            number: tick.number,
            due: tick.due,
            missed: tick.missed,
        }
    }
}

/// The call that delivers a tick.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReminderTick {
    pub(super) tick: Tick,
}

impl ReminderTick {
    /// The reminder's name.
    pub fn name(&self) -> &str {
        &self.tick.name
    }

    /// The tick, as the handler sees it.
    pub fn tick(&self) -> Tick {
        self.tick.clone()
    }
}

/// The interface of ticks, which no class can implement.
#[derive(Debug)]
pub enum Reminded {}

impl Interface for Reminded {
    type Key = String;
    type Ref = RawRef;
    const NAME: &'static str = "Reminder";
    const GRAIN_TYPE: &'static str = "";
    const VERSION: u32 = 1;
}

impl Method for ReminderTick {
    type Interface = Reminded;
    type Output = Result<(), String>;
    type Ok = ();
    type Err = String;
    const NAME: &'static str = "tick";
    const ID: u32 = name32("Reminder.tick");
    const EXCLUSIVE: bool = true;

    fn encode_args(&self, out: &mut BytesMut) -> Result<(), CodecError> {
        codec::encode_into(out, self)
    }

    fn decode_args(body: &[u8]) -> Result<Self, CodecError> {
        codec::decode(body)
    }

    fn is_error(output: &Self::Output) -> bool {
        output.is_err()
    }

    fn split(output: Self::Output) -> Result<Self::Ok, Self::Err> {
        output
    }
}

/// The result of a handler: nothing, or a `Result`. An error makes the tick fail: it is tried
/// again.
#[diagnostic::on_unimplemented(
    message = "a handler of a reminder or timer cannot return `{Self}`",
    note = "return nothing, or a `Result<(), E>` whose error can be printed"
)]
pub trait TickResult {
    /// The failure in words for the caller.
    ///
    /// # Errors
    /// The handler's own, as text.
    fn told(self) -> Result<(), String>;
}

impl TickResult for () {
    fn told(self) -> Result<(), String> {
        Ok(())
    }
}

impl<E: Display> TickResult for Result<(), E> {
    fn told(self) -> Result<(), String> {
        self.map_err(|error| error.to_string())
    }
}

/// The items of a class without handlers. The generated code of one that has some has items of the
/// same names, which go before these.
pub trait NoReminders: Grain {
    /// The names that have a handler.
    #[doc(hidden)]
    const REMINDERS_BELONG_IN_ONE_GRAIN_IMPL: &'static [&'static str] = &[];

    /// The method that ticks call.
    #[doc(hidden)]
    fn __ticks() -> Option<MethodEntry> {
        None
    }
}

impl<G: Grain> NoReminders for G {}

/// Returns true if a name is among those that have a handler, while the program is compiled.
pub const fn is_among(names: &[&str], name: &str) -> bool {
    let mut at = 0;
    while at < names.len() {
        let (one, other) = (names[at].as_bytes(), name.as_bytes());
        let mut same = one.len() == other.len();
        let mut byte = 0;
        while same && byte < one.len() {
            same = one[byte] == other[byte];
            byte += 1;
        }
        if same {
            return true;
        }
        at += 1;
    }
    false
}

/// The error of a tick whose class has no handler of its name: another version of the class had
/// one.
#[cold]
pub fn no_handler(name: &str) -> String {
    format!("no method of the grain is marked #[reminder({name:?})]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_whole() {
        const NAMES: &[&str] = &["due", "daily report"];
        const { assert!(is_among(NAMES, "due") && is_among(NAMES, "daily report")) };
        assert!(["", "du", "duex", "daily"].iter().all(|name| !is_among(NAMES, name)));
    }
}
