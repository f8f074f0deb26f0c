//! Turning intents into one conditional commit (improvement 5).
//!
//! Every intent is evaluated against the view the commit is based on, plus what the commit already
//! changes. The rules here decide who joins, who dies and who may say so; the compare-and-set on
//! the version row makes the decision hold only if nothing changed since.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use emmer_core::limits::MEMBERSHIP_ROWS_PER_COMMIT_MAX;
use emmer_core::{Instant, Now, SiloAddress, SiloEntry, SiloStatus, TableVersion, Vote};

use crate::api::{Event, TableRequest};
use crate::delta::Delta;
use crate::intent::{INTENTS_MAX, INTENTS_PER_MESSAGE_MAX, Intent, Key};
use crate::membership::Membership;
use crate::message::Message;
use crate::rules::intent_lifetime;
use crate::timers::Timer;

/// The intents a silo is to write, its own and others'.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Writer {
    queue: BTreeMap<Key, Queued>,
    /// Who has enough votes to be declared dead, and waits for others.
    ripe: BTreeMap<SiloAddress, Instant>,
    /// Rows to delete with the next commit.
    deletes: Vec<SiloAddress>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Queued {
    pub(crate) intent: Intent,
    /// When it came in.
    pub(crate) since: Instant,
    /// When it was last repeated by its owner.
    renewed: Instant,
}

/// A commit in the making.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Draft {
    base: u64,
    rows: BTreeMap<SiloAddress, SiloEntry>,
    deletes: Vec<SiloAddress>,
    /// See [`Delta`].
    skipped: Vec<(SiloAddress, SiloAddress)>,
}

/// What an intent comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is in the draft.
    Written,
    /// It has nothing to change any more, or never may.
    Drop,
    /// It has to wait for a later view, or for more votes.
    Wait,
    /// Its owner has to check again (activations).
    Recheck,
}

impl Writer {
    /// Whether there is nothing to write at all.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.deletes.is_empty()
    }

    /// Whether the queue keeps within its bound.
    pub(crate) fn is_bounded(&self) -> bool {
        self.queue.len() <= INTENTS_MAX
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.queue.keys()
    }

    /// Writes this intent no more.
    pub(crate) fn forget(&mut self, key: &Key) {
        self.queue.remove(key);
    }

    /// Writes `intent` in place of the one that waits under `key`, if one does.
    pub(crate) fn replace(&mut self, key: &Key, intent: &Intent) {
        if let Some(queued) = self.queue.get_mut(key) {
            queued.intent = intent.clone();
        }
    }

    /// The votes against `target` that wait.
    pub(crate) fn votes_against(
        &self,
        target: SiloAddress,
    ) -> impl Iterator<Item = (Key, &Queued)> {
        self.queue
            .range(Key::Vote(target, lowest())..)
            .take_while(move |(key, _)| matches!(key, Key::Vote(t, _) if *t == target))
            .map(|(key, queued)| (*key, queued))
    }

    /// Who has waited for company so far, and since when.
    pub(crate) fn take_ripe(&mut self) -> BTreeMap<SiloAddress, Instant> {
        std::mem::take(&mut self.ripe)
    }

    /// They go on waiting.
    pub(crate) fn keep_ripe(&mut self, ripe: BTreeMap<SiloAddress, Instant>) {
        self.ripe = ripe;
    }

    /// Deletes these rows with the next commit.
    pub(crate) fn delete(&mut self, rows: Vec<SiloAddress>) {
        self.deletes = rows;
    }

    /// Whether any vote waits to be written.
    pub(crate) fn has_votes(&self) -> bool {
        self.queue.keys().next().is_some_and(|key| matches!(key, Key::Vote(..)))
    }
}

impl Draft {
    pub(crate) const fn new(base: u64) -> Self {
        Self { base, rows: BTreeMap::new(), deletes: Vec::new(), skipped: Vec::new() }
    }

    /// Makes `row` Active, although it made no round trip with `missing`.
    pub(crate) fn activate(&mut self, mut row: SiloEntry, missing: &[SiloAddress]) {
        row.status = SiloStatus::Active;
        self.skipped.extend(missing.iter().map(|other| (row.address, *other)));
        self.rows.insert(row.address, row);
    }

    /// Who dies in this draft because a successor joins, with the successor.
    pub(crate) fn superseded(&self) -> Vec<(SiloAddress, SiloAddress)> {
        let joining = self.rows.values().filter(|row| row.status == SiloStatus::Joining);
        joining
            .flat_map(|new| {
                let old =
                    self.rows.values().filter(|old| old.address.is_succeeded_by(&new.address));
                old.map(|old| (old.address, new.address))
            })
            .collect()
    }

    /// Whether this draft makes Active a silo that made no round trip with `silo`.
    pub(crate) fn skips(&self, silo: &SiloAddress) -> bool {
        self.skipped.iter().any(|(_, other)| other == silo)
    }

    /// Whether this draft makes `silo` Active.
    pub(crate) fn activates(&self, silo: &SiloAddress) -> bool {
        self.rows.get(silo).is_some_and(|row| row.status == SiloStatus::Active)
    }

    /// Whether it changes nothing so far.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.deletes.is_empty()
    }

    pub(crate) const fn base_number(&self) -> u64 {
        self.base
    }

    pub(crate) fn request(&self, base: TableVersion) -> TableRequest {
        TableRequest::Commit {
            base,
            rows: self.rows.values().cloned().collect(),
            deletes: self.deletes.clone(),
        }
    }

    pub(crate) fn room(&self) -> usize {
        MEMBERSHIP_ROWS_PER_COMMIT_MAX.saturating_sub(self.rows.len() + self.deletes.len())
    }

    pub(crate) fn put(&mut self, row: SiloEntry) {
        self.rows.insert(row.address, row);
    }
}

impl Membership {
    /// Takes an intent to be written by this silo.
    pub(crate) fn enqueue(&mut self, now: Now, intent: Intent) {
        let key = intent.key();
        if matches!(intent, Intent::Withdraw { .. }) {
            self.writer.queue.remove(&key);
            return;
        }
        if let Some(queued) = self.writer.queue.get_mut(&key) {
            // A copy that comes late must not take the place of a silo's last word about itself.
            let later = |intent: &Intent| match intent {
                Intent::Status { status, .. } => Some(*status),
                _ => None,
            };
            if later(&intent) >= later(&queued.intent) {
                queued.intent = intent;
            }
            queued.renewed = now.mono;
        } else if self.writer.queue.len() < INTENTS_MAX {
            self.writer.queue.insert(key, Queued { intent, since: now.mono, renewed: now.mono });
        }
        self.collect(now);
    }

    /// The view in force is new. If somebody else is to write in it, the joins that do not fit into
    /// the next commit are handed on.
    ///
    /// A silo that has just committed knows of it first, so it would win every compare-and-set
    /// until its queue is empty, and the new writer, whom those who were inserted ask to be Active,
    /// would have to wait for all of it.
    pub(crate) fn hand_on_joins(&mut self) {
        let me = Key::Join(self.facts.me());
        let joins = self.writer.queue.range(Key::Join(lowest())..).map(|(key, _)| *key);
        let beyond: Vec<Key> =
            joins.filter(|key| *key != me).skip(MEMBERSHIP_ROWS_PER_COMMIT_MAX).collect();
        if beyond.is_empty() || self.is_done() {
            return;
        }
        let Some(to) = self.writer_to_ask() else { return };
        let version = self.facts.view().version();
        for keys in beyond.chunks(INTENTS_PER_MESSAGE_MAX) {
            let intents = keys
                .iter()
                .filter_map(|key| self.writer.queue.remove(key))
                .map(|queued| queued.intent);
            let intents = intents.collect();
            self.out.send(to, Message::Write { version, intents, hops: 1 });
        }
    }

    /// Waits for more intents, unless there are enough for a commit.
    pub(crate) fn collect(&mut self, now: Now) {
        if self.writer.queue.len() >= MEMBERSHIP_ROWS_PER_COMMIT_MAX {
            self.out.timers().clear(Timer::Flush);
        } else if !self.writer.queue.is_empty() {
            self.out
                .timers()
                .set_no_later(Timer::Flush, now.mono + self.facts.config().batch_window);
        }
    }

    /// The row of `silo` as the draft would leave it.
    pub(crate) fn drafted<'a>(
        &'a self,
        draft: &'a Draft,
        silo: &SiloAddress,
    ) -> Option<&'a SiloEntry> {
        draft.rows.get(silo).or_else(|| self.facts.view().get(silo).map(|row| &**row))
    }

    /// Whether any intent would change something (classic: before the read that precedes the
    /// write).
    pub(crate) fn has_something_to_write(&mut self, now: Now) -> bool {
        self.draft_commit(now).is_some()
    }

    /// Evaluates every queued intent and drops those that are done; none when nothing is to be
    /// written.
    pub(crate) fn draft_commit(&mut self, now: Now) -> Option<Draft> {
        self.forget_stale_intents(now);
        self.press_evictions(now);
        let mut draft = Draft::new(self.facts.view().version());
        let mut dropped = Vec::new();
        let mut recheck = Vec::new();
        let keys: Vec<Key> = self.writer.queue.keys().copied().collect();
        self.write_suspicions(now, &keys, &mut draft, &mut dropped);
        let lapses_at = self.votes.quorum().lapses_at();
        if self.writer.has_votes() && now.mono < lapses_at {
            self.out.timers().set_no_later(Timer::Flush, lapses_at);
        }
        for key in keys {
            if draft.room() < 2 {
                break;
            }
            if matches!(key, Key::Vote(..)) {
                continue;
            }
            let Some(queued) = self.writer.queue.get(&key) else { continue };
            let verdict = match &queued.intent {
                Intent::Join(row) => self.write_join(now, row, &mut draft),
                Intent::Activate { silo, checked, missing } => {
                    self.write_activate(silo, *checked, missing, &mut draft)
                }
                Intent::Status { silo, status } => {
                    self.write_status(now, silo, *status, &mut draft)
                }
                Intent::Vote { .. } | Intent::Withdraw { .. } | Intent::Retract { .. } => {
                    Verdict::Drop
                }
            };
            match verdict {
                Verdict::Written | Verdict::Wait => {}
                Verdict::Drop => dropped.push(key),
                Verdict::Recheck => {
                    dropped.push(key);
                    recheck.push(queued.intent.owner());
                }
            }
        }
        for key in dropped {
            self.writer.queue.remove(&key);
        }
        for owner in recheck {
            self.ask_to_recheck(owner);
        }
        self.add_deletes(&mut draft);
        (!draft.rows.is_empty() || !draft.deletes.is_empty()).then_some(draft)
    }

    /// A commit that changes nothing but the version.
    pub(crate) fn draft_nothing(&self) -> Option<Draft> {
        let mut draft = Draft::new(self.facts.view().version());
        draft.put((**self.facts.view().get(&self.facts.me())?).clone());
        Some(draft)
    }

    fn add_deletes(&mut self, draft: &mut Draft) {
        let wanted = std::mem::take(&mut self.writer.deletes);
        for silo in wanted.into_iter().take(draft.room()) {
            let dead =
                self.facts.view().get(&silo).is_some_and(|row| row.status == SiloStatus::Dead);
            if dead && !draft.rows.contains_key(&silo) {
                draft.deletes.push(silo);
            }
        }
    }

    /// What others sent counts only while they repeat it: a vote that waited out an outage of the
    /// store would be old evidence (invariant I5).
    fn forget_stale_intents(&mut self, now: Now) {
        let keep = intent_lifetime(self.facts.config());
        let wishes = &self.wishes;
        self.writer.queue.retain(|key, queued| {
            wishes.has(key) || now.mono.saturating_since(queued.renewed) < keep
        });
    }

    /// Tells the owner of an activation that cannot be judged.
    fn ask_to_recheck(&mut self, owner: SiloAddress) {
        let version = self.facts.view().version();
        if owner == self.facts.me() {
            self.join.on_recheck(&self.facts, &mut self.out, version);
            self.drain();
        } else {
            self.out.send(owner, Message::Recheck { version });
        }
    }

    /// Evaluates an activation against the base of a commit (invariant I7: every pair of Active
    /// silos has made a round trip).
    ///
    /// Of two silos the one inserted later makes it. The joiner has made one with every member of
    /// the view `checked` but `missing` (Joining then). A silo that is Active now and was not a
    /// member then was inserted later, and has made one with the joiner, unless the commit that
    /// made it Active says that it skipped it.
    pub(crate) fn write_activate(
        &self,
        silo: &SiloAddress,
        checked: u64,
        missing: &[SiloAddress],
        draft: &mut Draft,
    ) -> Verdict {
        let Some(row) = self.facts.view().get(silo) else { return Verdict::Wait };
        if row.status != SiloStatus::Joining
            || self.drafted(draft, silo).is_none_or(|now| now != &**row)
        {
            return Verdict::Drop;
        }
        if checked > self.facts.view().version()
            || (*silo == self.facts.me() && self.join.is_blocked(&self.facts))
        {
            return Verdict::Wait;
        }
        let is_active = |other: &SiloAddress| {
            self.facts.view().status_of_row(other) == Some(SiloStatus::Active)
        };
        match self.facts.steps().skipped(self.facts.view().version(), checked, silo) {
            Some(false) if !missing.iter().any(is_active) => {}
            _ => return Verdict::Recheck,
        }
        if draft.skips(silo) || missing.iter().any(|other| draft.activates(other)) {
            return Verdict::Wait;
        }
        draft.activate((**row).clone(), missing);
        Verdict::Written
    }

    fn write_join(&self, now: Now, row: &SiloEntry, draft: &mut Draft) -> Verdict {
        if self.drafted(draft, &row.address).is_some() {
            return Verdict::Drop;
        }
        // I3, I4: a later incarnation, alive or dead, ends this one's hopes; earlier ones die with
        // its arrival.
        if self.facts.view().successor_of(&row.address).is_some()
            || draft.rows.values().any(|other| row.address.is_succeeded_by(&other.address))
        {
            return Verdict::Drop;
        }
        let mut earlier: BTreeMap<SiloAddress, SiloEntry> = self
            .facts
            .view()
            .incarnations_of(&row.address)
            .iter()
            .map(|old| (old.address, (**old).clone()))
            .collect();
        earlier.extend(
            draft
                .rows
                .values()
                .filter(|other| other.address.is_succeeded_by(&row.address))
                .map(|other| (other.address, other.clone())),
        );
        earlier.retain(|_, old| old.status != SiloStatus::Dead);
        // I8: one that may still run must not be confirmed any more.
        if !earlier.keys().all(|old| self.may_supersede(now, old)) {
            return Verdict::Wait;
        }
        for mut old in earlier.into_values() {
            old.status = SiloStatus::Dead;
            let gone = self.is_known_gone(row, &old);
            add_vote(&mut old.votes, Vote { voter: row.address, at: now.wall, gone });
            draft.put(old);
        }
        let mut row = row.clone();
        row.status = SiloStatus::Joining;
        row.votes.clear();
        draft.put(row);
        Verdict::Written
    }

    fn write_status(
        &self,
        now: Now,
        silo: &SiloAddress,
        status: SiloStatus,
        draft: &mut Draft,
    ) -> Verdict {
        let Some(row) = self.drafted(draft, silo) else { return Verdict::Drop };
        if row.status >= status {
            return Verdict::Drop;
        }
        let mut row = row.clone();
        row.status = status;
        if status == SiloStatus::Dead {
            // A vote of its own marks a silo that left in good order.
            add_vote(&mut row.votes, Vote { voter: *silo, at: now.wall, gone: false });
        }
        draft.put(row);
        Verdict::Written
    }

    /// The commit happened: the draft is the next view.
    pub(crate) fn on_committed(&mut self, now: Now, draft: Draft, version: TableVersion) {
        if self.facts.view().version() != draft.base || version.number != draft.base + 1 {
            // Somebody handed us an even newer view meanwhile (it contains this commit).
            self.catch_up(now, version.number);
            return;
        }
        let me = self.facts.me();
        for row in
            draft.rows.values().filter(|row| row.status == SiloStatus::Dead && row.address != me)
        {
            self.out.count().deaths_declared += 1;
            self.out.event(Event::DeclaredDead { peer: row.address });
        }
        // A silo just inserted may hang below one in the tree that died with its whole cluster.
        let inserted = |silo: &&SiloAddress| self.facts.view().get(silo).is_none();
        let inserted: Vec<SiloAddress> = draft.rows.keys().filter(inserted).copied().collect();
        let Draft { rows, deletes, skipped, .. } = draft;
        let rows: Vec<Arc<SiloEntry>> = rows.into_values().map(Arc::new).collect();
        self.out.count().rows_written += (rows.len() + deletes.len()) as u64;
        let (delta, view) = Delta::of_commit(&self.facts.view(), version, rows, deletes, skipped);
        let delta = Arc::new(delta);
        self.shared.note(&self.facts.view(), &view);
        // First the others: nothing comes out of this silo after a view that shows it Dead by its
        // own wish.
        self.broadcast(&delta, &view);
        if self.facts.config().use_liveness_gossip && self.facts.config().delta_views {
            for silo in inserted {
                self.out.send(silo, Message::Hint { version: delta.version() });
            }
        }
        self.install(now, view, Some(&delta));
    }
}

/// The most votes kept in one row.
const VOTES_MAX: usize = 16;

/// Adds `vote`, in place of an earlier one of the same voter (one voter never counts twice), in
/// place of the oldest one when there are too many.
pub(crate) fn add_vote(votes: &mut Vec<Vote>, vote: Vote) {
    if let Some(old) = votes.iter_mut().find(|v| v.voter == vote.voter) {
        *old = vote;
        return;
    }
    if votes.len() >= VOTES_MAX
        && let Some(oldest) = (0..votes.len()).min_by_key(|i| votes[*i].at)
    {
        votes.remove(oldest);
    }
    votes.push(vote);
}

/// A key below every real address.
fn lowest() -> SiloAddress {
    SiloAddress::new(std::net::SocketAddr::from(([0, 0, 0, 0], 0)), 0)
}

#[cfg(test)]
mod tests {
    use emmer_core::Timestamp;

    use super::*;
    use crate::api::Effect;
    use crate::config::Config;
    use crate::world::{World, address};

    #[test]
    fn joins_that_do_not_fit_into_the_next_commit_are_handed_on_to_the_writer_of_the_view() {
        const JOINS: usize = 130;
        let mut world = World::new();
        for i in 0..3 {
            world.start(&Config::default(), address(1_000 + i, 1), u64::from(i) + 1);
        }
        let is_active = |m: &Membership| m.status() == SiloStatus::Active;
        world.until(Duration::from_secs(10), |world| {
            world.silos.iter().all(|silo| is_active(&silo.machine))
        });
        for silo in &world.silos {
            let mut machine = silo.machine.clone();
            while machine.poll_effect().is_some() {}
            let now = machine.facts.now();
            for port in 0..JOINS as u16 {
                let row = SiloEntry::new(
                    address(2_000 + port, 1),
                    SiloStatus::Joining,
                    Timestamp::default(),
                );
                machine.enqueue(now, Intent::Join(row.into()));
            }
            let before = machine.writer.queue.len();
            machine.hand_on_joins();
            let mut handed = Vec::new();
            while let Some(effect) = machine.poll_effect() {
                if let Effect::Send { to, message: Message::Write { intents, hops: 1, .. } } =
                    effect
                {
                    handed.push((to, intents.len()));
                }
            }
            let writer = machine.writer_to_ask();
            let beyond = writer.map_or(0, |_| JOINS - MEMBERSHIP_ROWS_PER_COMMIT_MAX);
            assert_eq!(
                handed.iter().map(|(_, joins)| joins).sum::<usize>(),
                beyond,
                "writer {writer:?}"
            );
            assert!(handed.iter().all(|(to, _)| Some(*to) == writer));
            assert_eq!(machine.writer.queue.len(), before - beyond);
        }
    }
}
