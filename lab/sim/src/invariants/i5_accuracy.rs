//! I5: no death is written from evidence gathered while the store was unreachable for longer than
//! the vote window; a store outage alone kills no silo.
//!
//! As seen from outside: a silo that runs, does not leave and was not succeeded is declared dead
//! only when something other than the store (the network, a pause, a slow machine) was wrong within
//! the last vote window, on its own host or links or on a voter's. Store trouble, wrong clocks and
//! other silos' deaths are no reasons.

use std::time::Duration;

use emmer_core::{SiloAddress, SiloStatus};

use crate::invariants::{Facts, Violation};
use crate::table::Record;

/// Looks at the deaths in the newest commit.
pub(super) fn check(facts: &Facts<'_>, record: &Record) -> Result<(), Violation> {
    let config = &facts.scenario.config;
    for change in &record.changes {
        let died = change.after.as_ref().is_some_and(|row| row.status == SiloStatus::Dead)
            && change.before.as_ref().is_some_and(|row| row.status != SiloStatus::Dead);
        if !died {
            continue;
        }
        let Some(victim) = facts.process(&change.address) else { continue };
        if !victim.is_running() || victim.leaving || facts.has_successor(&change.address) {
            continue;
        }
        // A silo that was Joining for too long is evicted whether it answers or not.
        let overdue = facts.now.since(victim.started) >= config.max_join_attempt_time.mul_f64(0.9);
        if overdue && change.before.as_ref().is_some_and(|row| row.status == SiloStatus::Joining) {
            continue;
        }
        // Evidence is gathered for as long as misses take to add up, is written soon, and counts
        // for the vote window.
        let gathering = (config.patience() + config.probe_period) * 3 + config.max_probe_timeout;
        let window = config.death_vote_expiration_timeout
            + gathering
            + config.table_timeout
            + Duration::from_secs(15);
        let host_of = |silo: &SiloAddress| facts.process(silo).map(|process| process.host);
        let voters =
            change.after.iter().flat_map(|row| &row.votes).filter_map(|vote| host_of(&vote.voter));
        let near = facts.noisy
            || facts.was_troubled(victim.host, window)
            || voters.into_iter().any(|host| facts.was_troubled(host, window));
        let excused = near && facts.trouble_at.is_some_and(|at| facts.now.since(at) <= window);
        if !excused {
            let what = format!(
                "{} runs and was declared dead; the last trouble besides the store's was {}",
                change.address,
                facts.trouble_at.map_or_else(|| "never".to_owned(), |at| format!("at {at} s")),
            );
            return Err(facts.violated("I5", what));
        }
    }
    Ok(())
}
