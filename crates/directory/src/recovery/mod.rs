//! The new owner's side: a gained range is locked until every silo that may host grains has told
//! its activations there.

pub(crate) mod answering;
pub(crate) mod collecting;

use std::collections::BTreeMap;

use emmer_core::{GrainId, Instant, SiloAddress};

use crate::facts::Facts;
use crate::inner::{Batch, Inner, Question};
use crate::list::Progress;
use crate::message::Message;
use crate::out::{Out, Timer};
use crate::ranges::RangeSet;
use crate::registration::Registration;

/// The recoveries, by this silo's number. A hash in any of them is locked.
#[derive(Debug, Default)]
pub(crate) struct Recoveries(BTreeMap<u64, Recovery>);

/// Ranges that this silo gained and does not know yet.
#[derive(Clone, Debug)]
struct Recovery {
    /// The view that gave them.
    view: u64,
    /// Part of them that is still this silo's: owned in every view since, without a gap.
    ranges: RangeSet,
    /// Silos that have not told everything yet, with their progress.
    waiting: BTreeMap<SiloAddress, Progress>,
    /// Silos that tell.
    source: Source,
    /// Progress of the silo that tells in the name of all.
    progress: Progress,
    /// True if that silo was asked about its state, and has not answered.
    doubted: bool,
    /// The newest view at which a silo answered. Only with it installed is it known which ranges
    /// were this silo's for the answerer.
    answered_at: u64,
    /// Silos that died without an answer may run turns until here, on activations that no other
    /// silo knows of.
    not_before: Instant,
    due: Instant,
}

/// Source of a recovery's registrations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Every host is asked.
    Hosts,
    /// The hosts have told this silo.
    Collector(SiloAddress),
    /// The owner in the view before knows.
    Former(SiloAddress),
}

impl Recoveries {
    /// Returns true if nothing is locked.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if `grain`'s range is being recovered.
    pub(crate) fn locks(&self, grain: &GrainId) -> bool {
        self.0.values().any(|recovery| recovery.ranges.covers(grain))
    }

    /// Ranges that are being recovered.
    pub(crate) fn locked(&self) -> RangeSet {
        self.0.values().fold(RangeSet::default(), |all, recovery| all.union(&recovery.ranges))
    }

    /// Returns true if there is a recovery of this number.
    pub(crate) fn has(&self, id: u64) -> bool {
        self.0.contains_key(&id)
    }

    // ---- their life
    // -------------------------------------------------------------------------------------------------

    /// Locks `ranges` until it is known from `source` who is registered there.
    pub(crate) fn start(&mut self, facts: &Facts, out: &mut Out, ranges: RangeSet, source: Source) {
        if ranges.is_empty() {
            return;
        }
        let id = out.next_number();
        let told_by: Vec<_> = match source {
            Source::Hosts | Source::Collector(_) => facts.silos().hosts().collect(),
            Source::Former(owner) => vec![owner],
        };
        let waiting = told_by.into_iter().map(|silo| (silo, Progress::default())).collect();
        let due = facts.now() + facts.config().resend_interval;
        out.set(due, Timer::Recovery(id));
        let view = facts.version();
        // A living owner knows which silos fade.
        let not_before =
            if matches!(source, Source::Former(_)) { facts.now() } else { facts.all_faded() };
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
        self.0.insert(id, recovery);
        match source {
            Source::Hosts => self.ask(facts, out, id),
            Source::Collector(_) => {}
            Source::Former(owner) => out.send(owner, Message::Take { view }),
        }
    }

    /// The next view in sequence: recoveries continue for ranges that are still owned. A silo that
    /// died without an answer is no longer asked, but has to have faded. Silos that became hosts
    /// since need not be asked (`safety.md`, lemma 3).
    pub(crate) fn view_changed(&mut self, facts: &Facts, out: &mut Out, ended: &[SiloAddress]) {
        self.0.retain(|id, recovery| {
            recovery.ranges = recovery.ranges.intersect(facts.owned());
            for silo in ended.iter().filter(|silo| recovery.waiting.remove(silo).is_some()) {
                let faded = facts.fading().get(silo).copied().unwrap_or_default();
                recovery.not_before = recovery.not_before.max(faded);
            }
            let keep = !recovery.ranges.is_empty();
            if !keep {
                out.clear(recovery.due, Timer::Recovery(*id));
            }
            keep
        });
        let is_active = |silo: &SiloAddress| facts.silos().is_active(silo);
        let left = |r: &Recovery| matches!(r.source, Source::Collector(silo) if !is_active(&silo));
        let orphans: Vec<_> = self.0.iter().filter(|(_, r)| left(r)).map(|(id, _)| *id).collect();
        for id in orphans {
            self.ask_everybody(facts, out, id);
        }
    }

    /// Ends recoveries whose former owner is gone before it has handed all over. Returns their
    /// ranges.
    pub(crate) fn drop_orphans(&mut self, facts: &Facts, out: &mut Out) -> RangeSet {
        let mut orphans = RangeSet::default();
        self.0.retain(|id, recovery| {
            let Source::Former(owner) = recovery.source else { return true };
            let lives = facts.is_host(&owner);
            if !lives {
                out.clear(recovery.due, Timer::Recovery(*id));
                orphans = orphans.union(&recovery.ranges);
            }
            lives
        });
        orphans
    }

    /// Ends every recovery; returns the locked ranges.
    pub(crate) fn drop_all(&mut self, out: &mut Out) -> RangeSet {
        let mut locked = RangeSet::default();
        for (id, recovery) in std::mem::take(&mut self.0) {
            out.clear(recovery.due, Timer::Recovery(id));
            locked = locked.union(&recovery.ranges);
        }
        locked
    }

    /// Unlocks complete ranges, and serves this silo's own commands that waited for them.
    pub(crate) fn finish(&mut self, facts: &Facts, out: &mut Out) {
        let before = self.0.len();
        self.0.retain(|id, recovery| {
            let answered = recovery.waiting.is_empty() && recovery.answered_at <= facts.version();
            let done = answered && recovery.not_before <= facts.now();
            if done {
                out.clear(recovery.due, Timer::Recovery(*id));
            }
            !done
        });
        if self.0.len() < before {
            out.tell(Inner::Settle);
        }
    }

    // ---- asking
    // -----------------------------------------------------------------------------------------------------

    /// No silo collects for this recovery: this silo asks the hosts by itself.
    fn ask_everybody(&mut self, facts: &Facts, out: &mut Out, id: u64) {
        if let Some(recovery) = self.0.get_mut(&id) {
            recovery.source = Source::Hosts;
            self.put_off(facts, out, id);
            self.ask(facts, out, id);
        }
    }

    /// The former owner cannot or does not hand over: its entries are recovered from all hosts,
    /// from now on.
    fn begin_again(&mut self, facts: &Facts, out: &mut Out, id: u64) {
        let Some(recovery) = self.0.remove(&id) else { return };
        out.clear(recovery.due, Timer::Recovery(id));
        out.tell(Inner::Keep(facts.owned().subtract(&recovery.ranges)));
        self.start(facts, out, recovery.ranges, Source::Hosts);
    }

    /// Asks all that have not answered.
    fn ask(&self, facts: &Facts, out: &mut Out, id: u64) {
        let Some(recovery) = self.0.get(&id) else { return };
        let (view, ranges) = (recovery.view, &recovery.ranges);
        for silo in recovery.waiting.keys() {
            if *silo == facts.me() {
                out.tell(Inner::Answer(Question::new(*silo, id, view, ranges.clone())));
            } else {
                let ranges = ranges.to_ring_ranges();
                out.send(*silo, Message::Recover { recovery: id, view, ranges });
            }
        }
    }

    /// The recovery was silent for a while: silent silos are asked again. A collector that stays
    /// silent is given up, unless it is this silo itself.
    pub(crate) fn on_due(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        id: u64,
        collects: impl Fn(u64) -> bool,
    ) {
        self.put_off(facts, out, id);
        let me = facts.me();
        let Some(recovery) = self.0.get_mut(&id) else { return };
        let (view, source, again) = (recovery.view, recovery.source, !recovery.doubted);
        recovery.doubted = true;
        match source {
            Source::Hosts => self.ask(facts, out, id),
            Source::Collector(to) if to == me && collects(view) => {}
            Source::Collector(to) if to != me && again => out.send(to, Message::Await { view }),
            Source::Collector(_) => self.ask_everybody(facts, out, id),
            Source::Former(to) if again => out.send(to, Message::Take { view }),
            Source::Former(_) => self.begin_again(facts, out, id),
        }
    }

    fn put_off(&mut self, facts: &Facts, out: &mut Out, id: u64) {
        let Some(recovery) = self.0.get_mut(&id) else { return };
        out.clear(recovery.due, Timer::Recovery(id));
        recovery.due = facts.now() + facts.config().resend_interval;
        out.set(recovery.due, Timer::Recovery(id));
    }

    /// This silo's recovery of the ranges that `view` lost, if `collector` tells it the entries.
    fn collected_by(&self, collector: SiloAddress, view: u64) -> Option<u64> {
        self.told_by(Source::Collector(collector), view)
    }

    fn told_by(&self, source: Source, view: u64) -> Option<u64> {
        let is_it = |r: &Recovery| r.view == view && r.source == source;
        self.0.iter().find(|(_, recovery)| is_it(recovery)).map(|(id, _)| *id)
    }

    // ---- what is told
    // -----------------------------------------------------------------------------------------------

    /// The former owner has nothing, or nothing is left.
    pub(crate) fn on_unheld(&mut self, facts: &Facts, out: &mut Out, from: SiloAddress, view: u64) {
        if let Some(id) = self.told_by(Source::Former(from), view) {
            self.begin_again(facts, out, id);
        }
    }

    /// One batch of a living owner's entries from the time when it gave the ranges away. Returns
    /// the recovery that is to [take](Self::take_handed) it, if any.
    pub(crate) fn on_handed(
        &mut self,
        out: &mut Out,
        from: SiloAddress,
        (series, batch): (u64, u32),
        (view, last): (u64, bool),
    ) -> Option<u64> {
        let id = self.told_by(Source::Former(from), view);
        let Some((id, recovery)) = id.and_then(|id| Some((id, self.0.get_mut(&id)?))) else {
            out.send(from, Message::Credit { series, batches: u32::MAX });
            return None;
        };
        if !recovery.progress.takes(series, batch) {
            return None;
        }
        recovery.doubted = false;
        if last {
            recovery.waiting.clear();
        }
        out.send(from, Message::Credit { series, batches: batch + 1 });
        Some(id)
    }

    /// The registrations that a living owner handed over; it has said which of the dead fade.
    pub(crate) fn take_handed(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        id: u64,
        entries: Vec<(GrainId, Registration)>,
    ) {
        self.take_entries(facts, out, id, entries);
        self.put_off(facts, out, id);
        self.finish(facts, out);
    }

    /// Enters other silos' entries about third silos. A silo that is Dead has an entry for as long
    /// as it fades.
    fn take_entries(
        &self,
        facts: &Facts,
        out: &mut Out,
        id: u64,
        entries: Vec<(GrainId, Registration)>,
    ) {
        let entries = entries.into_iter().filter(|(_, held)| facts.keeps(&held.silo));
        self.enter(out, id, entries);
    }

    /// Enters what lies in the ranges of a recovery.
    fn enter(
        &self,
        out: &mut Out,
        id: u64,
        entries: impl Iterator<Item = (GrainId, Registration)>,
    ) {
        let Some(recovery) = self.0.get(&id) else { return };
        out.tell(Inner::Enter(
            entries.filter(|(grain, _)| recovery.ranges.covers(grain)).collect(),
        ));
    }

    /// Handles the word of a collector that has nothing to pass on.
    pub(crate) fn on_awaited(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        from: SiloAddress,
        view: u64,
        known: bool,
    ) {
        let Some(id) = self.collected_by(from, view) else { return };
        if !known {
            self.ask_everybody(facts, out, id);
        } else if let Some(recovery) = self.0.get_mut(&id) {
            recovery.doubted = false;
        }
    }

    /// One batch of collected entries. Returns true if it is the next one.
    pub(crate) fn on_collected(
        &mut self,
        out: &mut Out,
        from: SiloAddress,
        (series, batch): (u64, u32),
        view: u64,
    ) -> bool {
        let id = self.collected_by(from, view);
        let Some(recovery) = id.and_then(|id| self.0.get_mut(&id)) else {
            // Of no use here: the collector need not keep it.
            out.send(from, Message::Credit { series, batches: u32::MAX });
            return false;
        };
        let takes = recovery.progress.takes(series, batch);
        if takes {
            out.send(from, Message::Credit { series, batches: batch + 1 });
        }
        takes
    }

    /// Takes the words of all hosts of the view, except the `missing`: those are Dead in the view
    /// `at`.
    pub(crate) fn take_collected(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        from: SiloAddress,
        (view, at, last): (u64, u64, bool),
        missing: &[SiloAddress],
        entries: Vec<(GrainId, Registration)>,
    ) {
        let Some(id) = self.collected_by(from, view) else { return };
        let Some(recovery) = self.0.get_mut(&id) else { return };
        recovery.doubted = false;
        recovery.answered_at = recovery.answered_at.max(at);
        if last {
            recovery.waiting.retain(|silo, _| missing.contains(silo));
        }
        self.take_entries(facts, out, id, entries);
        self.put_off(facts, out, id);
        self.finish(facts, out);
    }

    /// One batch of `from`'s report.
    pub(crate) fn on_report(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        from: SiloAddress,
        id: u64,
        ((view, series, batch, last), entries): Batch,
    ) {
        let Some(recovery) = self.0.get_mut(&id) else { return };
        let Some(progress) = recovery.waiting.get_mut(&from) else { return };
        if !progress.takes(series, batch) {
            return;
        }
        recovery.answered_at = recovery.answered_at.max(view);
        if last {
            recovery.waiting.remove(&from);
        } else {
            out.send(from, Message::Credit { series, batches: batch + 1 });
        }
        let entries = entries.into_iter();
        let registered = |(grain, activation)| (grain, Registration { silo: from, activation });
        self.enter(out, id, entries.map(registered));
        self.put_off(facts, out, id);
        self.finish(facts, out);
    }
}
