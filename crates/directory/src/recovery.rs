//! The new owner's side: views change what this silo owns, and what it gained is locked until every
//! silo that may host grains has said what it has there.

use std::collections::BTreeMap;

use emmer_core::{GrainId, Instant, SiloAddress};

use crate::answering::Question;
use crate::api::{Effect, Registration};
use crate::directory::Directory;
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
    /// Who tells.
    source: Source,
    /// How far the one that tells in the name of all has come.
    progress: Progress,
    /// Whether that one was asked what it does, and has not said.
    doubted: bool,
    /// The newest view at which anybody answered: only with it installed is it known which of the
    /// ranges were this silo's in the answerer's eyes.
    answered_at: u64,
    /// Silos that died without an answer may run turns until here, on activations that nobody else
    /// knows of.
    not_before: Instant,
    due: Instant,
}

/// From whom a recovery learns what is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Every host is asked.
    Hosts,
    /// The hosts have told this silo.
    Collector(SiloAddress),
    /// The owner in the view before knows.
    Former(SiloAddress),
}

impl Directory {
    /// The next view in sequence: recoveries go on for what is still owned. Who died without an
    /// answer is not asked any more, but has to have faded. Silos that became hosts since need not
    /// be asked (crate page, lemma 3).
    pub(crate) fn keep_recoveries(&mut self, now: Instant, ended: &[SiloAddress]) {
        let silos = &self.silos;
        let owned = &self.owned;
        let fading = &self.fading;
        let timers = &mut self.timers;
        self.recoveries.retain(|id, recovery| {
            recovery.ranges = recovery.ranges.intersect(owned);
            for silo in ended.iter().filter(|silo| recovery.waiting.remove(silo).is_some()) {
                let faded = fading.get(silo).copied().unwrap_or_default();
                recovery.not_before = recovery.not_before.max(faded);
            }
            let keep = !recovery.ranges.is_empty();
            if !keep {
                timers.remove(&(recovery.due, Timer::Recovery(*id)));
            }
            keep
        });
        let left =
            |r: &Recovery| matches!(r.source, Source::Collector(silo) if !silos.is_active(&silo));
        let orphans: Vec<_> =
            self.recoveries.iter().filter(|(_, r)| left(r)).map(|(id, _)| *id).collect();
        for id in orphans {
            self.ask_everybody(now, id);
        }
    }

    /// Nobody collects for this recovery (any more): this silo asks the hosts by itself.
    fn ask_everybody(&mut self, now: Instant, id: u64) {
        if let Some(recovery) = self.recoveries.get_mut(&id) {
            recovery.source = Source::Hosts;
            self.put_off(now, id);
            self.ask(now, id);
        }
    }

    /// Ends recoveries whose former owner is gone before it has handed all over; returns their
    /// ranges.
    pub(crate) fn drop_orphans(&mut self) -> RangeSet {
        let (silos, timers) = (&self.silos, &mut self.timers);
        let mut orphans = RangeSet::default();
        self.recoveries.retain(|id, recovery| {
            let Source::Former(owner) = recovery.source else { return true };
            let lives = silos.is_host(&owner);
            if !lives {
                timers.remove(&(recovery.due, Timer::Recovery(*id)));
                orphans = orphans.union(&recovery.ranges);
            }
            lives
        });
        orphans
    }

    /// The former owner cannot or does not hand over: what it had is recovered from all hosts, from
    /// now on.
    fn begin_anew(&mut self, now: Instant, id: u64) {
        let Some(recovery) = self.recoveries.remove(&id) else { return };
        self.timers.remove(&(recovery.due, Timer::Recovery(id)));
        let kept = self.owned.subtract(&recovery.ranges);
        self.keep_entries(Some(&kept));
        self.start_recovery(now, recovery.ranges, Source::Hosts);
    }

    /// What is being recovered.
    pub(crate) fn locked(&self) -> RangeSet {
        self.recoveries
            .values()
            .fold(RangeSet::default(), |all, recovery| all.union(&recovery.ranges))
    }

    /// Ends every recovery; returns what was locked.
    pub(crate) fn drop_recoveries(&mut self) -> RangeSet {
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

    /// Locks `ranges` until it is known from `source` who is registered there.
    pub(crate) fn start_recovery(&mut self, now: Instant, ranges: RangeSet, source: Source) {
        if ranges.is_empty() {
            return;
        }
        let id = self.next_number();
        let told_by: Vec<_> = match source {
            Source::Hosts | Source::Collector(_) => self.silos.hosts().collect(),
            Source::Former(owner) => vec![owner],
        };
        let waiting = told_by.into_iter().map(|silo| (silo, Progress::default())).collect();
        let due = now + self.config.resend_interval;
        self.timers.insert((due, Timer::Recovery(id)));
        let view = self.version;
        // A living owner knows whoever fades.
        let not_before =
            if matches!(source, Source::Former(_)) { now } else { self.all_faded(now) };
        let recovery = Recovery {
            view,
            ranges,
            waiting,
            source,
            progress: Progress::default(),
            doubted: false,
            answered_at: view,
            not_before,
            due,
        };
        self.recoveries.insert(id, recovery);
        match source {
            Source::Hosts => self.ask(now, id),
            Source::Collector(_) => {}
            Source::Former(owner) => self.send(owner, Message::Take { view }),
        }
    }

    /// Asks everybody who has not answered.
    fn ask(&mut self, now: Instant, id: u64) {
        let Some(recovery) = self.recoveries.get(&id) else { return };
        let (view, ranges) = (recovery.view, recovery.ranges.clone());
        let waiting: Vec<_> = recovery.waiting.keys().copied().collect();
        for silo in waiting {
            if silo == self.me {
                self.start_answer(
                    now,
                    Question { to: silo, recovery: id, view, ranges: ranges.clone() },
                );
            } else {
                let ranges = ranges.to_ring_ranges();
                self.send(silo, Message::Recover { recovery: id, view, ranges });
            }
        }
    }

    /// Nothing was heard for a while: whoever is silent is asked again. A collector that stays
    /// silent is given up.
    pub(crate) fn recovery_due(&mut self, now: Instant, id: u64) {
        self.put_off(now, id);
        let Some(recovery) = self.recoveries.get_mut(&id) else { return };
        let (view, source, again) = (recovery.view, recovery.source, !recovery.doubted);
        recovery.doubted = true;
        match source {
            Source::Hosts => self.ask(now, id),
            Source::Collector(to) if to == self.me && self.collections.contains_key(&view) => {}
            Source::Collector(to) if to != self.me && again => {
                self.send(to, Message::Await { view });
            }
            Source::Collector(_) => self.ask_everybody(now, id),
            Source::Former(to) if again => self.send(to, Message::Take { view }),
            Source::Former(_) => self.begin_anew(now, id),
        }
    }

    /// This silo's recovery of what `view` lost, if `collector` tells it what was there.
    fn collected_by(&self, collector: SiloAddress, view: u64) -> Option<u64> {
        self.recovery_from(Source::Collector(collector), view)
    }

    fn recovery_from(&self, source: Source, view: u64) -> Option<u64> {
        let is_it = |r: &Recovery| r.view == view && r.source == source;
        self.recoveries.iter().find(|(_, recovery)| is_it(recovery)).map(|(id, _)| *id)
    }

    /// The former owner has nothing (any more).
    pub(crate) fn handle_unheld(&mut self, now: Instant, from: SiloAddress, view: u64) {
        if let Some(id) = self.recovery_from(Source::Former(from), view) {
            self.begin_anew(now, id);
        }
    }

    /// One batch of what a living owner had as it gave the ranges away, and who of the dead in it
    /// fades how long.
    pub(crate) fn handle_handed(
        &mut self,
        now: Instant,
        from: SiloAddress,
        (series, batch): (u64, u32),
        (view, last): (u64, bool),
        fading: &[(SiloAddress, u64)],
        entries: Vec<(GrainId, Registration)>,
    ) {
        let id = self.recovery_from(Source::Former(from), view);
        let Some((id, recovery)) = id.and_then(|id| Some((id, self.recoveries.get_mut(&id)?)))
        else {
            self.send(from, Message::Credit { series, batches: u32::MAX });
            return;
        };
        if !recovery.progress.takes(series, batch) {
            return;
        }
        recovery.doubted = false;
        if last {
            recovery.waiting.clear();
        }
        self.send(from, Message::Credit { series, batches: batch + 1 });
        self.note_told_fading(now, fading);
        self.take_entries(id, entries);
        self.put_off(now, id);
        self.finish_recoveries(now);
    }

    /// Enters what others say of third silos. Who is Dead has an entry for as long as it fades.
    fn take_entries(&mut self, id: u64, entries: Vec<(GrainId, Registration)>) {
        for (grain, held) in entries {
            if self.is_host(&held.silo) || self.fading.contains_key(&held.silo) {
                self.recovered(id, &grain, held);
            }
        }
    }

    /// What the collector says when it has nothing to pass on.
    pub(crate) fn handle_awaited(
        &mut self,
        now: Instant,
        from: SiloAddress,
        view: u64,
        known: bool,
    ) {
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
        if recovery.progress.takes(series, batch) {
            self.send(from, Message::Credit { series, batches: batch + 1 });
            self.take_collected(now, from, (view, at, last), missing, entries);
        }
    }

    /// What all hosts of the view have told, but for the `missing`: those are Dead in the view
    /// `at`.
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
        self.take_entries(id, entries);
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

    /// Enters one reported activation. Two of one grain cannot be while every silo keeps the rules;
    /// should it happen all the same, the smaller registration stays and the other is told.
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
