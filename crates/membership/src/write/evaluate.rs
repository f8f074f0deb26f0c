//! The rules by which intents other than votes come into a commit.

use std::collections::BTreeMap;

use emmer_core::{SiloAddress, SiloEntry, SiloStatus, Vote};

use super::draft::{Draft, add_vote};
use super::supersede::Evictions;
use crate::facts::Facts;

/// Verdict on an intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is in the draft.
    Written,
    /// It has nothing left to change, or never may.
    Drop,
    /// It has to wait for a later view, or for more votes.
    Wait,
    /// Its owner has to check again (activations).
    Recheck,
}

/// A silo wants to join with `row`.
pub(super) fn join(
    facts: &Facts,
    evictions: &Evictions,
    row: &SiloEntry,
    draft: &mut Draft,
) -> Verdict {
    let view = facts.view();
    if draft.row(view, &row.address).is_some() {
        return Verdict::Drop;
    }
    // I3, I4: a later incarnation, alive or dead, forbids this one. Earlier ones die with its
    // arrival.
    if view.successor_of(&row.address).is_some()
        || draft.rows().any(|other| row.address.is_succeeded_by(&other.address))
    {
        return Verdict::Drop;
    }
    let mut earlier: BTreeMap<SiloAddress, SiloEntry> = view
        .incarnations_of(&row.address)
        .iter()
        .map(|old| (old.address, (**old).clone()))
        .collect();
    earlier.extend(
        draft
            .rows()
            .filter(|other| other.address.is_succeeded_by(&row.address))
            .map(|other| (other.address, other.clone())),
    );
    earlier.retain(|_, old| old.status != SiloStatus::Dead);
    // I8: a silo that may still run must no longer be confirmed.
    if !earlier.keys().all(|old| evictions.may_supersede(facts, old)) {
        return Verdict::Wait;
    }
    for mut old in earlier.into_values() {
        old.status = SiloStatus::Dead;
        let gone = evictions.is_known_gone(row, &old);
        add_vote(&mut old.votes, Vote { voter: row.address, at: facts.now().wall, gone });
        draft.put(old);
    }
    let mut row = row.clone();
    row.status = SiloStatus::Joining;
    row.votes.clear();
    draft.put(row);
    Verdict::Written
}

/// A silo wants to be Active (invariant I7: every pair of Active silos has made a round trip).
///
/// Of two silos the one inserted later makes the round trip. The joiner has made one with every
/// member of the view `checked` except `missing` (Joining then). A silo that is Active now and was
/// not a member then was inserted later, and has made one with the joiner, unless the commit that
/// made it Active says that it skipped it. `is_blocked`: this silo is the joiner, and lacks some.
pub(super) fn activate(
    facts: &Facts,
    silo: &SiloAddress,
    checked: u64,
    missing: &[SiloAddress],
    is_blocked: &dyn Fn() -> bool,
    draft: &mut Draft,
) -> Verdict {
    let view = facts.view();
    let Some(row) = view.get(silo) else { return Verdict::Wait };
    if row.status != SiloStatus::Joining || draft.row(view, silo).is_none_or(|now| now != &**row) {
        return Verdict::Drop;
    }
    if checked > view.version() || (*silo == facts.me() && is_blocked()) {
        return Verdict::Wait;
    }
    let is_active = |other: &SiloAddress| view.status_of_row(other) == Some(SiloStatus::Active);
    match facts.steps().skipped(view.version(), checked, silo) {
        Some(false) if !missing.iter().any(is_active) => {}
        _ => return Verdict::Recheck,
    }
    if draft.skips(silo) || missing.iter().any(|other| draft.activates(other)) {
        return Verdict::Wait;
    }
    draft.activate((**row).clone(), missing);
    Verdict::Written
}

/// A silo wants one of its own last statuses.
pub(super) fn status(
    facts: &Facts,
    silo: &SiloAddress,
    status: SiloStatus,
    draft: &mut Draft,
) -> Verdict {
    let Some(row) = draft.row(facts.view(), silo) else { return Verdict::Drop };
    if row.status >= status {
        return Verdict::Drop;
    }
    let mut row = row.clone();
    row.status = status;
    if status == SiloStatus::Dead {
        // A vote of its own marks a silo that left in good order.
        let vote = Vote { voter: *silo, at: facts.now().wall, gone: false };
        add_vote(&mut row.votes, vote);
    }
    draft.put(row);
    Verdict::Written
}
