//! The source's side of a move, from the moment at which it sends a grain's memory.
//!
//! Two registrations want the place of one: that of the silo where the grain arrives, and the one
//! by which the source takes it back. The owner grants one of them at most, because each names the
//! registration that it replaces (`safety.md` in this folder).

use std::time::Duration;

use emmer_core::{Instant, SiloAddress};
use serde::{Deserialize, Serialize};

use crate::api::Outcome;
use crate::registration::Registration;

/// The word of the silo where a grain was to arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Word {
    /// The owner has granted its registration: the grain is there.
    #[serde(rename = "a")]
    Arrived,
    /// It does not take the grain, and has not asked the owner for a registration.
    #[serde(rename = "r")]
    Refused,
    /// As `Refused`, because the grain has left it a moment ago. Later it may take the grain.
    #[serde(rename = "l")]
    TooSoon,
    /// It has asked the owner, and was not granted a registration so far.
    #[serde(rename = "f")]
    Failed,
}

/// Request of a departure to its shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DepartureEffect {
    /// Ask the directory to `replace` the grain's registration by one of this silo with this
    /// number, and hand the outcome in.
    Reclaim {
        /// Number of the activation.
        activation: u64,
    },
    /// The move is over.
    End(DepartureEnd),
}

/// End of a move, for the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DepartureEnd {
    /// The grain is on another silo. Its calls go there.
    There(SiloAddress),
    /// The grain is here again with the memory that was sent, under this number. It may run turns.
    Here(u64),
    /// No silo is known to have the grain: its memory is dropped, and a call activates it again.
    /// The shell unregisters the old registration, which may still be there.
    Nowhere,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The memory was sent.
    Sent,
    /// The directory was asked to give the grain back under this number.
    Reclaiming(u64),
    Over,
}

/// One grain that leaves this silo, after its memory was sent.
///
/// Until it ends, the shell runs no turn of the grain and does not report its registration.
#[derive(Clone, Copy, Debug)]
pub struct Departure {
    to: SiloAddress,
    from: Registration,
    /// The version of this silo's view when the memory was sent.
    view: u64,
    /// Number of the activation that takes the grain back if its target may still register.
    fresh: u64,
    until: Instant,
    state: State,
    effect: Option<DepartureEffect>,
}

impl Departure {
    /// The memory of the activation `from` is sent to `to` now, with the version of this silo's
    /// `view`. A target that says nothing for `patience` has lost the grain. `fresh` is a number
    /// that no activation of this silo has.
    pub fn new(
        now: Instant,
        to: SiloAddress,
        (from, view): (Registration, u64),
        fresh: u64,
        patience: Duration,
    ) -> Self {
        Self { to, from, view, fresh, until: now + patience, state: State::Sent, effect: None }
    }

    /// The silo that the grain goes to.
    pub const fn to(&self) -> SiloAddress {
        self.to
    }

    /// The registration that another one is to replace, and the version of this silo's view when
    /// the memory was sent: as [`Directory::replace`](crate::Directory::replace) takes them.
    pub const fn from(&self) -> (Registration, u64) {
        (self.from, self.view)
    }

    /// The target's word.
    pub const fn handle_word(&mut self, word: Word) {
        match (self.state, word) {
            (State::Sent, Word::Arrived) => self.end(DepartureEnd::There(self.to)),
            // The target will never ask: the registration stays, if it is still there.
            (State::Sent, Word::Refused | Word::TooSoon) => self.reclaim(self.from.activation),
            // A request of the target may still be on its way. It names the old registration, so
            // the old number must not come back.
            (State::Sent, Word::Failed) => self.reclaim(self.fresh),
            (State::Reclaiming(_) | State::Over, _) => {}
        }
    }

    /// Runs due work.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.state == State::Sent && self.until <= now {
            self.reclaim(self.fresh);
        }
    }

    /// The directory's answer to [`DepartureEffect::Reclaim`].
    pub fn handle_outcome(&mut self, outcome: Outcome) {
        let State::Reclaiming(number) = self.state else { return };
        self.end(match outcome {
            Outcome::Registered => DepartureEnd::Here(number),
            Outcome::Taken(held) if held.silo != self.from.silo => DepartureEnd::There(held.silo),
            Outcome::Taken(_)
            | Outcome::Absent
            | Outcome::Found(_)
            | Outcome::Unregistered
            | Outcome::Failed(_) => DepartureEnd::Nowhere,
        });
    }

    const fn reclaim(&mut self, activation: u64) {
        self.state = State::Reclaiming(activation);
        self.effect = Some(DepartureEffect::Reclaim { activation });
    }

    const fn end(&mut self, end: DepartureEnd) {
        self.state = State::Over;
        self.effect = Some(DepartureEffect::End(end));
    }

    /// The next thing to do.
    pub const fn poll_effect(&mut self) -> Option<DepartureEffect> {
        self.effect.take()
    }

    /// Time for the next call of [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Option<Instant> {
        (self.state == State::Sent).then_some(self.until)
    }
}
