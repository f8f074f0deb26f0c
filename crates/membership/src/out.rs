//! The acts of the parts of the machine: all of them go through here.

use std::collections::VecDeque;
use std::time::Duration;

use emmer_core::{Instant, SiloAddress};

use crate::api::{DialId, Effect, Event};
use crate::counters::Counters;
use crate::dials::{Dials, Purpose};
use crate::dice::Dice;
use crate::inner::Inner;
use crate::message::Message;
use crate::timers::Timers;

/// Room for how many effects is kept when all have been handed out.
const EFFECTS_KEPT: usize = 64;

/// Act of a part: for the shell, or for the other parts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Act {
    Effect(Effect),
    Inner(Inner),
}

/// The effects of the machine, and its timers, dials, numbers and chance.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Out {
    me: SiloAddress,
    effects: VecDeque<Effect>,
    /// Events between parts, and the effects that come after the first of them.
    pending: VecDeque<Act>,
    timers: Timers,
    counters: Counters,
    dice: Dice,
    dials: Dials,
    /// The number of the last probe, of whatever kind.
    last_seq: u64,
}

impl Out {
    /// Nothing has come out of `me` yet.
    pub(crate) fn new(me: SiloAddress, dice: Dice) -> Self {
        Self {
            me,
            effects: VecDeque::new(),
            pending: VecDeque::new(),
            timers: Timers::default(),
            counters: Counters::default(),
            dice,
            dials: Dials::default(),
            last_seq: 0,
        }
    }

    /// Has the shell do something.
    pub(crate) fn effect(&mut self, effect: Effect) {
        if self.pending.is_empty() {
            self.effects.push_back(effect);
        } else {
            self.pending.push_back(Act::Effect(effect));
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

    /// Tells logs and metrics of something.
    pub(crate) fn event(&mut self, event: Event) {
        self.effect(Effect::Event(event));
    }

    /// Sends `message`, except to this silo itself.
    pub(crate) fn send(&mut self, to: SiloAddress, message: Message) {
        if to != self.me {
            self.effect(Effect::Send { to, message });
        }
    }

    /// Dials `silo`, on a fresh connection.
    pub(crate) fn dial(&mut self, silo: SiloAddress, purpose: Purpose, timeout: Duration) {
        let dial: DialId = self.dials.begin(purpose, silo);
        self.counters.dials += 1;
        self.effect(Effect::Dial { dial, to: silo, timeout });
    }

    /// A number that no probe of this silo has had.
    pub(crate) const fn new_seq(&mut self) -> u64 {
        self.last_seq += 1;
        self.last_seq
    }

    /// The deadlines.
    pub(crate) const fn timers(&mut self) -> &mut Timers {
        &mut self.timers
    }

    /// The dials under way.
    pub(crate) const fn dials(&mut self) -> &mut Dials {
        &mut self.dials
    }

    /// Chance.
    pub(crate) const fn dice(&mut self) -> &mut Dice {
        &mut self.dice
    }

    /// The counters, to be moved on.
    pub(crate) const fn count(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// The counters.
    pub(crate) const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The earliest deadline.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Takes the next effect; none when all have been handed out.
    pub(crate) fn take_effect(&mut self) -> Option<Effect> {
        let effect = self.effects.pop_front();
        if effect.is_none() {
            if self.effects.capacity() > EFFECTS_KEPT {
                // A silo that joins thousands has thousands of effects, once.
                self.effects = VecDeque::new();
            } else {
                // The next ones use the same memory again.
                self.effects.clear();
            }
        }
        effect
    }
}
