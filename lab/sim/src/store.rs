//! Path between a silo and the table: latency, outages, unknown outcomes, stale and torn reads.

use std::time::Duration;

use emmer_core::rng::SeededRng;
use emmer_membership::{TableOutcome, TableRequest};

use crate::net::{HostSet, Latency};
use crate::table::{Author, Refused, Table};
use crate::time::VirtualTime;

/// Maximum time for which a client waits for a store that does not answer.
pub const STORE_TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum lag of a replica. A silo that sees nothing newer than its view for ten seconds ends: the
/// table has lost a commit.
pub const REPLICA_LAG: Duration = Duration::from_secs(5);

/// Delay of some answers.
const MINUTE: Duration = Duration::from_secs(60);

/// The store's properties. The shares are of single requests, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StoreModel {
    /// One way; a round trip is two of them.
    pub latency: Latency,
    /// Commits that are applied but whose answer is lost.
    pub unknown_applied: f64,
    /// Commits that never arrive but might have.
    pub unknown_lost: f64,
    /// Commits whose answer is lost and that arrive only later, when the silo has perhaps tried
    /// again.
    pub unknown_late: f64,
    /// Requests that fail without any effect, at once.
    pub unavailable: f64,
    /// Requests that are carried out and never answered.
    pub never_answered: f64,
    /// Requests that are carried out and answered a minute later.
    pub minute_late: f64,
    /// Reads of rows answered by a replica that lags behind (off unless the store is one of those).
    /// The version row alone is always read from where commits go: the store contract asks for it.
    pub stale_reads: f64,
    /// Maximum commits that such a replica lags behind; never one that is older than
    /// [`REPLICA_LAG`].
    pub stale_back_max: u32,
    /// Reads of the whole table torn by a commit. The store contract forbids it: only to show what
    /// would happen.
    pub torn_reads: f64,
}

impl Default for StoreModel {
    /// A round trip of 5 ms and no faults: the reference point of the goals in
    /// lab/numbers.md.
    fn default() -> Self {
        Self {
            latency: Latency::even(Duration::from_micros(2_400), Duration::from_micros(200)),
            unknown_applied: 0.0,
            unknown_lost: 0.0,
            unknown_late: 0.0,
            unavailable: 0.0,
            never_answered: 0.0,
            minute_late: 0.0,
            stale_reads: 0.0,
            stale_back_max: 3,
            torn_reads: 0.0,
        }
    }
}

impl StoreModel {
    /// A store with this round trip and no faults.
    pub fn with_round_trip(round_trip: Duration) -> Self {
        let latency = Latency::even(round_trip.mul_f64(0.48), round_trip.mul_f64(0.04));
        Self { latency, ..Self::default() }
    }

    /// Returns true if nothing is wrong with it but commits that arrive late.
    pub fn is_true_but_late(&self) -> bool {
        [
            self.unavailable,
            self.never_answered,
            self.minute_late,
            self.stale_reads,
            self.latency.tail,
            self.unknown_lost,
            self.unknown_applied,
        ]
        .iter()
        .all(|share| *share == 0.0)
    }
}

/// Counters of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Commits that arrived.
    pub commits_tried: u64,
    /// Commits that lost the compare-and-set.
    pub commits_lost: u64,
    /// Commits that were applied.
    pub commits: u64,
    /// Reads of the whole table.
    pub reads: u64,
    /// Reads of the version row alone.
    pub version_reads: u64,
    /// Reads of the version row and a few others.
    pub samples: u64,
    /// Rows that all reads returned, version rows included.
    pub rows_read: u64,
    /// IAmAlive writes.
    pub touches: u64,
}

/// Answer of the world to a request that arrived at the store.
#[derive(Debug)]
pub enum Answer {
    /// Reports this outcome after this long; `committed` when the table has a new version.
    Reply {
        /// Outcome to report.
        outcome: TableOutcome,
        /// Time from now.
        after: Duration,
        /// True if the table has a new version now.
        committed: bool,
    },
    /// Reports nothing, ever.
    Silence {
        /// True if the table has a new version now.
        committed: bool,
    },
    /// Reports `Unknown` after the first delay, and lets the request arrive (again) after the
    /// second.
    Late {
        /// When the silo hears `Unknown`.
        report_after: Duration,
        /// When the request takes effect after all.
        arrive_after: Duration,
        /// The request.
        request: TableRequest,
    },
    /// The request broke a rule that every store enforces.
    Malformed,
}

/// The store: its table and the faults in force now.
#[derive(Debug)]
pub struct Store {
    /// The truth.
    pub table: Table,
    /// Requests to it.
    pub stats: StoreStats,
    model: StoreModel,
    rng: SeededRng,
    /// Number of outage windows that are open.
    outages: u32,
    /// Hosts that cannot reach it now, by the number of the cut.
    cuts: Vec<(u32, HostSet)>,
}

impl Store {
    /// An empty store.
    pub fn new(model: StoreModel, seed: u64) -> Self {
        Self {
            table: Table::default(),
            stats: StoreStats::default(),
            model,
            rng: SeededRng::new(seed),
            outages: 0,
            cuts: Vec::new(),
        }
    }

    /// Time for which a request or an answer travels.
    pub fn travel(&mut self) -> Duration {
        self.model.latency.draw(&mut self.rng)
    }

    /// Begins an outage.
    pub const fn fail(&mut self) {
        self.outages += 1;
    }

    /// Ends an outage.
    pub const fn recover(&mut self) {
        self.outages = self.outages.saturating_sub(1);
    }

    /// Returns true if an outage is on.
    pub const fn is_out(&self) -> bool {
        self.outages > 0
    }

    /// Makes `hosts` unable to reach the store.
    pub fn cut(&mut self, id: u32, hosts: HostSet) {
        self.cuts.push((id, hosts));
    }

    /// Ends the cut with this number.
    pub fn heal(&mut self, id: u32) {
        self.cuts.retain(|(cut, _)| *cut != id);
    }

    /// Returns true if `host` cannot reach the store now.
    pub fn is_cut_off(&self, host: u32) -> bool {
        self.outages > 0 || self.cuts.iter().any(|(_, hosts)| hosts.contains(host))
    }

    /// Removes every random fault; faults in windows end by themselves.
    pub const fn calm(&mut self) {
        let latency = self.model.latency;
        self.model = StoreModel {
            latency,
            unknown_applied: 0.0,
            unknown_lost: 0.0,
            unknown_late: 0.0,
            unavailable: 0.0,
            never_answered: 0.0,
            minute_late: 0.0,
            stale_reads: 0.0,
            stale_back_max: 0,
            torn_reads: 0.0,
        };
    }

    /// Serves `request` of `author` on `host`, which arrived at `at`. `late` requests were already
    /// answered with `Unknown`: they only take effect.
    pub fn serve(
        &mut self,
        at: VirtualTime,
        author: Author,
        host: u32,
        request: &TableRequest,
        late: bool,
    ) -> Answer {
        if self.is_cut_off(host) {
            return self.refuse(request);
        }
        if !late && let Some(answer) = self.misfortune(request) {
            return answer;
        }
        let answer_lost = matches!(request, TableRequest::Commit { .. })
            && self.rng.chance(self.model.unknown_applied);
        let outcome = match self.perform(at, author, request) {
            Ok(outcome) => outcome,
            Err(malformed) => return malformed,
        };
        let committed = matches!(outcome, TableOutcome::Committed(_));
        let mut after = self.travel();
        if !late && self.model.never_answered > 0.0 && self.rng.chance(self.model.never_answered) {
            return Answer::Silence { committed };
        }
        if !late && self.model.minute_late > 0.0 && self.rng.chance(self.model.minute_late) {
            after += MINUTE;
        }
        if answer_lost {
            return Answer::Reply {
                outcome: TableOutcome::Unknown,
                after: STORE_TIMEOUT,
                committed,
            };
        }
        Answer::Reply { outcome, after, committed }
    }

    fn perform(
        &mut self,
        at: VirtualTime,
        author: Author,
        request: &TableRequest,
    ) -> Result<TableOutcome, Answer> {
        if self.table.dropped {
            return Ok(TableOutcome::TableMissing);
        }
        Ok(match request {
            TableRequest::ReadAll => {
                self.stats.reads += 1;
                self.stats.rows_read += self.table.len() as u64 + 1;
                let back = self.staleness().min(self.table.commits_since(at, REPLICA_LAG));
                TableOutcome::Snapshot(
                    if self.model.torn_reads > 0.0 && self.rng.chance(self.model.torn_reads) {
                        self.table.snapshot_torn()
                    } else if back > 0 {
                        self.table.snapshot_back(back)
                    } else {
                        self.table.snapshot()
                    },
                )
            }
            TableRequest::ReadSome { near, rows } => {
                self.stats.samples += 1;
                let sample = self.table.sample(near, *rows as usize);
                self.stats.rows_read += sample.len() as u64;
                TableOutcome::Sample(sample)
            }
            TableRequest::ReadVersion => {
                self.stats.version_reads += 1;
                self.stats.rows_read += 1;
                // The store contract: the version alone is read from where commits go. From a
                // replica that lags it would confirm a dead silo.
                TableOutcome::Version(self.table.version().clone())
            }
            TableRequest::Commit { base, rows, deletes } => {
                self.stats.commits_tried += 1;
                match self.table.commit(at, author, base, rows, deletes) {
                    Ok(_) => {
                        self.stats.commits += 1;
                        TableOutcome::Committed(self.table.version().clone())
                    }
                    Err(Refused::Conflict) => {
                        self.stats.commits_lost += 1;
                        TableOutcome::Conflict
                    }
                    Err(Refused::Malformed) => return Err(Answer::Malformed),
                }
            }
            TableRequest::Touch { silo, at: time } => {
                self.stats.touches += 1;
                if self.table.touch(at, silo, *time) {
                    TableOutcome::Touched
                } else {
                    TableOutcome::RowMissing
                }
            }
        })
    }

    /// A store that is out answers nothing (half the time) or fails at once; a commit without an
    /// answer may have been applied.
    fn refuse(&mut self, request: &TableRequest) -> Answer {
        let silent = self.rng.chance(0.5);
        let after = if silent { STORE_TIMEOUT } else { self.travel() };
        let commit = matches!(request, TableRequest::Commit { .. });
        let outcome =
            if silent && commit { TableOutcome::Unknown } else { TableOutcome::Unavailable };
        Answer::Reply { outcome, after, committed: false }
    }

    fn misfortune(&mut self, request: &TableRequest) -> Option<Answer> {
        if self.model.unavailable > 0.0 && self.rng.chance(self.model.unavailable) {
            let after = self.travel();
            return Some(Answer::Reply {
                outcome: TableOutcome::Unavailable,
                after,
                committed: false,
            });
        }
        if !matches!(request, TableRequest::Commit { .. }) {
            return None;
        }
        if self.model.unknown_lost > 0.0 && self.rng.chance(self.model.unknown_lost) {
            return Some(Answer::Reply {
                outcome: TableOutcome::Unknown,
                after: STORE_TIMEOUT,
                committed: false,
            });
        }
        if self.model.unknown_late > 0.0 && self.rng.chance(self.model.unknown_late) {
            let arrive_after = self.rng.duration_below(STORE_TIMEOUT * 2);
            let request = request.clone();
            return Some(Answer::Late { report_after: STORE_TIMEOUT, arrive_after, request });
        }
        None
    }

    fn staleness(&mut self) -> usize {
        if self.model.stale_reads > 0.0 && self.rng.chance(self.model.stale_reads) {
            1 + self.rng.index(self.model.stale_back_max as usize)
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use emmer_core::{SiloAddress, SiloEntry, SiloStatus, TableVersion, Timestamp};

    use super::*;

    const AUTHOR: Author =
        Author { process: 0, wall: Timestamp::from_millis(0), at: VirtualTime::ZERO };

    fn commit() -> TableRequest {
        let address = SiloAddress::new(([10, 0, 0, 1], 1).into(), 1);
        let row = SiloEntry::new(address, SiloStatus::Joining, Timestamp::from_millis(5));
        TableRequest::Commit { base: TableVersion::default(), rows: vec![row], deletes: vec![] }
    }

    fn serve(model: StoreModel) -> (TableOutcome, u64) {
        let mut store = Store::new(model, 1);
        match store.serve(VirtualTime::ZERO, AUTHOR, 0, &commit(), false) {
            Answer::Reply { outcome, .. } => (outcome, store.table.version().number),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn unknown_outcomes_come_in_both_kinds() {
        let applied = serve(StoreModel { unknown_applied: 1.0, ..StoreModel::default() });
        assert_eq!(applied, (TableOutcome::Unknown, 1));
        let lost = serve(StoreModel { unknown_lost: 1.0, ..StoreModel::default() });
        assert_eq!(lost, (TableOutcome::Unknown, 0));
    }

    #[test]
    fn an_outage_has_no_effect_on_the_table() {
        let mut store = Store::new(StoreModel::default(), 1);
        store.fail();
        for _ in 0..20 {
            let Answer::Reply { outcome, committed, .. } =
                store.serve(VirtualTime::ZERO, AUTHOR, 0, &commit(), false)
            else {
                panic!("malformed")
            };
            assert!(
                matches!(outcome, TableOutcome::Unknown | TableOutcome::Unavailable) && !committed
            );
        }
        store.recover();
        assert_eq!(store.table.version().number, 0);
    }

    #[test]
    fn a_host_cut_off_is_the_only_one_that_does_not_reach_the_store() {
        let mut store = Store::new(StoreModel::default(), 1);
        store.cut(7, HostSet::from_iter([3]));
        assert!(store.is_cut_off(3) && !store.is_cut_off(2));
        store.heal(7);
        assert!(!store.is_cut_off(3));
    }
}
