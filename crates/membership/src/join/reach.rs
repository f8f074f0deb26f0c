//! A joiner must be reached at the address that it advertises.
//!
//! A joiner's own round trips prove only that it reaches the members: they answer over the
//! connections that it opened. So it asks some of them to dial it, on a fresh connection at the
//! address in its row. It becomes Active only after one of them got through. A silo with a wrong
//! address, or behind a firewall, stays Joining, and names the silos it asked.
//!
//! This is the side of the members.

use emmer_core::SiloAddress;

use crate::api::DialOutcome;
use crate::dials::Purpose;
use crate::facts::Facts;
use crate::message::Message;
use crate::out::Out;

/// The most dials to joiners in flight; one more is not made, and the joiner asks again.
const DIALS_MAX: usize = 128;

/// A joiner asks to be dialled at its address.
pub(crate) fn on_reach(facts: &Facts, out: &mut Out, from: SiloAddress) {
    let busy = out.dials().is_under_way(Purpose::Reach, &from);
    if busy || out.dials().count(Purpose::Reach) >= DIALS_MAX || facts.is_over() {
        return;
    }
    out.dial(from, Purpose::Reach, facts.config().hint_dial_timeout);
}

/// The dial to a joiner ended.
pub(crate) fn reach_dialled(out: &mut Out, joiner: SiloAddress, outcome: DialOutcome) {
    out.send(joiner, Message::Reached { through: outcome == DialOutcome::Answered });
}
