//! The wishes of a silo that leaves: ShuttingDown or Stopping, then Dead (membership description,
//! step 12, and the original's statuses).

use emmer_core::SiloStatus;

use super::Wishes;
use crate::facts::Facts;
use crate::inner::Inner;
use crate::intent::{Intent, Key};
use crate::out::Out;

/// A silo that leaves wishes for nothing but `status`, if it is in the table.
pub(crate) fn leave(wishes: &mut Wishes, facts: &Facts, out: &mut Out, status: SiloStatus) {
    wishes.keep_only_status();
    if facts.standing().is_in_table() {
        wish(wishes, facts, out, status);
    }
}

/// Wishes for its own death.
pub(crate) fn finish(wishes: &mut Wishes, facts: &Facts, out: &mut Out) {
    out.tell(Inner::Unwrite(Key::Status(facts.me())));
    wish(wishes, facts, out, SiloStatus::Dead);
}

fn wish(wishes: &mut Wishes, facts: &Facts, out: &mut Out, status: SiloStatus) {
    let silo = facts.me();
    wishes.forget(&Key::Status(silo));
    out.tell(Inner::Wish(Intent::Status { silo, status }));
}
