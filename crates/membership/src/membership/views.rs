//! A view comes into force: every part draws its conclusions from it, in this order.

use std::sync::Arc;

use emmer_core::{SiloAddress, SiloEntry, SiloStatus};

use super::Membership;
use crate::api::{Effect, TerminateReason};
use crate::delta::{Delta, Misfit};
use crate::inner::Read;
use crate::snapshot::TableSnapshot;
use crate::view::View;
use crate::views::{self, DELTAS_PER_PULL_MAX};

impl Membership {
    /// The table was read.
    pub(super) fn install_read(&mut self, snapshot: &TableSnapshot) {
        if snapshot.version.number > self.facts.view().version() {
            self.out.count().snapshots_installed += 1;
            self.install(Arc::new(View::from_snapshot(snapshot)), None);
        }
    }

    /// Installs `view` if it is newer than the one in force, and draws every conclusion from it.
    pub(super) fn install(&mut self, view: Arc<View>, delta: Option<&Arc<Delta>>) {
        if view.version() <= self.facts.view().version() || self.facts.is_over() {
            return;
        }
        if !self.table.knows_table_of(view.table_version()) {
            // One of the two silos is in the wrong. The table knows which.
            self.table.want(Read::Version);
            return;
        }
        self.facts.standing_mut().saw_table();
        if delta.is_some() {
            self.table.saw_step();
        }
        let before = self.facts.install(view, delta);
        self.views.installed(&self.facts, &mut self.out);
        self.fading.view_changed(&self.facts, &before, delta);
        let probes =
            |row: &Arc<SiloEntry>| matches!(row.status, SiloStatus::Joining | SiloStatus::Active);
        let same_monitors = self.facts.view().has_rings_of(&before)
            && delta.is_some_and(|delta| delta.rows().iter().all(probes));
        self.votes.view_changed(&self.facts, &before, same_monitors);
        self.out.count().views_installed += 1;
        self.look_at_own_row();
        if self.facts.is_over() {
            return;
        }
        self.wishes.reconcile(&self.facts, &mut self.out);
        self.drain();
        if self.join.is_first_view(&self.facts) {
            // A silo that is alone reckons with joiners that watch its row from their own insertion
            // on.
            self.facts.forgive_rows();
        }
        let vacant = self.join.vacant(&self.facts);
        self.join.view_changed(&self.facts, &mut self.out, delta);
        self.drain();
        self.choose_peers();
        for silo in vacant {
            self.detect.dial(&self.facts, &mut self.out, silo);
        }
        let is_behind = self.is_behind();
        self.fence.view_changed(&self.facts, &mut self.out, same_monitors, is_behind);
        self.drain();
        if let Some(sent) = self.table.take_read_of_this(&self.facts) {
            self.confirm_by_table(sent);
        }
        self.hand_on_joins();
        self.write.collect(&self.facts, &mut self.out);
    }

    /// Looks at this silo's row in the new view. A silo ends itself if it is declared dead
    /// ("Enforcing perfect failure detection"), if its row was cleaned up, or if it has a
    /// successor.
    fn look_at_own_row(&mut self) {
        let (me, view) = (self.facts.me(), self.facts.view().clone());
        let own = view.get(&me);
        if let Some(row) = own {
            let mine = self.facts.my_row().i_am_alive_time;
            if !self.facts.standing().is_in_table() && row.i_am_alive_time != mine {
                // The row of a twin with the same identity: it came first.
                self.terminate(TerminateReason::Superseded(me));
                return;
            }
            self.facts.standing_mut().saw_own_row();
            let votes = &mut self.out.count().votes_received;
            *votes = (*votes).max(row.votes.len() as u64);
        }
        let standing = self.facts.standing();
        let (is_in, is_finishing) = (standing.is_in_table(), standing.is_finishing());
        if is_in {
            self.out.effect(Effect::Install(view.clone()));
        }
        let is_dead = own.is_some_and(|row| row.status == SiloStatus::Dead);
        if is_dead && is_finishing {
            self.terminate(TerminateReason::Left);
        } else if let Some(successor) = view.successor_of(&me) {
            self.terminate(TerminateReason::Superseded(successor.address));
        } else if is_dead {
            self.terminate(TerminateReason::DeclaredDead);
        } else if let Some(row) = own {
            self.own_status_is(row.status);
        } else if is_in {
            self.terminate(TerminateReason::RowMissing);
        }
    }

    /// Hands on the joins that another silo is to write in the view in force.
    pub(crate) fn hand_on_joins(&mut self) {
        if !self.write.has_joins_beyond(&self.facts) || self.facts.is_over() {
            return;
        }
        if let Some(to) = self.writer_to_ask() {
            self.write.hand_on_joins(&self.facts, &mut self.out, to);
        }
    }

    /// The writer in the view in force; none when it is this silo.
    pub(crate) fn writer_to_ask(&mut self) -> Option<SiloAddress> {
        self.with_others(|wishes, facts, _, others| wishes.writers(facts, others)).first().copied()
    }

    // ---- views from others
    // ------------------------------------------------------------------------------------------

    /// A delta came down a tree.
    pub(super) fn on_tree(&mut self, from: SiloAddress, root: SiloAddress, delta: &Arc<Delta>) {
        let known = self.facts.view().version();
        if delta.version() <= known {
            // Reading the table was quicker. Silos below this one in the tree wait all the same;
            // with the same view all agree on the tree.
            if delta.version() == known && !self.facts.is_over() {
                self.pass_on(root, delta);
            }
            return;
        }
        self.views.keep(root, delta);
        self.apply_early(from);
        if delta.version() > self.facts.view().version() && !self.facts.is_over() {
            self.out.count().delta_gaps += 1;
            self.note_version_of(from, delta.version());
        }
    }

    fn pass_on(&mut self, root: SiloAddress, delta: &Arc<Delta>) {
        self.views.pass_on(&self.facts, &mut self.out, root, delta, self.facts.view());
    }

    /// Applies, in order, every delta that fits now, and passes it on.
    fn apply_early(&mut self, from: SiloAddress) {
        while let Some((root, delta)) = self.views.next(&self.facts) {
            let applied = self.views.apply(&self.facts, &mut self.out, from, &delta);
            self.drain();
            let Ok(view) = applied else { return };
            self.install(view, Some(&delta));
            if self.facts.is_over() {
                return;
            }
            self.pass_on(root, &delta);
            views::hint(&self.facts, &mut self.out, self.detect.silos());
        }
    }

    /// Applies deltas that this silo lacked, in order.
    pub(super) fn on_deltas(&mut self, from: SiloAddress, deltas: &[Arc<Delta>]) {
        for delta in deltas.iter().take(DELTAS_PER_PULL_MAX) {
            let applied = self.views.apply(&self.facts, &mut self.out, from, delta);
            self.drain();
            match applied {
                Ok(view) => self.install(view, Some(delta)),
                Err(Misfit::Old) => {}
                Err(Misfit::Gap) => break,
                Err(Misfit::Digest) => return,
            }
            if self.facts.is_over() {
                return;
            }
        }
        self.apply_early(from);
    }

    /// A whole view. `fading`: those that are Dead in it and may still run turns, and for how many
    /// milliseconds more.
    pub(super) fn on_view(
        &mut self,
        from: SiloAddress,
        view: Arc<View>,
        fading: Option<Vec<(SiloAddress, u64)>>,
    ) {
        if view.version() > self.facts.view().version() {
            self.out.count().snapshots_installed += 1;
            self.install(view, None);
            if let Some(fading) = fading {
                self.fading.told(&self.facts, &fading);
            }
            self.apply_early(from);
        }
    }

    pub(super) fn on_pull(&mut self, from: SiloAddress, have: u64) {
        let fading = || self.fading.to_tell(&self.facts);
        self.views.on_pull(&self.facts, &mut self.out, from, have, fading);
    }

    // ---- catching up
    // ------------------------------------------------------------------------------------------------

    /// Returns true if a later version than the view in force is known to exist.
    pub(crate) fn is_behind(&self) -> bool {
        self.views.is_behind(&self.facts)
    }

    /// A peer has, or lacks, a version: a silo that is behind pulls (anti-entropy).
    pub(super) fn note_version(&mut self, from: SiloAddress, version: u64) {
        if version > self.facts.view().version() && self.facts.standing().is_in_table() {
            self.note_version_of(from, version);
        }
    }

    /// Asks `from` for missing versions up to `version`.
    fn note_version_of(&mut self, from: SiloAddress, version: u64) {
        let in_haste = self.is_in_haste();
        self.views.pull(&self.facts, &mut self.out, from, version, in_haste);
    }

    /// A newer view exists.
    pub(super) fn catch_up(&mut self, version: u64) {
        let (in_haste, detect, join) = (self.is_in_haste(), &self.detect, &self.join);
        let is_doubted = |silo: &SiloAddress| detect.is_doubted(silo) || join.doubts(silo);
        self.views.catch_up(&self.facts, &mut self.out, version, in_haste, is_doubted);
        self.drain();
    }

    /// Handles the timeout of a pull.
    pub(super) fn on_pull_timeout(&mut self) {
        let (in_haste, detect, join) = (self.is_in_haste(), &self.detect, &self.join);
        let is_doubted = |silo: &SiloAddress| detect.is_doubted(silo) || join.doubts(silo);
        self.views.on_pull_timeout(&self.facts, &mut self.out, in_haste, is_doubted);
        self.drain();
    }

    /// Returns true if nothing but the table confirms this silo, or will soon, when it is behind.
    fn is_in_haste(&self) -> bool {
        self.fence.rests_on_table(&self.facts, true)
    }
}
