//! Counts of the machine, for metrics. No behaviour depends on them.

use std::time::Duration;

/// Monotonic counters since the silo started. The shell turns them into metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counters {
    /// Direct probes sent.
    pub probes_sent: u64,
    /// Answers to own direct probes.
    pub probes_answered: u64,
    /// Own direct probes that timed out.
    pub probes_missed: u64,
    /// Probes received from others.
    pub probes_received: u64,
    /// Indirect probes asked of others.
    pub indirect_probes_sent: u64,
    /// Dials made because of a broken connection or an unreachable member.
    pub dials: u64,
    /// Dials that were refused.
    pub dials_refused: u64,
    /// Suspicions that were withdrawn because the suspect answered after all.
    pub suspicions_withdrawn: u64,
    /// Votes handed to a writer (or written) by this silo.
    pub votes_cast: u64,
    /// Votes against this silo seen in views.
    pub votes_received: u64,
    /// Deaths of others that this silo wrote.
    pub deaths_declared: u64,
    /// Commits tried.
    pub commits: u64,
    /// Rows written by commits that succeeded.
    pub rows_written: u64,
    /// Commits that lost the compare-and-set.
    pub commits_lost: u64,
    /// Commits whose outcome was unknown.
    pub commits_unknown: u64,
    /// Reads of the whole table.
    pub reads: u64,
    /// Reads of some rows.
    pub samples: u64,
    /// Reads of the version row.
    pub version_reads: u64,
    /// Rows those reads returned.
    pub rows_read: u64,
    /// Requests the table did not answer.
    pub table_unavailable: u64,
    /// Views installed.
    pub views_installed: u64,
    /// Of those, as snapshots.
    pub snapshots_installed: u64,
    /// Deltas that did not fit and were replaced by a pull.
    pub delta_gaps: u64,
    /// Intents received from others while writing for them.
    pub intents_received: u64,
    /// Messages of silos in no view that were not obeyed.
    pub refused: u64,
    /// Times the fence closed.
    pub fences: u64,
    /// The longest time between a direct probe and its answer.
    pub longest_answer: Duration,
}
