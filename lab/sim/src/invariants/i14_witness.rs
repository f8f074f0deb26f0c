//! I14: a silo that is itself cut off accuses no other, except one or two whose last probe was just
//! on its way.
//!
//! Looked at for silos that alone are cut off, both ways, in clusters in which the table is not a
//! witness. Whom it had missed just before is not counted.

use std::collections::{BTreeMap, BTreeSet};

use emmer_core::{SiloAddress, SiloStatus};

use crate::invariants::{Facts, Violation};
use crate::table::Record;
use crate::time::VirtualTime;

/// Fewest Active silos: the table is a witness among three.
const ACTIVE_MIN: usize = 5;

/// Maximum silos that one that is cut off may accuse.
const ACCUSED_MAX: usize = 2;

/// Whom each silo that is cut off has accused since when.
#[derive(Debug, Default)]
pub(super) struct Accused(BTreeMap<SiloAddress, (VirtualTime, BTreeSet<SiloAddress>)>);

impl Accused {
    /// Looks at the votes in the newest commit.
    pub(super) fn check(&mut self, facts: &Facts<'_>, record: &Record) -> Result<(), Violation> {
        let config = &facts.scenario.config;
        let active = facts.table.rows().filter(|row| row.status == SiloStatus::Active);
        let fresh = active.filter(|row| {
            let still = facts.table.alive_at(&row.address).map(|at| facts.now.since(at));
            still.is_some_and(|still| still < config.stale_after(1) / 2)
        });
        if !config.vote_needs_witness || fresh.count() < ACTIVE_MIN {
            return Ok(());
        }
        for change in &record.changes {
            let old: Vec<SiloAddress> =
                change.before.iter().flat_map(|row| &row.votes).map(|vote| vote.voter).collect();
            for vote in change.after.iter().flat_map(|row| &row.votes) {
                if old.contains(&vote.voter)
                    || vote.gone
                    || change.address.same_endpoint(&vote.voter)
                {
                    continue;
                }
                let host = facts.process(&vote.voter).map(|process| process.host);
                let cut = host.and_then(|host| facts.host_troubles.get(host as usize)?.exiled_at);
                let Some(since) = cut.filter(|since| facts.now.since(*since) >= config.patience())
                else {
                    continue;
                };
                // A silo that was missed just before the cut is accused with or without it.
                let missed = facts
                    .process(&vote.voter)
                    .and_then(|process| process.missed.get(&change.address));
                if missed.is_some_and(|missed| {
                    *missed < since && since.since(*missed) <= config.patience()
                }) {
                    continue;
                }
                let accused = self.0.entry(vote.voter).or_default();
                if accused.0 != since {
                    *accused = (since, BTreeSet::new());
                }
                accused.1.insert(change.address);
                if accused.1.len() > ACCUSED_MAX {
                    let what = format!(
                        "{} is cut off since {since} s and accuses {:?}",
                        vote.voter, accused.1
                    );
                    return Err(facts.violated("I14", what));
                }
            }
        }
        Ok(())
    }
}
