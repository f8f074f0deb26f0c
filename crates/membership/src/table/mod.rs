//! One request to the table at a time, and the consequences of its outcome.
//!
//! * `Unknown` is followed by a read before anything else: the commit may have happened.
//! * `Unavailable` is followed by a pause that grows, with jitter; nothing is lost by it, because
//!   every wish is evaluated again against the view of the moment.
//! * A request without an outcome after `table_timeout` is forgotten as unknown.

mod lost;
mod touches;

use std::time::Duration;

use emmer_core::{Instant, SiloEntry, TableVersion};

use self::lost::{Loss, is_another_history, lacks_own_row};
use self::touches::Touches;
use crate::api::{Effect, Event, OpId, TableOutcome, TableRequest, TerminateReason};
use crate::facts::Facts;
use crate::inner::{Inner, Read};
use crate::out::Out;
use crate::snapshot::TableSnapshot;
use crate::timers::Timer;

/// Shortest time between two refreshes that processes outside the cluster ask for.
const NEWS_PAUSE: Duration = Duration::from_millis(500);

/// Requests to the table in flight and wanted, and its behaviour so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Table {
    next_op: u64,
    main: Option<(OpId, Asked, Instant)>,
    touches: Touches,
    loss: Loss,
    /// A whole read is wanted.
    want_all: bool,
    /// A read of the version row is wanted.
    want_version: bool,
    /// A read of the version row and some Active rows is wanted (joining).
    want_sample: bool,
    /// A commit's outcome is unknown since a base of this version: nothing but a read may follow.
    unknown_since: Option<u64>,
    /// A commit of unknown outcome may still arrive. If nothing is left to write, its base has to
    /// be taken from it: a death must not appear in the table when no silo waits for it.
    unsettled: bool,
    /// The view is fresh from the table, read for the commit that follows (classic only).
    fresh: bool,
    /// The table did not answer the last request.
    down: bool,
    failures: u32,
    /// Time of the last refresh.
    refreshed: Option<Instant>,
    losses: u32,
    /// The version that the last read of the version row showed, newer than the view in force, and
    /// when that read had been sent. A read of all rows does not count: it may come from a replica
    /// that lags.
    ahead: Option<(TableVersion, Instant)>,
}

/// Request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Asked {
    All,
    Version,
    Sample,
    /// A commit on top of this version.
    Commit(u64),
}

/// Words of the table that concern the other parts.
pub(crate) enum Told {
    /// Every row, as they were at some moment after the request was sent.
    Rows(TableSnapshot),
    /// Some rows.
    Sample(Vec<SiloEntry>),
    /// The commit on top of `base` happened: this is the version row.
    Committed {
        /// The version that it replaced.
        base: u64,
        /// The version row.
        version: TableVersion,
    },
    /// The commit on top of this version did not happen.
    Conflict(u64),
}

impl Table {
    // ---- what the others may know
    // ---------------------------------------------------------------------------------

    /// Returns true if the table left the last request unanswered.
    pub(crate) const fn is_down(&self) -> bool {
        self.down
    }

    /// Returns true if a request is on its way to the table.
    pub(crate) const fn is_asking(&self) -> bool {
        self.main.is_some()
    }

    /// Returns true if a commit with an unknown outcome may still arrive.
    pub(crate) const fn is_unsettled(&self) -> bool {
        self.unsettled
    }

    /// Returns true if the view was read for the commit that follows (classic only).
    pub(crate) const fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// Time at which the last touch that succeeded had been sent.
    pub(crate) const fn touched(&self) -> Option<Instant> {
        self.touches.touched()
    }

    /// Returns true if no silo counts with this silo's row as stale: it was touched less than
    /// `lasts` ago, and not after too long a pause.
    pub(crate) fn is_row_fresh(&self, facts: &Facts, lasts: Duration) -> bool {
        self.touches.is_row_fresh(facts, lasts)
    }

    // ---- requests
    // -------------------------------------------------------------------------------------------------

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

    /// A commit follows the next read (classic only).
    pub(crate) const fn want_before_commit(&mut self) {
        self.want_all = true;
        self.fresh = true;
    }

    /// Has the rows read, unless they were lately: as often as a silo touches its own.
    pub(crate) fn want_rows(&mut self, facts: &Facts, out: &mut Out) {
        let (now, period) = (facts.now().mono, facts.publish_period());
        let due = facts.rows().read_at().map_or(now, |at| at + period);
        if now >= due {
            self.want(Read::All);
        }
        if facts.has_fence() {
            out.timers().set(Timer::Stale, if now >= due { now + period } else { due });
        }
    }

    fn ask(&mut self, facts: &Facts, out: &mut Out, asked: Asked, request: TableRequest) {
        let (op, now) = (self.new_op(), facts.now().mono);
        self.main = Some((op, asked, now));
        out.timers().set(Timer::TableTimeout, now + facts.config().table_timeout);
        out.effect(Effect::Table { op, request });
    }

    const fn new_op(&mut self) -> OpId {
        self.next_op += 1;
        OpId(self.next_op)
    }

    /// Starts a read of rows, if one is due and no request is in flight. Returns true if nothing
    /// stands before a commit, or a read of the version.
    pub(crate) fn pump(&mut self, facts: &Facts, out: &mut Out) -> bool {
        if facts.is_over() || self.main.is_some() || out.timers().is_set(Timer::TableRetry) {
            return false;
        }
        if self.unknown_since.is_some() || self.want_all {
            self.want_all = false;
            self.want_version = false;
            out.count().reads += 1;
            self.ask(facts, out, Asked::All, TableRequest::ReadAll);
            return false;
        }
        if self.want_sample {
            self.want_sample = false;
            out.count().samples += 1;
            let (near, rows) = (facts.me(), facts.config().join_sample_rows);
            self.ask(facts, out, Asked::Sample, TableRequest::ReadSome { near, rows });
            return false;
        }
        true
    }

    /// Reads the version, if that is wanted and no request is in flight.
    pub(crate) fn pump_version(&mut self, facts: &Facts, out: &mut Out) {
        if self.want_version && self.main.is_none() && !facts.is_over() {
            self.want_version = false;
            out.count().version_reads += 1;
            self.ask(facts, out, Asked::Version, TableRequest::ReadVersion);
        }
    }

    /// A commit is drafted. Returns true if one is due although nothing is left to write: one with
    /// an unknown outcome may still arrive.
    pub(crate) const fn settle(&mut self) -> bool {
        std::mem::replace(&mut self.unsettled, false)
    }

    /// The view is no longer fresh from the table.
    pub(crate) const fn use_up(&mut self) {
        self.fresh = false;
    }

    /// Commits on top of the view in force; `request` is given the version row to be replaced.
    pub(crate) fn commit(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        request: impl FnOnce(TableVersion) -> TableRequest,
    ) {
        let base = self.loss.commit_base(facts, out);
        let asked = Asked::Commit(facts.view().version());
        self.ask(facts, out, asked, request(base));
    }

    /// A process outside says that the table has changed: refreshes soon. Such words are worth
    /// nothing by themselves, so they cost the store a request each [`NEWS_PAUSE`] at most.
    pub(crate) fn hear_news(&self, facts: &Facts, out: &mut Out) {
        let now = facts.now().mono;
        let at = self.refreshed.map_or(now, |at| (at + NEWS_PAUSE).max(now));
        out.timers().set_no_later(Timer::Refresh, at);
    }

    /// The periodic refresh (membership description, step 6).
    pub(crate) fn refresh(&mut self, facts: &Facts, out: &mut Out) {
        self.refreshed = Some(facts.now().mono);
        let next = facts.now().mono + facts.config().table_refresh_timeout;
        out.timers().set(Timer::Refresh, next);
        let version_only = facts.config().version_only_refresh;
        self.want(if version_only { Read::Version } else { Read::All });
    }

    /// Touches the own row.
    pub(crate) fn touch(&mut self, facts: &Facts, out: &mut Out) {
        out.timers().set(Timer::Touch, facts.now().mono + facts.publish_period());
        if self.touches.op().is_none() {
            let op = self.new_op();
            self.touches.touch(facts, out, op);
        }
    }

    /// The row was as good as touched at `at`: this silo has become Active.
    pub(crate) const fn start_touching(&mut self, at: Instant) {
        self.touches.start(at);
    }

    // ---- outcomes
    // -------------------------------------------------------------------------------------------------

    /// The request in flight.
    pub(crate) const fn op(&self) -> Option<OpId> {
        match self.main {
            Some((op, ..)) => Some(op),
            None => None,
        }
    }

    /// The touch in flight.
    pub(crate) const fn touch_op(&self) -> Option<OpId> {
        self.touches.op()
    }

    /// The touch `op` ended. Returns false if that is no touch. `rests`: this silo is alone, and
    /// rests on its touches.
    pub(crate) fn touch_ended(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        op: OpId,
        outcome: &TableOutcome,
        rests: bool,
    ) -> bool {
        let Some(sent) = self.touches.take(out, op) else { return false };
        self.touches.ended(facts, out, outcome, sent, rests);
        true
    }

    /// Time at which the request `op` had been sent; none when no such request is in flight.
    pub(crate) fn sent(&self, op: OpId) -> Option<Instant> {
        self.main.as_ref().filter(|(expected, ..)| *expected == op).map(|(.., sent)| *sent)
    }

    /// The table has answered. Returns true if it had not answered the request before.
    pub(crate) const fn answered(&mut self) -> bool {
        self.loss.saw_table();
        self.failures = 0;
        std::mem::replace(&mut self.down, false)
    }

    /// The request in flight ended. Returns what that says to the other parts.
    pub(crate) fn ended(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        outcome: TableOutcome,
    ) -> Option<Told> {
        let (_, asked, sent) = self.main.take()?;
        out.timers().clear(Timer::TableTimeout);
        match (asked, outcome) {
            (asked, TableOutcome::TableMissing) => {
                if self.loss.bears_missing_table(facts, out) {
                    self.want_again(&asked);
                    self.pause(facts, out);
                }
            }
            (Asked::All, TableOutcome::Snapshot(snapshot)) => {
                let is_sound = self.on_snapshot(facts, out, &snapshot);
                return is_sound.then_some(Told::Rows(snapshot));
            }
            (Asked::Version, TableOutcome::Version(version)) => {
                self.on_version(facts, out, version, sent);
            }
            (Asked::Sample, TableOutcome::Sample(rows)) => {
                out.count().rows_read += rows.len() as u64;
                return Some(Told::Sample(rows));
            }
            (Asked::Commit(base), TableOutcome::Committed(version)) => {
                self.losses = 0;
                return Some(Told::Committed { base, version });
            }
            (Asked::Commit(base), TableOutcome::Conflict) => {
                self.on_conflict(facts, out);
                return Some(Told::Conflict(base));
            }
            (Asked::Commit(base), TableOutcome::Unknown) => {
                out.count().commits_unknown += 1;
                self.unsettled = true;
                self.unknown_since = Some(base);
                self.pause(facts, out);
            }
            (asked, _) => {
                self.want_again(&asked);
                self.pause(facts, out);
            }
        }
        None
    }

    fn want_again(&mut self, asked: &Asked) {
        match asked {
            Asked::All => self.want(Read::All),
            Asked::Version => self.want(Read::Version),
            Asked::Sample => self.want(Read::Sample),
            Asked::Commit(_) => {}
        }
    }

    /// The table did not answer: waits before the next request, longer each time.
    fn pause(&mut self, facts: &Facts, out: &mut Out) {
        out.count().table_unavailable += 1;
        if !std::mem::replace(&mut self.down, true) && !self.loss.is_missing() {
            out.event(Event::StoreUnavailable);
        }
        self.fresh = false;
        let attempt = self.failures;
        self.failures = self.failures.saturating_add(1);
        set_retry(facts, out, attempt);
    }

    /// Every row was read. Returns true if they may be taken for what the table shows.
    fn on_snapshot(&mut self, facts: &Facts, out: &mut Out, snapshot: &TableSnapshot) -> bool {
        out.count().rows_read += 1 + snapshot.rows.len() as u64;
        if !self.loss.read_my_table(out, &snapshot.version) {
            return false;
        }
        let (version, known) = (snapshot.version.number, facts.view().version());
        if self.unknown_since.is_some_and(|base| version < base) || version < known {
            // Older than a version that is known to have existed: a replica that lags, or a table
            // that went back.
            self.fresh = false;
            if version < known {
                self.loss.saw_older_table(facts, out, &snapshot.version);
            }
            self.want_all |= self.unknown_since.is_some();
            set_retry(facts, out, 0);
            return false;
        }
        if self.unknown_since.take().is_some_and(|base| version > base) {
            self.unsettled = false;
        }
        self.loss.saw_table_move_on();
        if version == known
            && facts.standing().is_in_table()
            && is_another_history(facts, &snapshot.version)
        {
            out.tell(Inner::End(TerminateReason::TableWentBack));
            return false;
        }
        if version == known && lacks_own_row(facts, snapshot) {
            out.event(Event::OwnRowDeleted);
            // To be written again on top of the rows that were read.
            self.unsettled = true;
            self.fresh = true;
        }
        true
    }

    fn on_version(&mut self, facts: &Facts, out: &mut Out, version: TableVersion, sent: Instant) {
        out.count().rows_read += 1;
        if !self.loss.read_my_table(out, &version) {
            return;
        }
        let known = facts.view().version();
        if version.number < known {
            self.loss.saw_older_table(facts, out, &version);
            return;
        }
        self.loss.saw_table_move_on();
        if version.number > known {
            out.tell(Inner::CatchUp(version.number));
            self.ahead = Some((version, sent));
        } else if is_another_history(facts, &version) {
            out.tell(Inner::End(TerminateReason::TableWentBack));
        } else {
            out.tell(Inner::Confirmed(sent));
        }
    }

    /// The compare-and-set was lost: another silo wrote. Evaluates again (improvement 7); only
    /// repeated losses make it wait.
    fn on_conflict(&mut self, facts: &Facts, out: &mut Out) {
        out.count().commits_lost += 1;
        out.event(Event::CommitLost);
        self.losses = self.losses.saturating_add(1);
        self.fresh = false;
        let config = facts.config();
        let at_once = config.reevaluate_lost_commits_at_once;
        if !at_once || self.losses > 1 {
            let attempt = self.losses.saturating_sub(if at_once { 2 } else { 1 });
            let least = config.table_retry_min;
            let min = if at_once { least / 10 } else { least };
            let delay = out.dice().backoff(min, config.table_retry_max, attempt);
            out.timers().set(Timer::TableRetry, facts.now().mono + delay);
        }
    }

    // ---- what is known of the table
    // -------------------------------------------------------------------------------

    /// A step followed the view in force, so the table still had it then: older reads came from a
    /// replica that lags.
    pub(crate) const fn saw_step(&mut self) {
        self.loss.saw_table_move_on();
    }

    /// Returns false if `version` is certainly of another table than this silo joined.
    pub(crate) fn knows_table_of(&mut self, version: &TableVersion) -> bool {
        self.loss.knows_table_of(version)
    }

    /// Rows of this version were read. Returns when the read had been sent that showed an earlier
    /// one to exist, which this silo lacks. No silo that is dead comes back: one that lives in
    /// newer rows was not dead then. These rows themselves may come from a replica that lags.
    pub(crate) fn take_earlier_read(&mut self, version: u64) -> Option<Instant> {
        self.ahead.take_if(|(ahead, _)| ahead.number < version).map(|(_, sent)| sent)
    }

    /// Returns the time at which the read was sent that showed the view in force to be the latest:
    /// its statements about this silo were true then. Where commits come fast, every read finds the
    /// silo a version behind, and nothing else would confirm it.
    pub(crate) fn take_read_of_this(&mut self, facts: &Facts) -> Option<Instant> {
        let number = facts.view().version();
        let (version, sent) = self.ahead.take_if(|(version, _)| version.number <= number)?;
        (version.number == number && !is_another_history(facts, &version)).then_some(sent)
    }
}

fn set_retry(facts: &Facts, out: &mut Out, attempt: u32) {
    let config = facts.config();
    let delay = out.dice().backoff(config.table_retry_min, config.table_retry_max, attempt);
    out.timers().set(Timer::TableRetry, facts.now().mono + delay);
}
