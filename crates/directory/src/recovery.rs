//! The new owner's side: views change what this silo owns, and what it gained is locked until every silo that
//! may host grains has said what it has there.

use std::collections::BTreeMap;

use emmer_core::{GrainId, Instant, SiloAddress, SiloStatus};

use crate::answering::Question;
use crate::api::{Effect, FailReason, Registration};
use crate::collecting::Early;
use crate::directory::{Directory, hosts};
use crate::message::Message;
use crate::pending::Timer;
use crate::ranges::RangeSet;
use crate::streams::Progress;

/// Ranges that this silo gained and does not know yet.
#[derive(Clone, Debug)]
pub(crate) struct Recovery {
    /// The view that gave them.
    view: u64,
    /// What of them is still this silo's: owned in every view since, without a gap.
    pub(crate) ranges: RangeSet,
    /// Who has not told everything yet, and how far each has come.
    waiting: BTreeMap<SiloAddress, Progress>,
    /// Who tells in the name of all, and how far that has come. None: every silo is asked.
    collector: Option<(SiloAddress, Progress)>,
    /// Whether the collector was asked what it does, and has not said.
    doubted: bool,
    /// The newest view at which anybody answered: only with it installed is it known which of the ranges were
    /// this silo's in the answerer's eyes.
    answered_at: u64,
    /// Silos that died without an answer may run turns until here, on activations that nobody else knows of.
    not_before: Instant,
    due: Instant,
}

impl Directory {
    /// Installs the view `version` with these silos. A version that is not newer is ignored. Views may be
    /// skipped.
    ///
    /// `fading` names the silos that are Dead in this view and may still run turns, and until when by this
    /// silo's clock. Nobody is granted one of their grains before (invariant I8).
    pub fn handle_view(
        &mut self,
        now: Instant,
        version: u64,
        silos: &[(SiloAddress, SiloStatus)],
        fading: &[(SiloAddress, Instant)],
    ) {
        if self.closed || version <= self.version {
            return;
        }
        let contiguous = version == self.version + 1;
        let was_member = self.silos.contains_key(&self.me);
        self.version = version;
        let old_silos = std::mem::replace(&mut self.silos, silos.iter().copied().collect());
        let gone = match self.silos.get(&self.me) {
            Some(status) => *status == SiloStatus::Dead,
            None => was_member,
        };
        if gone {
            self.close();
            return;
        }
        let died = if contiguous { self.lost_to_death(&old_silos) } else { Vec::new() };
        self.change_ring(&old_silos);
        self.note_fading(now, fading);
        let before = std::mem::replace(&mut self.owned, RangeSet::owned(&self.ring, self.me));
        let mut gained = self.owned.subtract(&before);
        if contiguous {
            self.keep_recoveries(now);
        } else {
            // Between the views somebody else may have owned what is locked here: answers so far are void.
            gained = gained.union(&self.drop_recoveries().intersect(&self.owned));
        }
        let lost = !before.subtract(&self.owned).is_empty();
        let kept = (lost || !gained.is_empty()).then(|| self.owned.subtract(&gained));
        self.keep_entries(kept.as_ref());
        self.keep_collections();
        self.keep_streams();
        let loss = self.loss(&died);
        if let Some(loss) = &loss {
            self.start_recovery(now, gained.intersect(&loss.ranges), Some(loss.collector));
            gained = gained.subtract(&loss.ranges);
        }
        self.start_recovery(now, gained, None);
        if let Some(loss) = loss {
            self.collect(now, loss);
        }
        self.follow_view(now);
        self.answer_deferred(now);
        self.take_early(now);
        self.finish_collections(now);
        self.finish_recoveries(now);
    }

    /// The ring follows the silos that became Active, or are not any more.
    fn change_ring(&mut self, before: &BTreeMap<SiloAddress, SiloStatus>) {
        let new = |old: &BTreeMap<_, _>, now: &BTreeMap<SiloAddress, SiloStatus>| -> Vec<SiloAddress> {
            let active = now.iter().filter(|(_, status)| **status == SiloStatus::Active);
            active.map(|(silo, _)| *silo).filter(|silo| old.get(silo) != Some(&SiloStatus::Active)).collect()
        };
        self.ring.change(&new(&self.silos, before), &new(before, &self.silos));
    }

    fn close(&mut self) {
        self.closed = true;
        self.owned = RangeSet::default();
        self.entries.clear();
        self.drop_recoveries();
        self.collections.clear();
        self.early = Early::default();
        self.streams.clear();
        self.answering.clear();
        self.deferred.clear();
        self.fading.clear();
        self.timers.clear();
        self.fail_all(FailReason::Closed);
    }

    /// The next view in sequence: recoveries go on for what is still owned. Who died without an answer is not
    /// asked any more, but has to have faded. Silos that became hosts since need not be asked (crate page,
    /// lemma 3).
    fn keep_recoveries(&mut self, now: Instant) {
        let silos = &self.silos;
        let owned = &self.owned;
        let fading = &self.fading;
        let timers = &mut self.timers;
        self.recoveries.retain(|id, recovery| {
            recovery.ranges = recovery.ranges.intersect(owned);
            recovery.waiting.retain(|silo, _| {
                let waits = silos.get(silo).copied().is_some_and(hosts);
                if let Some(until) = fading.get(silo).filter(|_| !waits) {
                    recovery.not_before = recovery.not_before.max(*until);
                }
                waits
            });
            let keep = !recovery.ranges.is_empty();
            if !keep {
                timers.remove(&(recovery.due, Timer::Recovery(*id)));
            }
            keep
        });
        let collects = |silo: &SiloAddress| silos.get(silo) == Some(&SiloStatus::Active);
        let left = |r: &Recovery| r.collector.is_some_and(|(silo, _)| !collects(&silo));
        let orphans: Vec<_> = self.recoveries.iter().filter(|(_, r)| left(r)).map(|(id, _)| *id).collect();
        for id in orphans {
            self.ask_everybody(now, id);
        }
    }

    /// Nobody collects for this recovery (any more): this silo asks the hosts by itself.
    fn ask_everybody(&mut self, now: Instant, id: u64) {
        if let Some(recovery) = self.recoveries.get_mut(&id) {
            recovery.collector = None;
            self.put_off(now, id);
            self.ask(now, id);
        }
    }

    /// Ends every recovery; returns what was locked.
    fn drop_recoveries(&mut self) -> RangeSet {
        let me = self.me;
        let recoveries = &self.recoveries;
        self.answering.retain(|_, q| q.to != me || !recoveries.contains_key(&q.recovery));
        let mut locked = RangeSet::default();
        for (id, recovery) in std::mem::take(&mut self.recoveries) {
            self.timers.remove(&(recovery.due, Timer::Recovery(id)));
            locked = locked.union(&recovery.ranges);
        }
        locked
    }

    /// Locks `ranges` until it is known who is registered there: from the `collector`, if there is one.
    fn start_recovery(&mut self, now: Instant, ranges: RangeSet, collector: Option<SiloAddress>) {
        if ranges.is_empty() {
            return;
        }
        let id = self.next_number();
        let waiting: BTreeMap<_, _> = self
            .silos
            .iter()
            .filter(|(_, status)| hosts(**status))
            .map(|(silo, _)| (*silo, Progress::default()))
            .collect();
        let due = now + self.config.resend_interval;
        self.timers.insert((due, Timer::Recovery(id)));
        let (view, not_before) = (self.version, self.all_faded(now));
        let collector = collector.map(|silo| (silo, Progress::default()));
        let recovery =
            Recovery { view, ranges, waiting, collector, doubted: false, answered_at: view, not_before, due };
        self.recoveries.insert(id, recovery);
        if collector.is_none() {
            self.ask(now, id);
        }
    }

    /// Asks everybody who has not answered.
    fn ask(&mut self, now: Instant, id: u64) {
        let Some(recovery) = self.recoveries.get(&id) else { return };
        let (view, ranges) = (recovery.view, recovery.ranges.clone());
        let waiting: Vec<_> = recovery.waiting.keys().copied().collect();
        for silo in waiting {
            if silo == self.me {
                self.start_answer(now, Question { to: silo, recovery: id, view, ranges: ranges.clone() });
            } else {
                let ranges = ranges.to_ring_ranges();
                self.send(silo, Message::Recover { recovery: id, view, ranges });
            }
        }
    }

    /// Nothing was heard for a while: whoever is silent is asked again. A collector that stays silent is given up.
    pub(crate) fn recovery_due(&mut self, now: Instant, id: u64) {
        self.put_off(now, id);
        let Some(recovery) = self.recoveries.get_mut(&id) else { return };
        match recovery.collector {
            Some((collector, _)) if collector != self.me && !recovery.doubted => {
                recovery.doubted = true;
                let view = recovery.view;
                self.send(collector, Message::Await { view });
            }
            Some((collector, _)) if collector == self.me && self.collections.contains_key(&recovery.view) => {
            }
            Some(_) => self.ask_everybody(now, id),
            None => self.ask(now, id),
        }
    }

    /// This silo's recovery of what `view` lost, if `collector` tells it what was there.
    fn collected_by(&self, collector: SiloAddress, view: u64) -> Option<u64> {
        let is_it = |r: &Recovery| r.view == view && r.collector.is_some_and(|(silo, _)| silo == collector);
        self.recoveries.iter().find(|(_, recovery)| is_it(recovery)).map(|(id, _)| *id)
    }

    /// What the collector says when it has nothing to pass on.
    pub(crate) fn handle_awaited(&mut self, now: Instant, from: SiloAddress, view: u64, known: bool) {
        let Some(id) = self.collected_by(from, view) else { return };
        if !known {
            self.ask_everybody(now, id);
        } else if let Some(recovery) = self.recoveries.get_mut(&id) {
            recovery.doubted = false;
        }
    }

    /// One batch of what the collector was told.
    pub(crate) fn handle_collected(
        &mut self,
        now: Instant,
        from: SiloAddress,
        (series, batch): (u64, u32),
        (view, at, last): (u64, u64, bool),
        missing: &[SiloAddress],
        entries: Vec<(GrainId, Registration)>,
    ) {
        let id = self.collected_by(from, view);
        let Some(recovery) = id.and_then(|id| self.recoveries.get_mut(&id)) else {
            // Of no use here any more: the collector need not keep it.
            self.send(from, Message::Credit { series, batches: u32::MAX });
            return;
        };
        if let Some((_, progress)) = &mut recovery.collector
            && progress.takes(series, batch)
        {
            self.send(from, Message::Credit { series, batches: batch + 1 });
            self.take_collected(now, from, (view, at, last), missing, entries);
        }
    }

    /// What all hosts of the view have told, but for the `missing`: those are Dead in the view `at`.
    pub(crate) fn take_collected(
        &mut self,
        now: Instant,
        from: SiloAddress,
        (view, at, last): (u64, u64, bool),
        missing: &[SiloAddress],
        entries: Vec<(GrainId, Registration)>,
    ) {
        let Some(id) = self.collected_by(from, view) else { return };
        let Some(recovery) = self.recoveries.get_mut(&id) else { return };
        recovery.doubted = false;
        recovery.answered_at = recovery.answered_at.max(at);
        if last {
            recovery.waiting.retain(|silo, _| missing.contains(silo));
        }
        for (grain, held) in entries {
            // Who told and died since has an entry as long as it fades.
            if self.is_host(&held.silo) || self.fading.contains_key(&held.silo) {
                self.recovered(id, &grain, held);
            }
        }
        self.put_off(now, id);
        self.finish_recoveries(now);
    }

    fn put_off(&mut self, now: Instant, id: u64) {
        let Some(recovery) = self.recoveries.get_mut(&id) else { return };
        self.timers.remove(&(recovery.due, Timer::Recovery(id)));
        recovery.due = now + self.config.resend_interval;
        self.timers.insert((recovery.due, Timer::Recovery(id)));
    }

    /// One batch of `from`'s report.
    pub(crate) fn handle_report(
        &mut self,
        now: Instant,
        from: SiloAddress,
        id: u64,
        (view, series, batch, last): (u64, u64, u32, bool),
        entries: Vec<(GrainId, u64)>,
    ) {
        let told = if id == Message::UNASKED { Some(view) } else { self.collection_of(id) };
        if let Some(told) = told {
            self.handle_told(now, from, told, ((view, series, batch, last), entries));
            return;
        }
        let Some(recovery) = self.recoveries.get_mut(&id) else { return };
        let Some(progress) = recovery.waiting.get_mut(&from) else { return };
        if !progress.takes(series, batch) {
            return;
        }
        recovery.answered_at = recovery.answered_at.max(view);
        if last {
            recovery.waiting.remove(&from);
        } else {
            self.send(from, Message::Credit { series, batches: batch + 1 });
        }
        for (grain, activation) in entries {
            self.recovered(id, &grain, Registration { silo: from, activation });
        }
        self.put_off(now, id);
        self.finish_recoveries(now);
    }

    /// Enters one reported activation. Two of one grain cannot be while every silo keeps the rules; should it
    /// happen all the same, the smaller registration stays and the other is told.
    fn recovered(&mut self, id: u64, grain: &GrainId, reported: Registration) {
        if !self.recoveries.get(&id).is_some_and(|r| r.ranges.covers(grain)) {
            return;
        }
        let Some(held) = self.entries.get(grain).filter(|held| *held != reported) else {
            self.entries.insert(grain, reported);
            return;
        };
        let (winner, loser) = if held < reported { (held, reported) } else { (reported, held) };
        self.entries.insert(grain, winner);
        let (grain, activation) = (grain.clone(), loser.activation);
        if loser.silo == self.me {
            self.effects.push_back(Effect::Evict { grain, activation });
        } else {
            self.send(loser.silo, Message::Evict { grain, activation });
        }
    }

    /// Unlocks what is complete, and serves this silo's own commands that waited for it.
    pub(crate) fn finish_recoveries(&mut self, now: Instant) {
        let version = self.version;
        let timers = &mut self.timers;
        let before = self.recoveries.len();
        self.recoveries.retain(|id, recovery| {
            let answered = recovery.waiting.is_empty() && recovery.answered_at <= version;
            let done = answered && recovery.not_before <= now;
            if done {
                timers.remove(&(recovery.due, Timer::Recovery(*id)));
            }
            !done
        });
        if self.recoveries.len() < before {
            self.settle_own();
        }
    }
}
