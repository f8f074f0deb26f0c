//! Silos outside the view have no say, and neither have the dead.
//!
//! A silo obeys the silos of the view in force. From a stranger it takes the few messages that a
//! join needs, at a bounded cost:
//!
//! * a probe is answered, and confirms nothing;
//! * a view that is asked for is given;
//! * a wish to join, to become Active or to leave is taken, if it is the sender's own. It is judged
//!   by the view like any other;
//! * a silo that asks to be dialled is dialled, at the address it gave.
//!
//! Everything else of a stranger is ignored: its views, its votes, its words about deaths. But it
//! may know of a view that this silo lacks, and be in it. So a stranger that claims a later version
//! makes this silo ask the table for its version, once in a while. Where no answer comes there may
//! be monitors that this silo does not know: then the word of the known ones is not enough
//! (`fence`).
//!
//! A silo whose own row is in no view yet has no view to judge by, and hosts nothing. It takes the
//! word of each that answers it.

use std::time::Duration;

use emmer_core::{Instant, SiloAddress, SiloStatus};

use crate::api::TerminateReason;
use crate::facts::Facts;
use crate::inner::{Inner, Read};
use crate::intent::Intent;
use crate::message::Message;
use crate::out::Out;
use crate::timers::Timer;

/// Time that a version of which only strangers speak may take to arrive by itself. Shortest time
/// between two reads of the table for strangers' sake.
const PATIENCE: Duration = Duration::from_millis(500);

/// Claims of strangers about versions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Claims {
    /// The version that a stranger spoke of last; 0 once the table has denied it.
    claimed: u64,
    /// Time of the claim.
    claimed_at: Instant,
}

impl Claims {
    /// The version that a stranger spoke of last; 0 once the table has denied it.
    pub(super) const fn version(&self) -> u64 {
        self.claimed
    }

    /// A stranger speaks of a version that this silo may lack.
    pub(super) fn note(&mut self, facts: &Facts, out: &mut Out, message: &Message) {
        let Some(version) = claimed_version(message) else { return };
        if version > facts.view().version() && !out.timers().is_set(Timer::Claim) {
            self.claimed = version;
            self.claimed_at = facts.now().mono;
            out.timers().set(Timer::Claim, self.claimed_at + PATIENCE);
        }
    }

    /// The table showed the view in force to be the latest when it was asked at `sent`.
    pub(super) fn deny(&mut self, sent: Instant) {
        if sent >= self.claimed_at {
            self.claimed = 0;
        }
    }

    /// The version had the time to arrive by itself.
    pub(super) fn check(&self, facts: &Facts, out: &mut Out) {
        if self.claimed > facts.view().version() {
            out.tell(Inner::Want(Read::Version));
        }
    }
}

/// Returns true if `from` is in no view that this silo can judge by.
pub(crate) fn is_stranger(facts: &Facts, from: &SiloAddress) -> bool {
    facts.standing().is_in_table() && facts.view().position(from).is_none()
}

/// Keeps those of `intents` that a stranger may have: they are about the sender alone, and judge no
/// other silo.
pub(crate) fn own_intents(intents: Vec<Intent>, from: &SiloAddress) -> Vec<Intent> {
    let is_own = |intent: &Intent| {
        let about_itself = match intent {
            Intent::Join(_) | Intent::Activate { .. } | Intent::Status { .. } => true,
            Intent::Withdraw { target, voter } => target == voter,
            Intent::Vote { .. } | Intent::Retract { .. } => false,
        };
        about_itself && intent.owner() == *from
    };
    intents.into_iter().filter(is_own).collect()
}

/// The version of the table that the sender has, or says to exist.
fn claimed_version(message: &Message) -> Option<u64> {
    Some(match message {
        Message::Probe { version, .. }
        | Message::Ack { version, .. }
        | Message::Write { version, .. }
        | Message::Noted { version }
        | Message::Recheck { version }
        | Message::Hint { version }
        | Message::Obituary { version } => *version,
        Message::Tree { delta, .. } => delta.version(),
        Message::Deltas(deltas) => deltas.iter().map(|delta| delta.version()).max()?,
        Message::Snapshot { view, .. } => view.version(),
        _ => return None,
    })
}

/// Returns true if `from` is dead in the view in force. It is told so, and its messages are
/// ignored: "everyone stops communicating with it". A silo whose row is missing from a later view
/// than its own has been cleaned up.
pub(crate) fn is_from_the_dead(
    facts: &Facts,
    out: &mut Out,
    from: SiloAddress,
    message: &Message,
) -> bool {
    let known = facts.view().version();
    let dead = match facts.view().status_of(&from) {
        Some(status) => status == SiloStatus::Dead,
        None => match message {
            Message::Probe { version, .. } => {
                *version > 0 && *version < known && facts.standing().is_in_table()
            }
            _ => false,
        },
    };
    if dead && !matches!(message, Message::Obituary { .. }) {
        out.send(from, Message::Obituary { version: known });
    }
    dead
}

/// A silo with a later view says that this one is dead.
pub(crate) fn on_obituary(facts: &Facts, out: &mut Out, version: u64) {
    if version <= facts.view().version() {
        return;
    }
    out.tell(if !facts.standing().is_in_table() {
        // It may have been inserted and declared dead before it saw its row: the table says so.
        Inner::Want(Read::All)
    } else if facts.standing().is_finishing() {
        Inner::End(TerminateReason::Left)
    } else {
        Inner::End(TerminateReason::DeclaredDead)
    });
}
