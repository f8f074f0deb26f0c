//! The acts of the parts of the directory: all of them go through here.

use std::collections::{BTreeSet, VecDeque};

use emmer_core::{Instant, SiloAddress};

use crate::api::{Effect, Outcome, Token};
use crate::inner::Inner;
use crate::message::Message;

/// Deadline of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// The attempt with this number: send again, or give up.
    Op(u64),
    /// The recovery with this number: ask again who has not answered.
    Recovery(u64),
    /// The losses of the view of this version are not collected yet: ask the silos that have not
    /// told.
    Collection(u64),
    /// A silo that gained something by the view of this version has taken it, or will not come.
    Snapshots(u64),
    /// The receiver of the list with this number has been silent for long.
    Stream(u64),
    /// A silo that is Dead can no longer run turns.
    Fading,
}

/// Act of a part: for the shell, or for the other parts.
#[derive(Debug)]
pub(crate) enum Act {
    Effect(Effect),
    Inner(Inner),
}

/// Output of the directory, its deadlines and its numbers.
#[derive(Debug, Default)]
pub(crate) struct Out {
    effects: VecDeque<Effect>,
    /// Events between parts, and the effects that come after the first of them.
    pending: VecDeque<Act>,
    timers: BTreeSet<(Instant, Timer)>,
    /// The last number given to an attempt, a recovery or a report.
    last_number: u64,
}

impl Out {
    /// Has the shell do something.
    pub(crate) fn effect(&mut self, effect: Effect) {
        if self.pending.is_empty() {
            self.effects.push_back(effect);
        } else {
            self.pending.push_back(Act::Effect(effect));
        }
    }

    pub(crate) fn send(&mut self, to: SiloAddress, message: Message) {
        self.effect(Effect::Send { to, message });
    }

    /// The command of `token` is done, if its caller still waits.
    pub(crate) fn complete(&mut self, token: Option<Token>, outcome: Outcome) {
        if let Some(token) = token {
            self.effect(Effect::Complete { token, outcome });
        }
    }

    /// Has another part do something, before any effect that comes after this.
    pub(crate) fn tell(&mut self, inner: Inner) {
        self.pending.push_back(Act::Inner(inner));
    }

    /// Takes the requests of the parts; none when there are none.
    pub(crate) fn take_pending(&mut self) -> Option<VecDeque<Act>> {
        (!self.pending.is_empty()).then(|| std::mem::take(&mut self.pending))
    }

    /// A number that was not given before.
    pub(crate) const fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    pub(crate) fn set(&mut self, due: Instant, timer: Timer) {
        self.timers.insert((due, timer));
    }

    pub(crate) fn clear(&mut self, due: Instant, timer: Timer) {
        self.timers.remove(&(due, timer));
    }

    pub(crate) fn clear_all(&mut self) {
        self.timers.clear();
    }

    /// Takes a timer that is due.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<Timer> {
        let (due, timer) = self.timers.first().copied().filter(|(due, _)| *due <= now)?;
        self.timers.remove(&(due, timer));
        Some(timer)
    }

    /// The earliest deadline.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.timers.first().map(|(due, _)| *due)
    }

    /// Takes the next effect; none when all have been handed out.
    pub(crate) fn take_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }
}
