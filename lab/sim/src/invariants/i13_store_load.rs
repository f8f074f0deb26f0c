//! I13: a cluster that nothing happens to leaves the store in peace.
//!
//! In quiet times a silo touches its row once in each publish period and reads the version once in
//! each refresh period; now and then a silo deletes old rows.

use std::time::Duration;

use emmer_core::SiloStatus;

use crate::invariants::{Facts, Violation, i10_convergence};

/// Time for which one look lasts.
pub(crate) const SPAN: Duration = Duration::from_secs(10);

/// Time for which everything must have been quiet before: votes and doubts are over.
const BEFORE: Duration = Duration::from_secs(20);

/// A silo that is alone reads the version after each touch, and one of two has few monitors.
const SILOS_MIN: usize = 4;

/// Requests beyond the regular ones.
const MORE: u32 = 3;

/// State at the last look.
#[derive(Debug, Default)]
pub(super) struct Load {
    /// Number of requests that each process had sent.
    asked: Vec<u32>,
    /// The version of the table: a commit since then is something that happened.
    version: u64,
}

impl Load {
    /// Checks the requests to the store in the last `SPAN`.
    pub(super) fn check(&mut self, facts: &Facts<'_>) -> Result<(), Violation> {
        let asked: Vec<u32> = facts.processes.iter().map(|process| process.asked).collect();
        let before = std::mem::replace(&mut self.asked, asked);
        let version = std::mem::replace(&mut self.version, facts.table.version().number);
        let active = facts.table.rows().filter(|row| row.status == SiloStatus::Active).count();
        let quiet = facts.expects.tight && facts.calm.was_quiet(facts.now, SPAN + BEFORE);
        // Votes that stand keep their monitors from confirming; the table confirms instead, often.
        let votes =
            facts.table.rows().any(|row| row.status != SiloStatus::Dead && !row.votes.is_empty());
        let changed = version != self.version;
        if !quiet
            || changed
            || votes
            || active < SILOS_MIN
            || i10_convergence::why_not_whole(facts).is_some()
        {
            return Ok(());
        }
        let config = &facts.scenario.config;

        let times = |period: Duration| {
            (SPAN.as_millis() / period.as_millis().max(1)).try_into().unwrap_or(u32::MAX)
        };
        let limit =
            times(config.publish_period(active)) + times(config.table_refresh_timeout) + MORE;
        for (process, before) in facts.processes.iter().zip(before) {
            let asked = process.asked - before;
            if asked > limit {
                let what = format!(
                    "{} sent the store {asked} requests in {} s in which nothing happened",
                    process.address,
                    SPAN.as_secs()
                );
                return Err(facts.violated("I13", what));
            }
        }
        Ok(())
    }
}
