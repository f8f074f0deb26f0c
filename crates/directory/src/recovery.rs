//! The new owner's side: views change what this silo owns, and what it gained is locked until every silo that
//! may host grains has said what it has there.

use std::collections::BTreeMap;

use emmer_core::ring::Ring;
use emmer_core::{GrainId, Instant, SiloAddress, SiloStatus};

use crate::answering::Question;
use crate::api::{Effect, FailReason, Registration};
use crate::directory::{Directory, hosts};
use crate::message::Message;
use crate::pending::Timer;
use crate::ranges::RangeSet;

/// Ranges that this silo gained and does not know yet.
#[derive(Clone, Debug)]
pub(crate) struct Recovery {
    /// The view that gave them.
    view: u64,
    /// What of them is still this silo's: owned in every view since, without a gap.
    pub(crate) ranges: RangeSet,
    /// Who has not told everything yet, and how far each has come.
    waiting: BTreeMap<SiloAddress, Progress>,
    /// The newest view at which anybody answered: only with it installed is it known which of the ranges were
    /// this silo's in the answerer's eyes.
    answered_at: u64,
    /// Silos that died without an answer may run turns until here, on activations that nobody else knows of.
    not_before: Instant,
    due: Instant,
}

/// How far one silo's report has come.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    series: u64,
    next: u32,
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
        self.silos = silos.iter().copied().collect();
        let gone = match self.silos.get(&self.me) {
            Some(status) => *status == SiloStatus::Dead,
            None => was_member,
        };
        let active = self.silos.iter().filter(|(_, s)| **s == SiloStatus::Active).map(|(silo, _)| *silo);
        self.ring = Ring::with_points(active, 0, self.config.points_per_silo);
        if gone {
            self.close();
            return;
        }
        self.note_fading(now, fading);
        let before = std::mem::replace(&mut self.owned, RangeSet::owned(&self.ring, self.me));
        let mut gained = self.owned.subtract(&before);
        if contiguous {
            self.keep_recoveries();
        } else {
            // Between the views somebody else may have owned what is locked here: answers so far are void.
            gained = gained.union(&self.drop_recoveries().intersect(&self.owned));
        }
        let lost = !before.subtract(&self.owned).is_empty();
        let kept = (lost || !gained.is_empty()).then(|| self.owned.subtract(&gained));
        self.keep_entries(kept.as_ref());
        if !gained.is_empty() {
            self.start_recovery(now, gained);
        }
        self.follow_view(now);
        self.answer_deferred(now);
        self.finish_recoveries(now);
    }

    fn close(&mut self) {
        self.closed = true;
        self.owned = RangeSet::default();
        self.entries.clear();
        self.drop_recoveries();
        self.answering.clear();
        self.deferred.clear();
        self.fading.clear();
        self.timers.clear();
        self.fail_all(FailReason::Closed);
    }

    /// The next view in sequence: recoveries go on for what is still owned. Who died without an answer is not
    /// asked any more, but has to have faded. Silos that became hosts since need not be asked (crate page,
    /// lemma 3).
    fn keep_recoveries(&mut self) {
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
    }

    /// Ends every recovery; returns what was locked.
    fn drop_recoveries(&mut self) -> RangeSet {
        let me = self.me;
        self.answering.retain(|_, question| question.to != me);
        let mut locked = RangeSet::default();
        for (id, recovery) in std::mem::take(&mut self.recoveries) {
            self.timers.remove(&(recovery.due, Timer::Recovery(id)));
            locked = locked.union(&recovery.ranges);
        }
        locked
    }

    fn start_recovery(&mut self, now: Instant, ranges: RangeSet) {
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
        let recovery = Recovery { view, ranges, waiting, answered_at: view, not_before, due };
        self.recoveries.insert(id, recovery);
        self.ask(now, id);
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

    pub(crate) fn recovery_due(&mut self, now: Instant, id: u64) {
        self.put_off(now, id);
        self.ask(now, id);
    }

    fn put_off(&mut self, now: Instant, id: u64) {
        let Some(recovery) = self.recoveries.get_mut(&id) else { return };
        self.timers.remove(&(recovery.due, Timer::Recovery(id)));
        recovery.due = now + self.config.resend_interval;
        self.timers.insert((recovery.due, Timer::Recovery(id)));
    }

    /// One batch of `from`'s report. Batches count in sequence only: after a loss the whole report is asked for
    /// again.
    pub(crate) fn handle_report(
        &mut self,
        now: Instant,
        from: SiloAddress,
        id: u64,
        (view, series, batch, last): (u64, u64, u32, bool),
        entries: Vec<(GrainId, u64)>,
    ) {
        let Some(recovery) = self.recoveries.get_mut(&id) else { return };
        let Some(progress) = recovery.waiting.get_mut(&from) else { return };
        if batch == 0 {
            *progress = Progress { series, next: 0 };
        }
        if progress.series != series || progress.next != batch {
            return;
        }
        progress.next += 1;
        recovery.answered_at = recovery.answered_at.max(view);
        if last {
            recovery.waiting.remove(&from);
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
