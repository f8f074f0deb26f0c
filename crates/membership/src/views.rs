//! Installing views, in strictly growing order, and handing them on (membership description, step
//! 7, "snapshot broadcast", and step 8, "ordered views"; improvement 6).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use emmer_core::{Instant, Now, SiloAddress, SiloEntry, SiloStatus};

use crate::api::{Effect, TerminateReason};
use crate::delta::{Delta, Misfit};
use crate::inner::Read;
use crate::membership::Membership;
use crate::message::Message;
use crate::snapshot::TableSnapshot;
use crate::timers::Timer;
use crate::view::{View, is_on_rings};

/// The most deltas kept that came before those they build on.
const EARLY_MAX: usize = 16;

/// The most deltas in answer to one pull; with more to tell, or with no fewer rows than a snapshot,
/// a snapshot is sent.
const DELTAS_PER_PULL_MAX: usize = 64;

/// How many rows a table may have for a read of all of it to be the quickest way to the latest
/// view.
const SMALL_TABLE_ROWS: usize = 64;

/// How long a pull may take before somebody else is asked.
const PULL_PATIENCE: Duration = Duration::from_millis(150);

/// The same for a silo whose fence rests on the table, which confirms nobody who is behind: one
/// that has asked a peer in vain must have read the table, and then its version, before the last
/// confirmation lapses.
const FENCED_PATIENCE: Duration = Duration::from_millis(30);

/// How long a hinted version may take to arrive by itself.
const HINT_PATIENCE: Duration = Duration::from_millis(30);

/// The same for a silo that waits for the view in which it is: many are inserted at once, and most
/// get it down the tree.
const INSERTED_PATIENCE: Duration = Duration::from_millis(100);

/// How many silos get a hint from each silo that a tree reached.
const HINTED: usize = 2;

/// How many peers are asked for a newer view before the table is read.
const PULLS_BEFORE_READ: u32 = 2;

/// What is kept to bring others, and oneself, up to date.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Dissemination {
    /// Deltas that wait for the ones before them, with the root of their tree.
    early: BTreeMap<u64, (SiloAddress, Arc<Delta>)>,
    /// The version this silo knows to exist and does not have.
    wanted: u64,
    /// How many peers were asked for it.
    pulls: u32,
    /// Who said so, when nobody was asked yet.
    hinted_by: Option<SiloAddress>,
    /// The version that a stranger spoke of last, and when; 0 once the table has denied it.
    pub(crate) claimed: u64,
    pub(crate) claimed_at: Instant,
    /// A version that this silo has heard of and lacks, and since when.
    behind: Option<(u64, Instant)>,
}

impl Dissemination {
    /// Returns true if what came early lies beyond the view of this version.
    pub(crate) fn fits(&self, version: u64) -> bool {
        self.early.keys().next().is_none_or(|early| *early > version)
    }
}

impl Membership {
    /// The table was read.
    pub(crate) fn install_read(&mut self, now: Now, snapshot: &TableSnapshot) {
        if snapshot.version.number > self.facts.view().version() {
            self.out.count().snapshots_installed += 1;
            self.install(now, Arc::new(View::from_snapshot(snapshot)), None);
        }
    }

    /// Puts `view` in force if it is newer than the one that is, and draws every conclusion from
    /// it.
    pub(crate) fn install(&mut self, now: Now, view: Arc<View>, delta: Option<&Arc<Delta>>) {
        if view.version() <= self.facts.view().version() || self.is_done() {
            return;
        }
        if !self.table.knows_table_of(view.table_version()) {
            // One of the two silos is in the wrong. The table knows which.
            self.table.want(Read::Version);
            return;
        }
        self.facts.standing_mut().saw_table();
        if delta.is_some() {
            // A commit followed the view in force, so the table still had it then: older reads came
            // from a replica that lags.
            self.table.saw_step();
        }
        self.gossip.early.retain(|version, _| *version > view.version());
        if self.gossip.wanted <= view.version() {
            self.gossip.pulls = 0;
            self.gossip.hinted_by = None;
            self.out.timers().clear(Timer::Pull);
        }
        let before = self.facts.install(view, delta);
        self.fading.view_changed(&self.facts, &before, delta);
        let probes =
            |row: &Arc<SiloEntry>| matches!(row.status, SiloStatus::Joining | SiloStatus::Active);
        let same_monitors = self.facts.view().has_rings_of(&before)
            && delta.is_some_and(|delta| delta.rows.iter().all(probes));
        self.votes.view_changed(&self.facts, &before, same_monitors);
        self.out.count().views_installed += 1;
        self.look_at_own_row(now);
        if self.is_done() {
            return;
        }
        self.wishes.reconcile(&self.facts, &mut self.out);
        self.drain();
        if self.join.is_first_view(&self.facts) {
            // A silo that is alone reckons with joiners that watch its row from their own insertion
            // on.
            self.facts.forgive_rows();
        }
        self.join.view_changed(&self.facts, &mut self.out, delta);
        self.drain();
        self.choose_peers();
        let is_behind = self.is_behind();
        self.fence.view_changed(&self.facts, &mut self.out, same_monitors, is_behind);
        self.drain();
        if let Some(sent) = self.table.take_read_of_this(&self.facts) {
            self.confirm_by_table(sent);
        }
        self.hand_on_joins();
        self.write.collect(&self.facts, &mut self.out);
    }

    /// What the new view says about this silo. A silo that is declared dead ends itself ("Enforcing
    /// perfect failure detection"), and so does one whose row was cleaned up or that has a
    /// successor.
    fn look_at_own_row(&mut self, now: Now) {
        let me = self.facts.me();
        let own = self
            .facts
            .view()
            .get(&me)
            .map(|row| (row.status, row.i_am_alive_time, row.votes.len()));
        let successor = self.facts.view().successor_of(&me).map(|row| row.address);
        if let Some((_, alive, votes)) = own {
            if !self.facts.standing().is_in_table() && alive != self.facts.my_row().i_am_alive_time
            {
                // The row of a twin with the same identity: it came first.
                self.terminate(TerminateReason::Superseded(me));
                return;
            }
            self.facts.standing_mut().saw_own_row();
            self.out.count().votes_received = self.out.count().votes_received.max(votes as u64);
        }
        if self.facts.standing().is_in_table() {
            self.out.effect(Effect::Install(self.facts.view().clone()));
        }
        match own {
            Some((SiloStatus::Dead, ..)) if self.facts.standing().is_finishing() => {
                self.terminate(TerminateReason::Left);
            }
            _ if let Some(by) = successor => self.terminate(TerminateReason::Superseded(by)),
            Some((SiloStatus::Dead, ..)) => self.terminate(TerminateReason::DeclaredDead),
            None if self.facts.standing().is_in_table() => {
                self.terminate(TerminateReason::RowMissing)
            }
            Some((status, ..)) => self.own_status_is(now, status),
            None => {}
        }
    }

    /// Tells the others about a commit of this silo's own, which led to `view`.
    pub(crate) fn broadcast(&mut self, delta: &Arc<Delta>, view: &Arc<View>) {
        if !self.facts.config().use_liveness_gossip {
            return;
        }
        if self.facts.config().delta_views {
            self.pass_on(self.facts.me(), delta, view);
            return;
        }
        let me = self.facts.me();
        let dead_now = |silo: &SiloAddress| delta.rows.iter().any(|row| row.address == *silo);
        for row in view.members() {
            let tell = is_on_rings(row.status) || dead_now(&row.address);
            if tell && row.address != me && !self.facts.is_stale(&row.address) {
                // Its receivers have seen who died.
                let fading = None;
                self.out.send(row.address, Message::Snapshot { view: view.clone(), fading });
            }
        }
    }

    /// Sends the delta that led to `view` to this silo's children in the tree of `root`.
    fn pass_on(&mut self, root: SiloAddress, delta: &Arc<Delta>, view: &View) {
        let me = self.facts.me();
        let fan_out = self.facts.config().fan_out as usize;
        let tree = self.shared.tree(delta, view, &root);
        for child in tree.children(view, &me, fan_out) {
            self.out.send(child.address, Message::Tree { root, delta: delta.clone() });
        }
    }

    /// Tells a few probed silos that the version exists, in case the branch of the tree that leads
    /// to them is broken.
    fn hint(&mut self) {
        let version = self.facts.view().version();
        let to: Vec<SiloAddress> = self.detect.silos().take(HINTED).copied().collect();
        for silo in to {
            self.out.send(silo, Message::Hint { version });
        }
    }

    /// A version exists; it is probably on its way.
    pub(crate) fn on_hint(&mut self, now: Now, from: SiloAddress, version: u64) {
        if version > self.facts.view().version() && !self.out.timers().is_set(Timer::Pull) {
            self.gossip.wanted = self.gossip.wanted.max(version);
            self.gossip.hinted_by = Some(from);
            let patience =
                if self.facts.standing().is_in_table() { HINT_PATIENCE } else { INSERTED_PATIENCE };
            self.out.timers().set(Timer::Pull, now.mono + patience);
        }
    }

    /// A delta came down a tree.
    pub(crate) fn on_tree(
        &mut self,
        now: Now,
        from: SiloAddress,
        root: SiloAddress,
        delta: &Arc<Delta>,
    ) {
        if delta.version() <= self.facts.view().version() {
            // It was quicker to read the table. Those below it in the tree wait all the same; with
            // the same view all agree who that is.
            if delta.version() == self.facts.view().version() && !self.is_done() {
                let view = self.facts.view().clone();
                self.pass_on(root, delta, &view);
            }
            return;
        }
        if self.gossip.early.len() < EARLY_MAX {
            self.gossip.early.insert(delta.version(), (root, delta.clone()));
        }
        self.apply_early(now, from);
        if delta.version() > self.facts.view().version() && !self.is_done() {
            self.out.count().delta_gaps += 1;
            self.pull(now, from, delta.version());
        }
    }

    /// Applies, in order, every delta that fits now, and passes it on.
    fn apply_early(&mut self, now: Now, from: SiloAddress) {
        while let Some((root, delta)) = self.gossip.early.remove(&(self.facts.view().version() + 1))
        {
            match self.shared.apply(&delta, &self.facts.view()) {
                Ok(view) => {
                    self.install(now, view, Some(&delta));
                    if self.is_done() {
                        return;
                    }
                    let view = self.facts.view().clone();
                    self.pass_on(root, &delta, &view);
                    self.hint();
                }
                Err(Misfit::Digest) => {
                    self.mistrust(now, from, delta.version());
                    return;
                }
                Err(_) => return,
            }
        }
    }

    /// The own view is not what the committer's was: one of the two shows commits that the table
    /// has lost. A silo that is in the table has acted on its view, and ends; one that is not takes
    /// a whole view.
    fn mistrust(&mut self, now: Now, from: SiloAddress, version: u64) {
        if self.facts.standing().is_in_table() {
            self.terminate(TerminateReason::TableWentBack);
            return;
        }
        self.out.count().delta_gaps += 1;
        self.gossip.wanted = self.gossip.wanted.max(version);
        self.out.timers().set(Timer::Pull, now.mono + PULL_PATIENCE);
        self.out.send(from, Message::Pull { have: 0 });
    }

    pub(crate) fn on_deltas(&mut self, now: Now, from: SiloAddress, deltas: &[Arc<Delta>]) {
        for delta in deltas.iter().take(DELTAS_PER_PULL_MAX) {
            match self.shared.apply(delta, &self.facts.view()) {
                Ok(view) => self.install(now, view, Some(delta)),
                Err(Misfit::Old) => {}
                Err(Misfit::Gap) => break,
                Err(Misfit::Digest) => {
                    self.mistrust(now, from, delta.version());
                    return;
                }
            }
            if self.is_done() {
                return;
            }
        }
        self.apply_early(now, from);
    }

    pub(crate) fn on_view(
        &mut self,
        now: Now,
        from: SiloAddress,
        view: Arc<View>,
        fading: Option<Vec<(SiloAddress, u64)>>,
    ) {
        if view.version() > self.facts.view().version() {
            self.out.count().snapshots_installed += 1;
            self.install(now, view, None);
            if let Some(fading) = fading {
                self.fading.told(&self.facts, &fading);
            }
            self.apply_early(now, from);
        }
    }

    /// A peer has, or lacks, a version: whoever is behind pulls (anti-entropy).
    pub(crate) fn note_version(&mut self, now: Now, from: SiloAddress, version: u64) {
        if version > self.facts.view().version() && self.facts.standing().is_in_table() {
            self.pull(now, from, version);
        }
    }

    /// Asks `from` for what is missing up to `version`, unless somebody was just asked.
    pub(crate) fn pull(&mut self, now: Now, from: SiloAddress, version: u64) {
        if version <= self.facts.view().version() {
            return;
        }
        self.gossip.wanted = self.gossip.wanted.max(version);
        let within = if self.rests_on_table() { FENCED_PATIENCE } else { PULL_PATIENCE };
        if !self.out.timers().is_set(Timer::Pull) {
            self.out.timers().set(Timer::Pull, now.mono + within);
            self.out.send(from, Message::Pull { have: self.facts.view().version() });
        } else if within < PULL_PATIENCE {
            self.out.timers().set_no_later(Timer::Pull, now.mono + within);
        }
    }

    /// A newer view exists; gets it from the table when that is small, else from a peer, and from
    /// the table if none delivers.
    pub(crate) fn catch_up(&mut self, now: Now, version: u64) {
        if version <= self.facts.view().version() {
            return;
        }
        self.gossip.wanted = self.gossip.wanted.max(version);
        if !self.facts.config().delta_views || self.facts.view().len() <= SMALL_TABLE_ROWS {
            self.table.want(Read::All);
            return;
        }
        match self.random_active() {
            Some(peer) => self.pull(now, peer, version),
            None => self.table.want(Read::All),
        }
    }

    /// What was pulled did not come.
    pub(crate) fn on_pull_timeout(&mut self, now: Now) {
        if self.gossip.wanted <= self.facts.view().version() {
            return;
        }
        let wanted = self.gossip.wanted;
        let in_haste = self.rests_on_table();
        if let Some(peer) = self.gossip.hinted_by.take().filter(|_| !in_haste) {
            self.pull(now, peer, wanted);
            return;
        }
        if !self.facts.standing().is_in_table() {
            // Its own wish leads on: the member that was asked answers again.
            self.gossip.wanted = self.facts.view().version();
            return;
        }
        self.gossip.pulls += 1;
        match self.random_active() {
            Some(peer) if !in_haste && self.gossip.pulls < PULLS_BEFORE_READ => {
                self.pull(now, peer, wanted);
            }
            _ => {
                self.gossip.pulls = 0;
                self.table.want(Read::All);
            }
        }
    }

    pub(crate) fn on_pull(&mut self, from: SiloAddress, have: u64) {
        let version = self.facts.view().version();
        if have >= version {
            return;
        }
        let missing = usize::try_from(version - have).unwrap_or(usize::MAX);
        let known = self.facts.steps().last(missing.min(self.facts.steps().len()));
        let rows: usize = known.into_iter().flatten().map(|delta| delta.len()).sum();
        let steps = self.facts.steps().last(missing).filter(|_| {
            have > 0
                && missing <= DELTAS_PER_PULL_MAX
                && rows <= self.facts.view().len().max(SMALL_TABLE_ROWS)
        });
        let message = match steps {
            Some(steps) => Message::Deltas(steps.cloned().collect()),
            None => Message::Snapshot {
                view: self.facts.view().clone(),
                fading: self.fading.to_tell(&self.facts),
            },
        };
        self.out.send(from, message);
    }

    /// Whether a later version than the view in force is known to exist.
    pub(crate) fn is_behind(&self) -> bool {
        self.gossip.wanted > self.facts.view().version()
    }

    /// For how long this silo has known of a later version, or heard of one that the table has not
    /// denied, without getting it.
    pub(crate) fn behind_for(&mut self, now: Now) -> Duration {
        let version = self.facts.view().version();
        let known = self.gossip.wanted.max(self.gossip.claimed);
        self.gossip.behind.take_if(|(lacked, _)| *lacked <= version || known <= version);
        if known <= version {
            return Duration::ZERO;
        }
        let (_, since) = *self.gossip.behind.get_or_insert((known, now.mono));
        now.mono.saturating_since(since)
    }

    /// Some Active silo other than this one, not doubted if a few draws find one.
    pub(crate) fn random_active(&mut self) -> Option<SiloAddress> {
        let n = self.facts.view().len();
        let me = self.facts.me();
        let start = self.out.dice().index(n);
        let usable = |at: usize| {
            let row = &self.facts.view().members()[at % n.max(1)];
            row.status == SiloStatus::Active && row.address != me && !self.is_doubted(&row.address)
        };
        (start..start + n)
            .find(|at| usable(*at))
            .map(|at| self.facts.view().members()[at % n].address)
    }
}

#[cfg(test)]
mod tests {
    use emmer_core::Timestamp;

    use super::*;
    use crate::Config;
    use crate::world::World;

    /// Scenario 496 of the class `outage`: some had read the table before the delta came, and those
    /// below them waited.
    #[test]
    fn a_delta_is_handed_down_by_those_who_have_its_view() {
        const SILOS: u16 = 12;
        let world = World::cluster(&Config::default(), SILOS);
        let now = Now { mono: world.now, wall: Timestamp::default() };
        let root = world.silos[0].machine.me();
        let mut told = Vec::new();
        for process in &world.silos {
            let mut machine = process.machine.clone();
            let delta = machine.facts.steps().last(1).unwrap().next().unwrap().clone();
            assert_eq!(delta.version(), machine.view().version());
            machine.handle_message(now, root, Message::Tree { root, delta });
            let effects = std::iter::from_fn(|| machine.poll_effect());
            told.extend(effects.filter_map(|effect| match effect {
                Effect::Send { to, message: Message::Tree { .. } } => Some(to),
                _ => None,
            }));
        }
        told.sort_unstable();
        let others: Vec<_> =
            world.silos.iter().map(|p| p.machine.me()).filter(|silo| *silo != root).collect();
        assert_eq!(told, others, "everybody once");
    }
}
