//! A new view: the ring, the ranges of this silo, and the sources for gained ranges.

use std::collections::BTreeMap;

use emmer_core::ring::Ring;
use emmer_core::{Instant, SiloAddress, SiloStatus};

use super::Directory;
use crate::api::FailReason;
use crate::out::Timer;
use crate::ranges::RangeSet;
use crate::recovery::Source;
use crate::recovery::collecting::{Loss, owners_that_left};
use crate::silos::Change;

impl Directory {
    /// Installs the view `version` with these silos. A version that is not newer is ignored. Views
    /// may be skipped.
    ///
    /// `fading` names the silos that are Dead in this view and may still run turns, and until when
    /// by this silo's clock. No silo is granted one of their grains before (invariant I8).
    pub fn handle_view(
        &mut self,
        now: Instant,
        version: u64,
        silos: &[(SiloAddress, SiloStatus)],
        fading: &[(SiloAddress, Instant)],
    ) {
        self.facts.pass(now);
        if self.closed || version <= self.facts.version() {
            return;
        }
        let me = self.facts.me();
        let contiguous = version == self.facts.version() + 1;
        let was_member = self.facts.silos().get(&me).is_some();
        self.requester.send_all(&self.facts, &mut self.out);
        let changes = self.facts.see(version, silos);
        let gone = match self.facts.silos().get(&me) {
            Some(status) => status == SiloStatus::Dead,
            None => was_member,
        };
        let ended: Vec<_> = changes.iter().filter(|c| c.ended()).map(Change::silo).collect();
        if gone {
            self.close();
            return;
        }
        let served = self.facts.owned().subtract(&self.recoveries.locked());
        let left = if contiguous { owners_that_left(&self.facts, &changes) } else { Vec::new() };
        let joined = changes.iter().any(|c| c.silo() == me && c.joined_the_ring());
        let old_ring = (contiguous && joined).then(|| self.facts.ring().clone());
        let before = self.facts.change_ring(&changes);
        for due in self.facts.note_fading(fading) {
            self.out.set(due, Timer::Fading);
        }
        let gained = self.facts.owned().subtract(&before);
        let unknown = if contiguous {
            self.go_on(&before, &served, &ended)
        } else {
            // Between the views another silo may have owned the locked ranges: answers so far are
            // void.
            self.drop_recoveries().intersect(self.facts.owned())
        };
        let changed = before != *self.facts.owned() || !unknown.is_empty();
        let kept = changed.then(|| self.facts.owned().subtract(&gained).subtract(&unknown));
        if kept.is_some() || !ended.is_empty() {
            self.owner.keep(&self.facts, kept.as_ref());
        }
        self.collecting.view_changed(&self.facts, &mut self.out, &ended);
        self.lists.view_changed(&self.facts, &mut self.out);
        let loss = Loss::of(&self.facts, &left);
        self.learn(gained, &unknown, (loss.as_ref(), &left, old_ring.as_ref()));
        if let Some(loss) = loss {
            self.collecting.take_part(&self.facts, &mut self.out, loss);
            self.drain();
        }
        self.catch_up();
    }

    /// The next view in sequence: keeps lost ranges for their new owners, and continues recoveries
    /// of ranges that are still its own. Returns the ranges that it has to learn in another way.
    fn go_on(&mut self, before: &RangeSet, served: &RangeSet, ended: &[SiloAddress]) -> RangeSet {
        let (facts, out, owner) = (&self.facts, &mut self.out, &mut self.owner);
        let lost = before.subtract(facts.owned());
        self.handover.keep(facts, out, &lost, served, || owner.take(&lost));
        let unknown = self.recoveries.drop_orphans(facts, out).intersect(facts.owned());
        self.recoveries.view_changed(facts, out, ended);
        self.drain();
        unknown
    }

    /// Locks the gained ranges, each part until its source has told: the collector for dead owners,
    /// a living owner for its own, and all hosts for the rest.
    fn learn(
        &mut self,
        gained: RangeSet,
        unknown: &RangeSet,
        (loss, left, old_ring): (Option<&Loss>, &[(SiloAddress, RangeSet)], Option<&Ring>),
    ) {
        let mut rest = gained;
        if let Some(loss) = loss {
            let lost = rest.intersect(loss.ranges());
            self.start_recovery(lost, Source::Collector(loss.collector()));
            rest = rest.subtract(loss.ranges());
        }
        let mut former: BTreeMap<SiloAddress, RangeSet> = BTreeMap::new();
        if let Some(ring) = old_ring {
            for (piece, owner) in rest.split(ring) {
                let ranges = former.entry(owner).or_default();
                *ranges = ranges.union(&RangeSet::piece(piece));
            }
        } else {
            former.extend(left.iter().map(|(silo, ranges)| (*silo, rest.intersect(ranges))));
        }
        for (owner, ranges) in former {
            if self.facts.is_host(&owner) && owner != self.facts.me() {
                rest = rest.subtract(&ranges);
                self.start_recovery(ranges, Source::Former(owner));
            }
        }
        self.start_recovery(rest.union(unknown), Source::Hosts);
    }

    fn start_recovery(&mut self, ranges: RangeSet, source: Source) {
        self.recoveries.start(&self.facts, &mut self.out, ranges, source);
        self.drain();
    }

    /// The view is installed: what waited for it continues.
    fn catch_up(&mut self) {
        self.requester.follow_view(&self.facts, &mut self.out);
        self.settle_own();
        self.answering.answer_deferred(&self.facts, &mut self.out);
        self.drain();
        while let Some((view, from)) = self.handover.next_taker(&self.facts) {
            self.on_take(from, view);
            self.drain();
        }
        self.collecting.take_early(&self.facts, &mut self.out);
        self.drain();
        self.collecting.finish(&self.facts, &mut self.out);
        self.drain();
        self.recoveries.finish(&self.facts, &mut self.out);
        self.drain();
    }

    /// Ends every recovery; returns the locked ranges.
    fn drop_recoveries(&mut self) -> RangeSet {
        let recoveries = &self.recoveries;
        self.answering.forget_own(&self.facts, |id| recoveries.has(id));
        self.recoveries.drop_all(&mut self.out)
    }

    fn close(&mut self) {
        self.closed = true;
        self.facts.close();
        self.owner.clear();
        self.recoveries = crate::recovery::Recoveries::default();
        self.collecting.clear();
        self.lists = crate::lists::Lists::default();
        self.handover = crate::handover::Handover::default();
        self.answering.clear();
        self.out.clear_all();
        self.requester.fail_all(&mut self.out, FailReason::Closed);
    }
}
