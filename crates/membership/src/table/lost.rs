//! The ways in which a silo finds out that its table went back, is another one, or is gone.
//!
//! The etags keep such a silo from writing. But other silos may join the new table and take over
//! its grains, and no silo there knows of it, so it has to end.
//!
//! * Another identity in the version row is proof, and so is another etag under the number of the
//!   view in force.
//! * An older version, and no table at all, may be the word of a server that lags for a moment.
//!   They have to last for ten seconds.

use std::time::Duration;

use emmer_core::{Instant, TableId, TableVersion};

use crate::api::{Event, TerminateReason};
use crate::facts::Facts;
use crate::inner::Inner;
use crate::out::Out;
use crate::snapshot::TableSnapshot;
use crate::timers::Timer;

/// Number of reads in a row that showed an older version than the view in force, after which the
/// table has gone back.
const OLDER_READS_MAX: u32 = 20;

/// The pause between two such reads.
const OLDER_READ_PAUSE: Duration = Duration::from_millis(500);

/// A table that is missing for this time is gone.
const MISSING_FOR: Duration = Duration::from_secs(10);

/// The least number of requests that find it missing, however far they lie apart.
const MISSING_ANSWERS: u32 = 4;

/// The evidence that the table is lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Loss {
    /// The table that this silo joined. Once known it stays.
    table: TableId,
    /// The number of reads in a row that showed an older version than the view in force.
    older_reads: u32,
    /// The first of the last answers in a row by which the table is not there, and their number.
    missing: Option<(Instant, u32)>,
}

impl Loss {
    /// The table shows the view in force, or a later one.
    pub(super) const fn saw_table_move_on(&mut self) {
        self.older_reads = 0;
    }

    /// The table is there.
    pub(super) const fn saw_table(&mut self) {
        self.missing = None;
    }

    /// Returns true if the table was missing when it was last asked.
    pub(super) const fn is_missing(&self) -> bool {
        self.missing.is_some()
    }

    /// The version that a commit is based on, with the identity to be written. A silo that makes
    /// the version row draws one.
    pub(super) fn commit_base(&self, facts: &Facts, out: &mut Out) -> TableVersion {
        let mut base = facts.view().table_version().clone();
        base.table = if base.etag.is_empty() {
            TableId::new(out.dice().below(u64::MAX).saturating_add(1))
        } else {
            self.table
        };
        base
    }

    /// Learns the identity of its table from `version`, if it is not known yet. Returns false, and
    /// changes nothing, if `version` is certainly of another table.
    pub(super) fn knows_table_of(&mut self, version: &TableVersion) -> bool {
        if self.table.is_unknown() {
            self.table = version.table;
        }
        !self.table.is_another(version.table)
    }

    /// The table was read. Returns false if it is certainly another one than this silo joined; the
    /// silo ends then.
    pub(super) fn read_my_table(&mut self, out: &mut Out, version: &TableVersion) -> bool {
        let mine = self.knows_table_of(version);
        if !mine {
            out.tell(Inner::End(TerminateReason::TableReplaced));
        }
        mine
    }

    /// The table showed an older version than the view in force. A replica may lag for a moment. A
    /// table that shows nothing else for ten seconds has lost a commit that this silo saw. Others
    /// may act on the loss, so this silo has to end.
    pub(super) fn saw_older_table(&mut self, facts: &Facts, out: &mut Out, version: &TableVersion) {
        self.older_reads += 1;
        if self.older_reads >= OLDER_READS_MAX && facts.standing().is_in_table() {
            // A table without its version row is a new one.
            let gone = version.etag.is_empty();
            let reason =
                if gone { TerminateReason::TableGone } else { TerminateReason::TableWentBack };
            out.tell(Inner::End(reason));
            return;
        }
        out.timers().set_no_later(Timer::Refresh, facts.now().mono + OLDER_READ_PAUSE);
    }

    /// The store answers, and has no table. Returns true if this silo continues.
    pub(super) fn bears_missing_table(&mut self, facts: &Facts, out: &mut Out) -> bool {
        let now = facts.now().mono;
        if self.missing.is_none() {
            out.event(Event::TableMissing);
        }
        let (since, answers) = self.missing.get_or_insert((now, 0));
        *answers = answers.saturating_add(1);
        let lasts = now.saturating_since(*since);
        if lasts >= MISSING_FOR && *answers >= MISSING_ANSWERS {
            out.tell(Inner::End(TerminateReason::TableGone));
            return false;
        }
        true
    }
}

/// Returns true if the table has another commit under the number of the view in force: it has lost
/// the commit that this silo saw.
pub(super) fn is_another_history(facts: &Facts, version: &TableVersion) -> bool {
    let mine = facts.view().table_version();
    version.number == mine.number && version.etag != mine.etag
}

/// Returns true if `snapshot`, at the version of the view in force, has no row of this silo
/// although the view has one. Every writer moves the version on, so the row was deleted by hand.
pub(super) fn lacks_own_row(facts: &Facts, snapshot: &TableSnapshot) -> bool {
    let me = facts.me();
    facts.view().get(&me).is_some() && snapshot.rows.iter().all(|row| row.address != me)
}
