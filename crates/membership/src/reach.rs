//! A joiner must be reached at the address that it advertises.
//!
//! Its own round trips prove only that it reaches the members: they answer over the connections
//! that it opened. So it asks some of those that answered to dial it, on a fresh connection at the
//! address in its row. It becomes Active only after one of them got through. A silo with a wrong
//! address, or behind a firewall, stays Joining, and says whom it asked in vain.

use emmer_core::{Now, SiloAddress};

use crate::api::{DialOutcome, Event};
use crate::dials::Purpose;
use crate::membership::Membership;
use crate::message::Message;

/// How many members a joiner asks at a time.
pub(crate) const ASKED_MAX: usize = 3;

/// The most dials to joiners in flight; one more is not made, and the joiner asks again.
const DIALS_MAX: usize = 128;

impl Membership {
    /// A joiner asks to be dialled at its address.
    pub(crate) fn on_reach(&mut self, from: SiloAddress) {
        let busy = self.out.dials().is_under_way(Purpose::Reach, &from);
        if busy || self.out.dials().count(Purpose::Reach) >= DIALS_MAX || self.is_done() {
            return;
        }
        self.out.dial(from, Purpose::Reach, self.facts.config().hint_dial_timeout);
    }

    /// The dial to a joiner ended.
    pub(crate) fn reach_dialled(&mut self, joiner: SiloAddress, outcome: DialOutcome) {
        self.out.send(joiner, Message::Reached { through: outcome == DialOutcome::Answered });
    }

    /// A member has dialled this silo, and got through or not.
    pub(crate) fn on_reached(&mut self, now: Now, from: SiloAddress, through: bool) {
        if through {
            self.join_reached(now);
        } else if self.is_joining() {
            self.out.event(Event::NotReached { from });
        }
    }
}
