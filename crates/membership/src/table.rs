//! One request to the table at a time, and what its outcome means.
//!
//! * `Unknown` is followed by a read before anything else: the commit may have happened.
//! * `Unavailable` is followed by a pause that grows, with jitter; nothing is lost by it, because
//!   every wish is evaluated anew against the view of the moment.
//! * A request without an outcome after `table_timeout` is forgotten as unknown.

use std::time::Duration;

use emmer_core::{Instant, Now, TableVersion};

use crate::api::{Effect, Event, OpId, TableOutcome, TableRequest, TerminateReason};
use crate::inner::Read;
use crate::membership::Membership;
use crate::message::Message;
use crate::rules::touch_lasts;
use crate::snapshot::TableSnapshot;
use crate::staleness::EVIDENCE_MAX;
use crate::timers::Timer;
use crate::write::{self, Draft};

/// What is in flight, what is wanted, and how the table has behaved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct TableLane {
    next_op: u64,
    main: Option<(OpId, Asked, Instant)>,
    touch: Option<(OpId, Instant)>,
    /// When the last touch that succeeded had been sent.
    touched: Option<Instant>,
    /// Until when somebody may still count with this silo's row as stale, after a pause between two
    /// touches.
    stale_until: Option<Instant>,
    /// A whole read is wanted.
    want_all: bool,
    /// A read of the version row is wanted.
    want_version: bool,
    /// A read of the version row and some Active rows is wanted (joining).
    want_sample: bool,
    /// A commit's outcome is unknown since a base of this version: nothing but a read may follow.
    unknown_since: Option<u64>,
    /// A commit with an unknown outcome may still arrive. If nothing is left to write, its base has
    /// to be taken from it: a death must not appear in the table when nobody waits for it any more.
    unsettled: bool,
    /// The view is fresh from the table, read for the commit that follows (classic only).
    fresh: bool,
    /// The table did not answer the last request.
    down: bool,
    failures: u32,
    losses: u32,
    /// The version that the last read of the version row showed, newer than the view in force, and
    /// when that read had been sent. A read of all rows does not count: it may come from a replica
    /// that lags.
    ahead: Option<(TableVersion, Instant)>,
}

impl TableLane {
    /// A read is wanted as soon as the lane is free.
    pub(crate) const fn want(&mut self, read: Read) {
        match read {
            Read::All => self.want_all = true,
            Read::Version => self.want_version = true,
            Read::Sample => self.want_sample = true,
        }
    }

    /// A sample is enough; nothing needs every row.
    pub(crate) const fn want_only_a_sample(&mut self) {
        self.want_all = false;
        self.want_sample = true;
    }

    /// Whether the table left the last request unanswered.
    pub(crate) const fn is_down(&self) -> bool {
        self.down
    }

    /// When the last touch that succeeded had been sent.
    pub(crate) const fn touched(&self) -> Option<Instant> {
        self.touched
    }

    /// The row was as good as touched at `at`: this silo has become Active.
    pub(crate) const fn start_touching(&mut self, at: Instant) {
        self.touched = Some(at);
    }

    /// Whether nobody counts with this silo's row as stale: it was touched less than `lasts` ago,
    /// and not after too long a pause.
    pub(crate) fn is_row_fresh(&self, now: Now, lasts: Duration) -> bool {
        self.touched.is_some_and(|at| now.mono.saturating_since(at) < lasts)
            && self.stale_until.is_none_or(|until| now.mono >= until)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Asked {
    All,
    Version,
    Sample,
    Commit(Box<Draft>),
}

impl Membership {
    fn ask(&mut self, now: Now, asked: Asked, request: TableRequest) {
        let op = self.new_op();
        self.table.main = Some((op, asked, now.mono));
        self.out.timers().set(Timer::TableTimeout, now.mono + self.facts.config().table_timeout);
        self.out.effect(Effect::Table { op, request });
    }

    fn new_op(&mut self) -> OpId {
        self.table.next_op += 1;
        OpId(self.table.next_op)
    }

    /// Starts the next request, if one is due and none is in flight.
    pub(crate) fn pump_table(&mut self, now: Now) {
        if self.is_done()
            || self.table.main.is_some()
            || self.out.timers().is_set(Timer::TableRetry)
        {
            return;
        }
        if self.table.unknown_since.is_some() || self.table.want_all {
            self.table.want_all = false;
            self.table.want_version = false;
            self.out.count().reads += 1;
            self.ask(now, Asked::All, TableRequest::ReadAll);
        } else if self.table.want_sample {
            self.table.want_sample = false;
            self.out.count().samples += 1;
            let rows = self.facts.config().join_sample_rows;
            let near = self.facts.me();
            self.ask(now, Asked::Sample, TableRequest::ReadSome { near, rows });
        } else {
            // A commit says as much about this silo as a read of the version, and must not wait for
            // those that the fence wants one after the other.
            if self.facts.standing().knows_table() && !self.out.timers().is_set(Timer::Flush) {
                self.pump_commit(now);
            }
            if self.table.want_version && self.table.main.is_none() && !self.is_done() {
                self.table.want_version = false;
                self.out.count().version_reads += 1;
                self.ask(now, Asked::Version, TableRequest::ReadVersion);
            }
        }
    }

    fn pump_commit(&mut self, now: Now) {
        if self.write.is_idle() && !self.table.unsettled {
            return;
        }
        // Membership description, step 8: "S first reads the latest table state". With ordered
        // views the view in force is as good as a read: if it is not the latest, the conditional
        // commit fails.
        if !self.facts.config().batch_writes && !self.table.fresh {
            if self.draft().is_some() {
                self.table.want(Read::All);
                self.table.fresh = true;
                self.pump_table(now);
            }
            return;
        }
        // Votes are counted with staleness as it is now, not as it was when the rows were last read
        // (I6).
        if self.write.has_votes() && self.facts.rows().is_dated(now) {
            self.table.want(Read::All);
            self.pump_table(now);
            return;
        }
        let drafted = self.draft();
        let settling =
            std::mem::take(&mut self.table.unsettled) && self.facts.standing().is_in_table();
        let Some(draft) =
            drafted.or_else(|| settling.then(|| write::draft_nothing(&self.facts)).flatten())
        else {
            return;
        };
        self.table.fresh = false;
        let superseded = draft.superseded();
        if let Some((_, by)) = superseded.iter().find(|(old, _)| *old == self.facts.me()) {
            // The successor's wish is proof enough; it will find another writer, or write itself.
            self.terminate(TerminateReason::Superseded(*by));
            return;
        }
        self.out.count().commits += 1;
        // Whoever is about to be declared dead by its successor's arrival is told first: it may be
        // alive and serving.
        for (old, by) in superseded {
            self.out.send(old, Message::Superseded { by });
        }
        let request = draft.request(self.commit_base());
        self.ask(now, Asked::Commit(Box::new(draft)), request);
    }

    /// Reports what became of a request to the table.
    pub(crate) fn on_table(&mut self, now: Now, op: OpId, outcome: TableOutcome) {
        if let Some((_, sent)) = self.table.touch.take_if(|(expected, _)| *expected == op) {
            self.out.timers().clear(Timer::TouchTimeout);
            self.on_touched(now, &outcome, sent);
            return;
        }
        let Some((_, asked, sent)) = self.table.main.take_if(|(expected, ..)| *expected == op)
        else {
            return;
        };
        self.out.timers().clear(Timer::TableTimeout);
        if outcome.is_answer() {
            self.table_answered(now, sent);
        }
        match (asked, outcome) {
            (asked, TableOutcome::TableMissing) => {
                if self.bears_missing_table(now) {
                    self.want_again(&asked);
                    self.pause_table(now);
                }
            }
            (Asked::All, TableOutcome::Snapshot(snapshot)) => {
                self.on_snapshot(now, &snapshot, sent);
            }
            (Asked::Version, TableOutcome::Version(version)) => {
                self.on_version(now, &version, sent);
            }
            (Asked::Sample, TableOutcome::Sample(rows)) => {
                self.out.count().rows_read += rows.len() as u64;
                self.join.on_sample(&self.facts, &mut self.out, &rows);
                self.drain();
            }
            (Asked::Commit(draft), TableOutcome::Committed(version)) => {
                self.table.losses = 0;
                // It was the latest view that the commit was based on.
                if draft.base_number() == self.facts.view().version() {
                    self.confirm_by_table(sent);
                }
                self.on_committed(now, *draft, version);
                self.confirm_by_table(sent);
            }
            (Asked::Commit(draft), TableOutcome::Conflict) => {
                self.on_conflict(now, draft.base_number());
            }
            (Asked::Commit(draft), TableOutcome::Unknown) => {
                self.out.count().commits_unknown += 1;
                self.table.unsettled = true;
                self.table.unknown_since = Some(draft.base_number());
                self.pause_table(now);
            }
            (asked, _) => {
                self.want_again(&asked);
                self.pause_table(now);
            }
        }
    }

    fn want_again(&mut self, asked: &Asked) {
        match asked {
            Asked::All => self.table.want(Read::All),
            Asked::Version => self.table.want(Read::Version),
            Asked::Sample => self.table.want(Read::Sample),
            Asked::Commit(_) => {}
        }
    }

    fn table_answered(&mut self, now: Now, sent: Instant) {
        self.loss.saw_table();
        self.table.failures = 0;
        self.facts.hear_table(sent);
        if std::mem::take(&mut self.table.down) {
            self.facts.forgive_rows();
            // Otherwise the next touch may be seconds away.
            if self.fence.rests_on_touches(&self.facts) {
                self.touch(now);
            }
            self.out.event(Event::StoreBack);
        }
    }

    /// The table did not answer: waits before the next request, longer each time.
    fn pause_table(&mut self, now: Now) {
        self.out.count().table_unavailable += 1;
        if !std::mem::replace(&mut self.table.down, true) && !self.loss.is_missing() {
            self.out.event(Event::StoreUnavailable);
        }
        self.table.fresh = false;
        let attempt = self.table.failures;
        self.table.failures = self.table.failures.saturating_add(1);
        self.set_table_retry(now, attempt);
    }

    fn set_table_retry(&mut self, now: Now, attempt: u32) {
        let delay = self.out.dice().backoff(
            self.facts.config().table_retry_min,
            self.facts.config().table_retry_max,
            attempt,
        );
        self.out.timers().set(Timer::TableRetry, now.mono + delay);
    }

    /// The request in flight has no outcome: forgets it, as unknown.
    pub(crate) fn on_table_timeout(&mut self, now: Now) {
        if let Some((op, ..)) = self.table.main {
            self.on_table(now, op, TableOutcome::Unknown);
        }
    }

    fn on_snapshot(&mut self, now: Now, snapshot: &TableSnapshot, sent: Instant) {
        self.out.count().rows_read += 1 + snapshot.rows.len() as u64;
        if !self.read_my_table(&snapshot.version) {
            return;
        }
        let version = snapshot.version.number;
        if self.table.unknown_since.is_some_and(|base| version < base)
            || version < self.facts.view().version()
        {
            // Older than what is known to have existed: a replica that lags, or a table that went
            // back.
            self.table.fresh = false;
            if version < self.facts.view().version() {
                self.saw_older_table(now, &snapshot.version);
            }
            self.table.want_all |= self.table.unknown_since.is_some();
            self.set_table_retry(now, 0);
            return;
        }
        if self.table.unknown_since.take().is_some_and(|base| version > base) {
            self.table.unsettled = false;
        }
        self.loss.saw_table_move_on();
        if version == self.facts.view().version()
            && self.facts.standing().is_in_table()
            && self.is_another_history(&snapshot.version)
        {
            self.terminate(TerminateReason::TableWentBack);
            return;
        }
        if version == self.facts.view().version() && self.lacks_own_row(snapshot) {
            self.out.event(Event::OwnRowDeleted);
            // To be written again on top of what was read.
            self.table.unsettled = true;
            self.table.fresh = true;
        }
        self.facts.standing_mut().saw_table();
        self.facts.observe_rows(sent, &snapshot.rows);
        // Nobody dead comes back: who lives in newer rows was not dead when an earlier version was
        // read. These rows themselves may come from a replica that lags.
        let lived =
            self.table.ahead.take_if(|(ahead, _)| ahead.number < version).map(|(_, sent)| sent);
        self.install_read(now, snapshot);
        if let Some(sent) = lived {
            self.confirm_by_table(sent);
        }
        self.detect.consider_stale(&self.facts, &mut self.out);
        self.drain();
        self.join.on_read(&self.facts, &mut self.out);
        self.drain();
    }

    fn on_version(&mut self, now: Now, version: &TableVersion, sent: Instant) {
        self.out.count().rows_read += 1;
        if !self.read_my_table(version) {
            return;
        }
        if version.number < self.facts.view().version() {
            self.saw_older_table(now, version);
            return;
        }
        self.loss.saw_table_move_on();
        if version.number > self.facts.view().version() {
            self.table.ahead = Some((version.clone(), sent));
            self.catch_up(now, version.number);
        } else if self.is_another_history(version) {
            self.terminate(TerminateReason::TableWentBack);
        } else {
            self.confirm_by_table(sent);
        }
    }

    /// The view in force is the one that a read showed to be the latest: what it says of this silo
    /// was true when that read was sent. Where commits come fast, every read finds the silo a
    /// version behind, and nothing else would confirm it.
    pub(crate) fn confirm_by_earlier_read(&mut self) {
        let number = self.facts.view().version();
        let Some((version, sent)) =
            self.table.ahead.take_if(|(version, _)| version.number <= number)
        else {
            return;
        };
        if version.number == number && !self.is_another_history(&version) {
            self.confirm_by_table(sent);
        }
    }

    /// The compare-and-set on top of version `base` was lost: somebody else wrote. Gets the newer
    /// view, and evaluates again (improvement 7); only repeated losses make it wait.
    fn on_conflict(&mut self, now: Now, base: u64) {
        self.out.count().commits_lost += 1;
        self.out.event(Event::CommitLost);
        self.table.losses = self.table.losses.saturating_add(1);
        self.table.fresh = false;
        let at_once = self.facts.config().reevaluate_lost_commits_at_once;
        if !at_once || self.table.losses > 1 {
            let attempt = self.table.losses.saturating_sub(if at_once { 2 } else { 1 });
            let (min, max) = if at_once {
                (self.facts.config().table_retry_min / 10, self.facts.config().table_retry_max)
            } else {
                (self.facts.config().table_retry_min, self.facts.config().table_retry_max)
            };
            let delay = self.out.dice().backoff(min, max, attempt);
            self.out.timers().set(Timer::TableRetry, now.mono + delay);
        }
        // Somebody may have handed it over meanwhile: of a later one nothing is known.
        self.catch_up(now, base + 1);
        self.join.on_conflict(&self.facts, &mut self.out);
        self.drain();
    }

    /// Touches the own row (membership description, step 14).
    pub(crate) fn touch(&mut self, now: Now) {
        let period = self.facts.publish_period();
        self.out.timers().set(Timer::Touch, now.mono + period);
        if self.table.touch.is_some() {
            return;
        }
        let op = self.new_op();
        self.table.touch = Some((op, now.mono));
        // One that is not answered must not keep the next one waiting: the row would stand still
        // for too long.
        self.out
            .timers()
            .set(Timer::TouchTimeout, now.mono + self.facts.config().table_timeout.min(period));
        let request = TableRequest::Touch { silo: self.facts.me(), at: now.wall };
        self.out.effect(Effect::Table { op, request });
    }

    pub(crate) fn on_touch_timeout(&mut self, now: Now) {
        if let Some((op, _)) = self.table.touch {
            self.on_table(now, op, TableOutcome::Unknown);
        }
    }

    fn on_touched(&mut self, now: Now, outcome: &TableOutcome, sent: Instant) {
        match outcome {
            TableOutcome::Touched => {
                if self.table.touched.is_none_or(|at| {
                    sent.saturating_since(at)
                        >= touch_lasts(self.facts.config(), self.facts.view().active_count())
                }) {
                    // A commit that counts this row as stale may be on its way.
                    self.table.stale_until =
                        Some(now.mono + EVIDENCE_MAX + self.facts.config().table_timeout * 2);
                }
                self.table.touched = Some(sent);
                // Whoever is alone rests on its touches, and a touch of a Dead row succeeds too.
                self.table.want_version |= self.fence.rests_on_touches(&self.facts);
            }
            // The row is gone: the next full read says why, and ends this silo if it was cleaned
            // up.
            TableOutcome::RowMissing => self.table.want(Read::All),
            _ => {
                if *outcome == TableOutcome::TableMissing {
                    // The next read says for how long.
                    self.table.want(Read::All);
                }
                // If this silo could not touch its row, neither could others perhaps: that does not
                // make them stale.
                self.facts.forgive_rows();
                let again =
                    self.facts.publish_period().min(self.facts.config().table_retry_max * 2);
                self.out.timers().set_no_later(Timer::Touch, now.mono + again);
            }
        }
    }

    /// The periodic refresh (membership description, step 6).
    pub(crate) fn refresh(&mut self, now: Now) {
        self.out.timers().set(Timer::Refresh, now.mono + self.facts.config().table_refresh_timeout);
        if self.facts.config().version_only_refresh {
            self.table.want(Read::Version);
        } else {
            self.table.want(Read::All);
        }
    }

    /// Whether a request is on its way to the table.
    pub(crate) const fn is_asking(&self) -> bool {
        self.table.main.is_some()
    }
}
