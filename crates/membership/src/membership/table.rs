//! Requests to the table: their order, and the consequences of their outcomes.

use emmer_core::{Instant, TableVersion};

use super::Membership;
use crate::api::{Event, OpId, TableOutcome, TerminateReason};
use crate::inner::Read;
use crate::intent::Key;
use crate::message::Message;
use crate::snapshot::TableSnapshot;
use crate::table::Told;
use crate::timers::Timer;
use crate::write::{self, Draft, Said};

impl Membership {
    /// Starts the next request, if one is due and none is in flight.
    pub(super) fn pump(&mut self) {
        if !self.table.pump(&self.facts, &mut self.out) {
            return;
        }
        // A commit says as much about this silo as a read of the version, and must not wait for the
        // reads of the fence.
        if self.facts.standing().knows_table() && !self.out.timers().is_set(Timer::Flush) {
            self.commit();
        }
        self.table.pump_version(&self.facts, &mut self.out);
    }

    fn commit(&mut self) {
        if self.write.is_idle() && !self.table.is_unsettled() {
            return;
        }
        // Membership description, step 8: "S first reads the latest table state". With ordered
        // views the view in force is as good as a read: if it is not the latest, the conditional
        // commit fails.
        if !self.facts.config().batch_writes && !self.table.is_fresh() {
            if self.draft().is_some() {
                self.table.want_before_commit();
                self.pump();
            }
            return;
        }
        // Votes are counted with staleness as it is now, not as it was when the rows were last read
        // (I6).
        if self.write.has_votes() && self.facts.rows().is_dated(self.facts.now()) {
            self.table.want(Read::All);
            self.pump();
            return;
        }
        let drafted = self.draft();
        let settling = self.table.settle() && self.facts.standing().is_in_table();
        let nothing = || settling.then(|| write::draft_nothing(&self.facts)).flatten();
        let Some(draft) = drafted.or_else(nothing) else { return };
        self.table.use_up();
        let superseded = draft.superseded();
        if let Some((_, by)) = superseded.iter().find(|(old, _)| *old == self.facts.me()) {
            // The successor's wish is proof enough; it will find another writer, or write itself.
            self.terminate(TerminateReason::Superseded(*by));
            return;
        }
        self.out.count().commits += 1;
        // A silo that is about to be declared dead by its successor's arrival hears of it first: it
        // may be alive and serving.
        for (old, by) in superseded {
            self.out.send(old, Message::Superseded { by });
        }
        self.table.commit(&self.facts, &mut self.out, |base| draft.request(base));
        self.write.sent(draft);
    }

    /// The request has no outcome: forgets it, as unknown.
    pub(super) fn on_table_timeout(&mut self, op: Option<OpId>) {
        if let Some(op) = op {
            self.on_table(op, TableOutcome::Unknown);
        }
    }

    /// Reports what became of a request to the table.
    pub(super) fn on_table(&mut self, op: OpId, outcome: TableOutcome) {
        let rests = self.fence.rests_on_touches(&self.facts);
        if self.table.touch_ended(&self.facts, &mut self.out, op, &outcome, rests) {
            self.drain();
            return;
        }
        let Some(sent) = self.table.sent(op) else { return };
        if outcome.is_answer() {
            self.facts.hear_table(sent);
            if self.table.answered() {
                self.facts.forgive_rows();
                // Otherwise the next touch may be seconds away.
                if rests {
                    self.table.touch(&self.facts, &mut self.out);
                }
                self.out.event(Event::StoreBack);
            }
        }
        let draft = self.write.take_sent();
        let told = self.table.ended(&self.facts, &mut self.out, outcome);
        self.drain();
        match (told, draft) {
            (Some(Told::Rows(snapshot)), _) => self.on_rows(&snapshot, sent),
            (Some(Told::Sample(rows)), _) => {
                self.join.on_sample(&self.facts, &mut self.out, &rows);
                self.drain();
            }
            (Some(Told::Committed { base, version }), Some(draft)) => {
                // It was the latest view that the commit was based on.
                if base == self.facts.view().version() {
                    self.confirm_by_table(sent);
                }
                self.on_committed(draft, version);
                self.confirm_by_table(sent);
            }
            (Some(Told::Conflict(base)), _) => {
                // Another silo may have written since: nothing is known of a later version.
                self.catch_up(base + 1);
                self.join.on_conflict(&self.facts, &mut self.out);
                self.drain();
            }
            (Some(Told::Committed { .. }) | None, _) => {}
        }
    }

    /// Every row was read, by a request sent at `sent`.
    fn on_rows(&mut self, snapshot: &TableSnapshot, sent: Instant) {
        self.facts.standing_mut().saw_table();
        self.facts.observe_rows(sent, &snapshot.rows);
        let lived = self.table.take_earlier_read(snapshot.version.number);
        self.install_read(snapshot);
        if let Some(sent) = lived {
            self.confirm_by_table(sent);
        }
        self.detect.consider_stale(&self.facts, &mut self.out);
        self.drain();
        self.join.on_read(&self.facts, &mut self.out);
        self.drain();
    }

    /// Reads the table now and then while votes are insufficient: perhaps other voters are stale.
    pub(super) fn look_for_staleness(&mut self) {
        if self.detect.suspects_any(&self.facts) || self.write.has_votes() {
            self.table.want_rows(&self.facts, &mut self.out);
        }
    }

    /// Drafts the next commit; none when nothing is to be written.
    fn draft(&mut self) -> Option<Draft> {
        let (wishes, join, facts) = (&self.wishes, &self.join, &self.facts);
        let (is_own, is_blocked) = (|key: &Key| wishes.has(key), || join.is_blocked(facts));
        let said = Said::new(self.votes.quorum(), &is_own, &is_blocked);
        let draft = self.write.draft(facts, &mut self.out, &said);
        self.drain();
        draft
    }

    /// The commit happened: the draft is the next view.
    fn on_committed(&mut self, draft: Draft, version: TableVersion) {
        let base = self.facts.view().version();
        if base != draft.base_number() || version.number != draft.base_number() + 1 {
            // Another silo handed us an even newer view meanwhile (it contains this commit).
            self.catch_up(version.number);
            return;
        }
        let (delta, view, inserted) = write::committed(&self.facts, &mut self.out, draft, version);
        // The others first: nothing comes out of this silo after a view that shows it Dead by its
        // own wish.
        self.views.broadcast(&self.facts, &mut self.out, &delta, &view);
        if self.facts.config().use_liveness_gossip && self.facts.config().delta_views {
            // A silo just inserted may hang below one in the tree that died with its whole cluster.
            for silo in inserted {
                self.out.send(silo, Message::Hint { version: delta.version() });
            }
        }
        self.install(view, Some(&delta));
    }
}
