//! Turning intents into one conditional commit (improvement 5).
//!
//! Every intent is evaluated against the view the commit is based on, plus the earlier changes of
//! the commit. The rules here decide who joins, who dies and who may say so. The compare-and-set on
//! the version row makes the decision hold only if nothing changed since.

mod cleaning;
mod draft;
mod evaluate;
mod gather;
mod queue;
mod supersede;

use std::sync::Arc;

use emmer_core::{SiloAddress, SiloStatus, TableVersion};

use self::cleaning::Cleaning;
pub(crate) use self::draft::Draft;
use self::evaluate::Verdict;
use self::gather::Ripe;
use self::queue::Queue;
use self::supersede::Evictions;
pub(crate) use self::supersede::on_hush;
use crate::api::{DialOutcome, Event};
use crate::delta::Delta;
use crate::facts::Facts;
use crate::inner::Inner;
use crate::intent::{INTENTS_PER_MESSAGE_MAX, Intent, Key};
use crate::message::Message;
use crate::out::Out;
use crate::rules::{Quorum, intent_lifetime};
use crate::timers::Timer;
use crate::view::View;

/// Writes of a silo, for itself and for others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Write {
    queue: Queue,
    ripe: Ripe,
    evictions: Evictions,
    cleaning: Cleaning,
    /// Rows to delete with the next commit.
    deletes: Vec<SiloAddress>,
    /// The commit that is on its way to the table.
    under_way: Option<Box<Draft>>,
}

/// Words of the other parts when a commit is drafted.
pub(crate) struct Said<'a> {
    quorum: Quorum,
    is_own: &'a dyn Fn(&Key) -> bool,
    is_blocked: &'a dyn Fn() -> bool,
}

impl<'a> Said<'a> {
    /// `quorum` is the number of votes that a death takes; `is_own` is true for wishes of this silo
    /// itself, and `is_blocked` if its own join lacks round trips.
    pub(crate) const fn new(
        quorum: Quorum,
        is_own: &'a dyn Fn(&Key) -> bool,
        is_blocked: &'a dyn Fn() -> bool,
    ) -> Self {
        Self { quorum, is_own, is_blocked }
    }
}

impl Write {
    /// Returns true if there is nothing to write at all.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.deletes.is_empty()
    }

    /// Returns true if the queue keeps within its bound.
    pub(crate) fn is_bounded(&self) -> bool {
        self.queue.is_bounded()
    }

    /// Returns true if any vote waits to be written.
    pub(crate) fn has_votes(&self) -> bool {
        self.queue.has_votes()
    }

    /// Returns true if the host of `silo` said lately that its process is gone.
    pub(crate) fn knows_gone(&self, silo: &SiloAddress) -> bool {
        self.evictions.knows_gone(silo)
    }

    /// Takes intents to be written by this silo.
    pub(crate) fn add(&mut self, facts: &Facts, out: &mut Out, intents: Vec<Intent>) {
        for intent in intents {
            self.queue.add(facts, out, intent);
        }
    }

    /// Writes this intent no longer.
    pub(crate) fn forget(&mut self, key: &Key) {
        self.queue.remove(key);
    }

    /// Writes `intent`. It replaces a waiting intent of the same key.
    pub(crate) fn replace(&mut self, intent: Intent) {
        self.queue.replace(intent);
    }

    /// Waits for more intents, unless there are enough for a commit.
    pub(crate) fn collect(&self, facts: &Facts, out: &mut Out) {
        self.queue.collect(facts, out);
    }

    /// Looks for Dead rows that no silo needs.
    pub(crate) fn clean_up(&mut self, facts: &Facts) {
        if let Some(deletes) = self.cleaning.look(facts) {
            self.deletes = deletes;
        }
    }

    // ---- joins
    // ----------------------------------------------------------------------------------------------------

    /// Returns true if more joins wait than fit into the next commit.
    pub(crate) fn has_joins_beyond(&self, facts: &Facts) -> bool {
        !self.queue.joins_beyond(facts.me()).is_empty()
    }

    /// The view in force is new, and `to` is to write in it: hands those joins on.
    ///
    /// A silo that has just committed knows of its commit first, so it would win every
    /// compare-and-set until its queue is empty. The new writer, and inserted silos that ask it to
    /// become Active, would have to wait for all of it.
    pub(crate) fn hand_on_joins(&mut self, facts: &Facts, out: &mut Out, to: SiloAddress) {
        let version = facts.view().version();
        for keys in self.queue.joins_beyond(facts.me()).chunks(INTENTS_PER_MESSAGE_MAX) {
            let intents = keys.iter().filter_map(|key| self.queue.remove(key)).collect();
            out.send(to, Message::Write { version, intents, hops: 1 });
        }
    }

    /// A dial of an eviction's ended.
    pub(crate) fn on_dialled(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        silo: SiloAddress,
        outcome: DialOutcome,
    ) {
        self.evictions.on_dialled(facts, out, silo, outcome);
    }

    /// A monitor says that it confirms `target` no longer, since it was asked at `stamp`.
    pub(crate) fn on_hushed(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        from: SiloAddress,
        target: SiloAddress,
        stamp: u64,
    ) {
        self.evictions.on_hushed(facts, out, from, target, stamp);
    }

    /// A predecessor says that it has ended.
    pub(crate) fn on_yielded(&mut self, facts: &Facts, out: &mut Out, from: SiloAddress) {
        self.evictions.on_yielded(facts, out, from);
    }

    // ---- commits
    // --------------------------------------------------------------------------------------------------

    /// Evaluates every queued intent and drops finished ones. None when nothing is to be written.
    pub(crate) fn draft(&mut self, facts: &Facts, out: &mut Out, said: &Said<'_>) -> Option<Draft> {
        let now = facts.now().mono;
        self.queue.forget_stale(now, intent_lifetime(facts.config()), said.is_own);
        self.evictions.press(facts, out, &self.queue);
        let mut draft = Draft::new(facts.view().version());
        let mut dropped = Vec::new();
        let quorum = said.quorum;
        self.ripe.write_suspicions(facts, out, quorum, &self.queue, &mut draft, &mut dropped);
        if self.queue.has_votes() && now < quorum.lapses_at() {
            out.timers().set_no_later(Timer::Flush, quorum.lapses_at());
        }
        for key in self.queue.keys() {
            if draft.room() < 2 {
                break;
            }
            let Some(intent) = self.queue.get(key) else { continue };
            let verdict = match intent {
                Intent::Vote { .. } | Intent::Withdraw { .. } | Intent::Retract { .. } => continue,
                Intent::Join(row) => evaluate::join(facts, &self.evictions, row, &mut draft),
                Intent::Activate { silo, checked, missing } => {
                    let (checked, blocked) = (*checked, said.is_blocked);
                    evaluate::activate(facts, silo, checked, missing, blocked, &mut draft)
                }
                Intent::Status { silo, status } => {
                    evaluate::status(facts, silo, *status, &mut draft)
                }
            };
            match verdict {
                Verdict::Written | Verdict::Wait => {}
                Verdict::Drop => dropped.push(*key),
                Verdict::Recheck => {
                    dropped.push(*key);
                    out.tell(Inner::Recheck(intent.owner()));
                }
            }
        }
        for key in dropped {
            self.queue.remove(&key);
        }
        self.add_deletes(facts, &mut draft);
        (!draft.is_empty()).then_some(draft)
    }

    /// The commit `draft` is on its way to the table.
    pub(crate) fn sent(&mut self, draft: Draft) {
        self.under_way = Some(Box::new(draft));
    }

    /// The request to the table that is under way has ended: takes the commit that it was, if it
    /// was one.
    pub(crate) fn take_sent(&mut self) -> Option<Draft> {
        self.under_way.take().map(|draft| *draft)
    }

    fn add_deletes(&mut self, facts: &Facts, draft: &mut Draft) {
        let wanted = std::mem::take(&mut self.deletes);
        for silo in wanted.into_iter().take(draft.room()) {
            let dead = facts.view().get(&silo).is_some_and(|row| row.status == SiloStatus::Dead);
            if dead && !draft.changes(&silo) {
                draft.delete(silo);
            }
        }
    }
}

/// A commit that changes nothing but the version.
pub(crate) fn draft_nothing(facts: &Facts) -> Option<Draft> {
    let mut draft = Draft::new(facts.view().version());
    draft.put((**facts.view().get(&facts.me())?).clone());
    Some(draft)
}

/// The commit happened, and led to `version`: the step that it was, the view that it led to, and
/// the silos whose rows are new.
pub(crate) fn committed(
    facts: &Facts,
    out: &mut Out,
    draft: Draft,
    version: TableVersion,
) -> (Arc<Delta>, Arc<View>, Vec<SiloAddress>) {
    let (me, before) = (facts.me(), facts.view());
    let dead = draft.rows().filter(|row| row.status == SiloStatus::Dead && row.address != me);
    for row in dead {
        out.count().deaths_declared += 1;
        out.event(Event::DeclaredDead { peer: row.address });
    }
    let inserted = draft.rows().map(|row| row.address).filter(|silo| before.get(silo).is_none());
    let inserted = inserted.collect();
    let (delta, view) = draft.into_delta(before, version);
    out.count().rows_written += delta.len() as u64;
    (Arc::new(delta), view, inserted)
}

/// Views of a writer for tests.
#[cfg(test)]
impl Write {
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn would_write(&self, key: &Key) -> bool {
        self.queue.get(key).is_some()
    }
}
