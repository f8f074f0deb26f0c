//! A joiner must be reached at the address that it advertises.
//!
//! Its own round trips prove only that it reaches the members: they answer over the connections that it opened. So it asks some of
//! those that answered to dial it, on a fresh connection at the address in its row. It becomes Active only after one of them got
//! through. A silo with a wrong address, or behind a firewall, stays Joining, and says whom it asked in vain.

use std::collections::BTreeMap;

use emmer_core::{Now, SiloAddress};

use crate::api::{DialId, DialOutcome, Effect, Event};
use crate::membership::Membership;
use crate::message::Message;

/// How many members a joiner asks at a time.
pub(crate) const ASKED_MAX: usize = 3;

/// The most dials to joiners in flight; one more is not made, and the joiner asks again.
const DIALS_MAX: usize = 128;

/// Dials to joiners that asked for them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Reaching {
    dials: BTreeMap<DialId, SiloAddress>,
}

impl Membership {
    /// A joiner asks to be dialled at its address.
    pub(crate) fn on_reach(&mut self, from: SiloAddress) {
        let busy = self.reaching.dials.values().any(|other| *other == from);
        if busy || self.reaching.dials.len() >= DIALS_MAX || self.is_done() {
            return;
        }
        let dial = self.new_dial();
        self.reaching.dials.insert(dial, from);
        self.counters.dials += 1;
        self.effects.push_back(Effect::Dial { dial, to: from, timeout: self.config.hint_dial_timeout });
    }

    /// Whether the dial was one to a joiner.
    pub(crate) fn reach_dialled(&mut self, dial: DialId, outcome: DialOutcome) -> bool {
        let Some(joiner) = self.reaching.dials.remove(&dial) else { return false };
        self.send(joiner, Message::Reached { through: outcome == DialOutcome::Answered });
        true
    }

    /// A member has dialled this silo, and got through or not.
    pub(crate) fn on_reached(&mut self, now: Now, from: SiloAddress, through: bool) {
        if through {
            self.join_reached(now);
        } else if self.is_joining() {
            self.effects.push_back(Effect::Event(Event::NotReached { from }));
        }
    }
}
