//! Rare situations that the protocol handles. What no run ever reaches, no run tests.

use std::collections::BTreeMap;

use emmer_core::{SiloEntry, SiloStatus};
use emmer_membership::{Event, Message, TerminateReason};

use crate::table::Record;

/// Situations that are counted without being required, because they come up in one of a thousand
/// seeds only: the directory takes back refused registrations, and a silo that was away until no
/// known silo is left hears of its death from the table alone.
pub const RARE: &[&str] =
    &["a registration of an activation that is gone is removed", "an end: the row was missing"];

/// The situations that a bounded swarm must reach (`tests/it/sometimes.rs`), each at least once.
pub const MUST: &[&str] = &[
    "a commit that lost the compare-and-set",
    "a commit that wrote the own row again to settle an unknown outcome",
    "a death by votes of a silo that runs",
    "a dial to a living silo is refused",
    "a directory command times out",
    "a fence opened for turns that waited",
    "a fence that closed and opened",
    "a gap in the deltas filled by several at once",
    "a grain arrives",
    "a grain is lost on its way",
    "a grain is not taken where it was to go",
    "a grain is taken back",
    "a grain sets off for another silo",
    "a grain stays after all",
    "a grain stays because its registration may come again",
    "a joiner that had to check again",
    "a lifeline ends in good order where a connection was reset",
    "a membership message that comes twice",
    "a predecessor succeeded with proof that it is gone",
    "a predecessor succeeded without proof",
    "a predecessor that ran yielded to its successor",
    "a recovery goes on through another view",
    "a recovery starts again because views were missed",
    "a silo reports its grains to a new owner",
    "a silo told by an obituary that it is dead",
    "a silo that ran on when its grains could be granted, its fence closed",
    "a silo that was gone or stale overlooked by a joiner",
    "a silo that was not in the way of a successor was hushed",
    "a silo went while it took ranges over",
    "a store request that is never answered",
    "a table that was dropped",
    "a table that went back",
    "a turn waits for the fence",
    "a view with silos that fade",
    "a whole view pulled",
    "an end: another table",
    "an end: declared dead",
    "an end: left",
    "an end: superseded",
    "an end: the table was gone",
    "an end: the table went back",
    "requests to an owner share a message",
    "the store did not answer",
    "two silos place a grain at once",
];

/// Number of times each situation came up in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sometimes(BTreeMap<&'static str, u64>);

impl Sometimes {
    /// `what` came up.
    pub fn reach(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    /// Number of times each situation came up.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.0.iter().map(|(what, times)| (*what, *times))
    }

    /// Adds what another run reached.
    pub fn add(&mut self, other: &Self) {
        for (what, times) in other.iter() {
            *self.0.entry(what).or_default() += times;
        }
    }

    /// Returns true if `what` came up at all.
    pub fn reached(&self, what: &str) -> bool {
        self.0.contains_key(what)
    }

    /// Situations of [`MUST`] that never came up.
    pub fn missing(&self) -> Vec<&'static str> {
        MUST.iter().copied().filter(|what| !self.reached(what)).collect()
    }

    pub(crate) fn noted(&mut self, event: &Event) {
        match event {
            Event::CommitLost => self.reach("a commit that lost the compare-and-set"),
            Event::StoreUnavailable => self.reach("the store did not answer"),
            _ => {}
        }
    }

    pub(crate) fn delivered(&mut self, message: &Message) {
        match message {
            Message::Snapshot { .. } => self.reach("a whole view pulled"),
            Message::Deltas(deltas) if deltas.len() > 1 => {
                self.reach("a gap in the deltas filled by several at once");
            }
            Message::Obituary { .. } => self.reach("a silo told by an obituary that it is dead"),
            Message::Yielded => self.reach("a predecessor that ran yielded to its successor"),
            Message::Hushed { .. } => {
                self.reach("a silo that was not in the way of a successor was hushed");
            }
            Message::Recheck { .. } => self.reach("a joiner that had to check again"),
            _ => {}
        }
    }

    pub(crate) fn ended(&mut self, reason: TerminateReason) {
        match reason {
            TerminateReason::DeclaredDead => self.reach("an end: declared dead"),
            TerminateReason::RowMissing => self.reach("an end: the row was missing"),
            TerminateReason::Superseded(_) => self.reach("an end: superseded"),
            TerminateReason::TableWentBack => self.reach("an end: the table went back"),
            TerminateReason::TableReplaced => self.reach("an end: another table"),
            TerminateReason::TableGone => self.reach("an end: the table was gone"),
            TerminateReason::Left => self.reach("an end: left"),
            TerminateReason::JoinTimedOut => {}
        }
    }

    /// A commit was applied; `runs` says whether the process of a row runs.
    pub(crate) fn committed(
        &mut self,
        record: &Record,
        writer: emmer_core::SiloAddress,
        runs: impl Fn(&SiloEntry) -> bool,
    ) {
        if let [change] = &record.changes[..]
            && change.address == writer
            && change.before.is_some()
            && change.before == change.after
        {
            self.reach("a commit that wrote the own row again to settle an unknown outcome");
        }
        for change in &record.changes {
            let (Some(before), Some(after)) = (&change.before, &change.after) else { continue };
            if before.status == SiloStatus::Dead || after.status != SiloStatus::Dead {
                continue;
            }
            let successor =
                after.votes.iter().find(|vote| after.address.is_succeeded_by(&vote.voter));
            match successor {
                Some(vote) if vote.gone => {
                    self.reach("a predecessor succeeded with proof that it is gone");
                }
                Some(_) => self.reach("a predecessor succeeded without proof"),
                None if runs(after)
                    && !after.votes.iter().any(|vote| vote.voter == after.address) =>
                {
                    self.reach("a death by votes of a silo that runs");
                }
                None => {}
            }
        }
    }
}
