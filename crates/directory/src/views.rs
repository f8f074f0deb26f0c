//! What a new view changes: the ring, what this silo owns, and from whom it learns what it gained.

use std::collections::BTreeMap;

use emmer_core::ring::Ring;
use emmer_core::{Instant, SiloAddress, SiloStatus};

use crate::api::FailReason;
use crate::collecting::{Early, Loss};
use crate::directory::Directory;
use crate::ranges::RangeSet;
use crate::recovery::Source;
use crate::silos::{Change, Silos};

impl Directory {
    /// Installs the view `version` with these silos. A version that is not newer is ignored. Views
    /// may be skipped.
    ///
    /// `fading` names the silos that are Dead in this view and may still run turns, and until when
    /// by this silo's clock. Nobody is granted one of their grains before (invariant I8).
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
        let was_member = self.silos.get(&self.me).is_some();
        self.version = version;
        let silos = Silos::new(silos);
        let changes = self.silos.changes(&silos);
        self.silos = silos;
        let gone = match self.silos.get(&self.me) {
            Some(status) => status == SiloStatus::Dead,
            None => was_member,
        };
        let ended: Vec<_> = changes.iter().filter(|c| c.ended()).map(|c| c.silo).collect();
        if gone {
            self.close();
            return;
        }
        let served = self.owned.subtract(&self.locked());
        let left = if contiguous { self.owners_that_left(&changes) } else { Vec::new() };
        let joined = changes.iter().any(|c| c.silo == self.me && c.joined_the_ring());
        let old_ring = (contiguous && joined).then(|| self.ring.clone());
        self.change_ring(&changes);
        self.note_fading(now, fading);
        let before = std::mem::replace(&mut self.owned, RangeSet::owned(&self.ring, self.me));
        let gained = self.owned.subtract(&before);
        let mut unknown = RangeSet::default();
        if contiguous {
            self.keep_snapshots(now, &before.subtract(&self.owned), &served);
            unknown = self.drop_orphans().intersect(&self.owned);
            self.keep_recoveries(now, &ended);
        } else {
            // Between the views somebody else may have owned what is locked here: answers so far
            // are void.
            unknown = unknown.union(&self.drop_recoveries().intersect(&self.owned));
        }
        let changed = before != self.owned || !unknown.is_empty();
        let kept = changed.then(|| self.owned.subtract(&gained).subtract(&unknown));
        if kept.is_some() || !ended.is_empty() {
            self.keep_entries(kept.as_ref());
        }
        self.keep_collections(&ended);
        self.keep_streams();
        let loss = self.loss(&left);
        self.learn(now, gained, &unknown, (loss.as_ref(), &left, old_ring.as_ref()));
        if let Some(loss) = loss {
            self.collect(now, loss);
        }
        self.follow_view(now);
        self.answer_deferred(now);
        self.answer_takers(now);
        self.take_early(now);
        self.finish_collections(now);
        self.finish_recoveries(now);
    }

    /// Locks what this silo gained, each part until the one who knows it has told: the collector
    /// what the dead had, a living owner what it had, and all hosts the rest.
    fn learn(
        &mut self,
        now: Instant,
        gained: RangeSet,
        unknown: &RangeSet,
        (loss, left, old_ring): (Option<&Loss>, &[(SiloAddress, RangeSet)], Option<&Ring>),
    ) {
        let mut rest = gained;
        if let Some(loss) = loss {
            self.start_recovery(
                now,
                rest.intersect(&loss.ranges),
                Source::Collector(loss.collector),
            );
            rest = rest.subtract(&loss.ranges);
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
            if self.is_host(&owner) && owner != self.me {
                rest = rest.subtract(&ranges);
                self.start_recovery(now, ranges, Source::Former(owner));
            }
        }
        self.start_recovery(now, rest.union(unknown), Source::Hosts);
    }

    /// The ring follows the silos that became Active, or are not any more.
    fn change_ring(&mut self, changes: &[Change]) {
        let all = |which: fn(&Change) -> bool| -> Vec<SiloAddress> {
            changes.iter().filter(|change| which(change)).map(|change| change.silo).collect()
        };
        self.ring.change(&all(Change::left_the_ring), &all(Change::joined_the_ring));
    }

    fn close(&mut self) {
        self.closed = true;
        self.owned = RangeSet::default();
        self.entries.clear();
        self.drop_recoveries();
        self.collections.clear();
        self.early = Early::default();
        self.streams.clear();
        self.snapshots.clear();
        self.takers.clear();
        self.answering.clear();
        self.deferred.clear();
        self.fading.clear();
        self.timers.clear();
        self.fail_all(FailReason::Closed);
    }
}
