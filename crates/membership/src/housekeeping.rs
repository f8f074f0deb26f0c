//! What the dead say, and what is said of this silo's own death.

use emmer_core::{Now, SiloAddress, SiloStatus};

use crate::api::TerminateReason;
use crate::inner::Read;
use crate::membership::Membership;
use crate::message::Message;

impl Membership {
    /// Whether `from` is dead in the view in force. It is told, and nothing it says counts:
    /// "everyone stops communicating with it". A silo whose row is missing from a later view than
    /// its own has been cleaned up.
    pub(crate) fn is_from_the_dead(
        &mut self,
        _now: Now,
        from: SiloAddress,
        message: &Message,
    ) -> bool {
        let dead = match self.facts.view().status_of(&from) {
            Some(status) => status == SiloStatus::Dead,
            None => match message {
                Message::Probe { version, .. } => {
                    *version > 0
                        && *version < self.facts.view().version()
                        && self.facts.standing().is_in_table()
                }
                _ => false,
            },
        };
        if dead && !matches!(message, Message::Obituary { .. }) {
            self.out.send(from, Message::Obituary { version: self.facts.view().version() });
        }
        dead
    }

    /// Somebody with a later view says that this silo is dead.
    pub(crate) fn on_obituary(&mut self, version: u64) {
        if version <= self.facts.view().version() {
            return;
        }
        if !self.facts.standing().is_in_table() {
            // It may have been inserted and declared dead before it saw its row: the table says so.
            self.table.want(Read::All);
        } else {
            let reason = if self.facts.standing().is_finishing() {
                TerminateReason::Left
            } else {
                TerminateReason::DeclaredDead
            };
            self.terminate(reason);
        }
    }
}
