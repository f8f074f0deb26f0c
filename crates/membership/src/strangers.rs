//! Who is in no view has no say.
//!
//! A silo obeys those that the view in force names. From a stranger it takes the few messages that
//! a join needs, and what those cost is bounded:
//!
//! * a probe is answered, and confirms nothing;
//! * a view that is asked for is given;
//! * a wish to join, to become Active or to leave is taken, if it is the sender's own. It is judged
//!   by the view like any other;
//! * who asks to be dialled is dialled, at the address it gave.
//!
//! Nothing else of it is done: not its views, not its votes, not what it says about the death of
//! others or of this silo. But it may know of a view that this silo lacks, and be in it. So whoever
//! claims a later version makes this silo ask the table for its version, once in a while. And where
//! no answer comes there may be monitors that this silo does not know: then the word of those that
//! it knows is not enough (`fence.rs`).
//!
//! A silo whose own row is in no view yet has no view to judge by, and hosts nothing. It takes the
//! word of whoever answers it.

use std::time::Duration;

use emmer_core::{Instant, Now, SiloAddress};

use crate::inner::Read;
use crate::intent::Intent;
use crate::join;
use crate::membership::Membership;
use crate::message::Message;
use crate::timers::Timer;

/// So long a version that only strangers speak of may take to arrive by itself. The table is asked
/// for strangers' sake no more often than that.
const PATIENCE: Duration = Duration::from_millis(500);

impl Membership {
    /// Whether `from` is in no view that this silo can judge by.
    pub(crate) fn is_stranger(&self, from: &SiloAddress) -> bool {
        self.facts.standing().is_in_table() && self.facts.view().position(from).is_none()
    }

    /// Takes from a stranger what a join needs, and nothing else.
    pub(crate) fn hear_stranger(&mut self, now: Now, from: SiloAddress, message: Message) {
        if let Some(version) = claimed_version(&message) {
            self.note_claim(now, version);
        }
        match message {
            Message::Probe { seq, .. } => self.answer_stranger(from, seq),
            Message::Pull { have } => self.on_pull(from, have),
            Message::Reach => join::on_reach(&self.facts, &mut self.out, from),
            Message::Write { intents, hops, .. } => {
                let own: Vec<_> =
                    intents.into_iter().filter(|intent| is_own(intent, &from)).collect();
                if !own.is_empty() {
                    self.on_write(own, hops);
                }
            }
            _ => self.out.count().refused += 1,
        }
    }

    /// A version is spoken of that this silo lacks.
    fn note_claim(&mut self, now: Now, version: u64) {
        if version > self.facts.view().version() && !self.out.timers().is_set(Timer::Claim) {
            self.gossip.claimed = version;
            self.gossip.claimed_at = now.mono;
            self.out.timers().set(Timer::Claim, now.mono + PATIENCE);
        }
    }

    /// The table showed the view in force to be the latest when it was asked at `sent`.
    pub(crate) fn deny_claims(&mut self, sent: Instant) {
        if sent >= self.gossip.claimed_at {
            self.gossip.claimed = 0;
        }
    }

    /// It had the time to arrive by itself.
    pub(crate) fn check_claim(&mut self) {
        if self.gossip.claimed > self.facts.view().version() {
            self.table.want(Read::Version);
        }
    }
}

/// Whether a stranger may wish for `intent`: it is about the sender alone, and judges nobody.
fn is_own(intent: &Intent, from: &SiloAddress) -> bool {
    let about_itself = match intent {
        Intent::Join(_) | Intent::Activate { .. } | Intent::Status { .. } => true,
        Intent::Withdraw { target, voter } => target == voter,
        Intent::Vote { .. } | Intent::Retract { .. } => false,
    };
    about_itself && intent.owner() == *from
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
