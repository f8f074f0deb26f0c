//! How a silo finds out that its table is not what it was: it went back, another one is in its
//! place, or it is gone.
//!
//! The etags keep such a silo from writing. But others may join the new table and take over its
//! grains, and nobody there knows of it, so it has to end.
//!
//! * Another identity in the version row is proof, and so is another etag under the number of the
//!   view in force.
//! * An older version, and no table at all, may be the word of a server that lags for a moment.
//!   They have to last for ten seconds.

use std::time::Duration;

use emmer_core::{Instant, Now, TableId, TableVersion};

use crate::api::{Effect, Event, TableSnapshot, TerminateReason};
use crate::membership::Membership;
use crate::timers::Timer;

/// After so many reads in a row that showed an older version than the view in force, the table has
/// gone back.
const OLDER_READS_MAX: u32 = 20;

/// The pause between two such reads.
const OLDER_READ_PAUSE: Duration = Duration::from_millis(500);

/// A table that is not there for so long is gone.
const MISSING_FOR: Duration = Duration::from_secs(10);

/// So many requests have to say so, however far they lie apart.
const MISSING_ANSWERS: u32 = 4;

/// What speaks for a table that is lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Loss {
    /// The table that this silo joined. Once known it stays.
    table: TableId,
    /// How many reads in a row showed an older version than the view in force.
    older_reads: u32,
    /// Since when, and how often in a row, the store has said that the table is not there.
    missing: Option<(Instant, u32)>,
}

impl Loss {
    /// The table shows the view in force, or a later one.
    pub(crate) const fn saw_table_move_on(&mut self) {
        self.older_reads = 0;
    }

    /// The table is there.
    pub(crate) const fn saw_table(&mut self) {
        self.missing = None;
    }

    /// Whether the store said last that the table is not there.
    pub(crate) const fn is_missing(&self) -> bool {
        self.missing.is_some()
    }
}

impl Membership {
    /// The version that a commit is based on, with the identity to be written. A silo that makes
    /// the version row draws one.
    pub(crate) fn commit_base(&mut self) -> TableVersion {
        let mut base = self.view.table_version().clone();
        base.table = if base.etag.is_empty() {
            TableId::new(self.dice.below(u64::MAX).saturating_add(1))
        } else {
            self.loss.table
        };
        base
    }

    /// Whether `version` is certainly not of the table that this silo joined. Learns which that is.
    pub(crate) fn is_of_another_table(&mut self, version: &TableVersion) -> bool {
        if self.loss.table.is_unknown() {
            self.loss.table = version.table;
        }
        self.loss.table.is_another(version.table)
    }

    /// Whether the table that was read is the one that this silo joined. The silo ends if not.
    pub(crate) fn read_my_table(&mut self, version: &TableVersion) -> bool {
        let another = self.is_of_another_table(version);
        if another {
            self.terminate(TerminateReason::TableReplaced);
        }
        !another
    }

    /// Whether the table at the version of the view in force is not the table that this view shows:
    /// it has lost commits, and others have taken their numbers.
    pub(crate) fn is_another_history(&self, version: &TableVersion) -> bool {
        let mine = self.view.table_version();
        version.number == mine.number && version.etag != mine.etag
    }

    /// The table showed an older version than the view in force. A replica may lag for a moment; a
    /// table that shows nothing else for ten seconds has lost what this silo saw committed. Others
    /// may act on what is lost, so this silo has to end.
    pub(crate) fn saw_older_table(&mut self, now: Now, version: &TableVersion) {
        self.loss.older_reads += 1;
        if self.loss.older_reads >= OLDER_READS_MAX && self.standing.is_in_table() {
            // Without its version row it is a new table, in which nothing was written yet.
            let gone = version.etag.is_empty();
            let reason =
                if gone { TerminateReason::TableGone } else { TerminateReason::TableWentBack };
            self.terminate(reason);
            return;
        }
        self.timers.set_no_later(Timer::Refresh, now.mono + OLDER_READ_PAUSE);
    }

    /// Whether the table at the view in force has no row of this silo, although the view has one.
    /// Every writer moves the version on, so the row was deleted by hand.
    pub(crate) fn lacks_own_row(&mut self, snapshot: &TableSnapshot) -> bool {
        let me = self.me.address;
        let lacks = self.view.get(&me).is_some() && snapshot.rows.iter().all(|r| r.address != me);
        if lacks {
            self.effects.push_back(Effect::Event(Event::OwnRowDeleted));
        }
        lacks
    }

    /// The store answers, and has no table. Whether this silo goes on.
    pub(crate) fn bears_missing_table(&mut self, now: Now) -> bool {
        if self.loss.missing.is_none() {
            self.effects.push_back(Effect::Event(Event::TableMissing));
        }
        let (since, answers) = self.loss.missing.get_or_insert((now.mono, 0));
        *answers = answers.saturating_add(1);
        let lasts = now.mono.saturating_since(*since);
        if lasts >= MISSING_FOR && *answers >= MISSING_ANSWERS {
            self.terminate(TerminateReason::TableGone);
            return false;
        }
        true
    }
}
