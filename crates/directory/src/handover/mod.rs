//! A living owner hands over: as it installs the view that takes ranges from it, it seals them and
//! keeps their entries for the new owner.

use std::collections::{BTreeMap, BTreeSet};

use emmer_core::{GrainId, Instant, SiloAddress};

use crate::facts::Facts;
use crate::inner::Inner;
use crate::list::Body;
use crate::out::{Out, Timer};
use crate::ranges::RangeSet;
use crate::registration::Registration;

/// Lists that are kept for new owners.
#[derive(Debug, Default)]
pub(crate) struct Handover {
    /// Registrations that this silo had as it lost ranges, by the version of the view and the new
    /// owner.
    snapshots: BTreeMap<(u64, SiloAddress), Snapshot>,
    /// New owners that have installed a view which this silo has not.
    takers: BTreeSet<(u64, SiloAddress)>,
}

/// Registrations that a silo had as a view took ranges from it, for one new owner.
#[derive(Clone, Debug)]
struct Snapshot {
    entries: Vec<(GrainId, Registration)>,
    /// Time until which it is kept.
    due: Instant,
}

impl Handover {
    /// Returns true if nothing is kept for a new owner.
    pub(crate) fn is_empty(&self) -> bool {
        self.snapshots.is_empty()
    }

    /// Returns true if a new owner waits for a view.
    pub(crate) fn has_takers(&self) -> bool {
        !self.takers.is_empty()
    }

    /// The next view in sequence took `lost` away, of which this silo `served` a part. `take` takes
    /// that part's entries out, and they are kept for the new owners. This silo knows nothing of
    /// ranges that it was still recovering.
    pub(crate) fn keep(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        lost: &RangeSet,
        served: &RangeSet,
        take: impl FnOnce() -> Vec<(GrainId, Registration)>,
    ) {
        let view = facts.version();
        self.snapshots.retain(|(_, gainer), _| facts.silos().is_active(gainer));
        if lost.is_empty() {
            return;
        }
        let due = facts.now() + facts.config().op_timeout;
        let pieces = lost.split(facts.ring());
        let mut parts: BTreeMap<SiloAddress, Option<Vec<(GrainId, Registration)>>> =
            BTreeMap::new();
        for (piece, gainer) in &pieces {
            let known = RangeSet::piece(*piece).subtract(served).is_empty();
            let part = parts.entry(*gainer).or_insert_with(|| Some(Vec::new()));
            if !known {
                *part = None;
            }
        }
        for (grain, held) in take() {
            let hash = grain.stable_hash();
            let piece = pieces.get(pieces.partition_point(|((_, hi), _)| *hi < hash));
            if let Some(Some(part)) = piece.and_then(|(_, gainer)| parts.get_mut(gainer)) {
                part.push((grain, held));
            }
        }
        for (gainer, part) in parts {
            if let Some(entries) = part {
                self.snapshots.insert((view, gainer), Snapshot { entries, due });
                out.set(due, Timer::Snapshots(view));
            }
        }
    }

    /// No further owner comes for entries of this view or earlier ones.
    pub(crate) fn on_due(&mut self, view: u64) {
        self.snapshots.retain(|(at, _), _| *at > view);
    }

    /// A new owner wants what this silo had before `view`. Returns true if it gets that, or waits.
    pub(crate) fn take(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        from: SiloAddress,
        view: u64,
    ) -> bool {
        if view > facts.version() {
            if self.takers.len() < facts.config().questions_max {
                self.takers.insert((view, from));
            }
            return true;
        }
        let Some(Snapshot { entries, due }) = self.snapshots.remove(&(view, from)) else {
            return false;
        };
        if !self.snapshots.keys().any(|(at, _)| *at == view) {
            out.clear(due, Timer::Snapshots(view));
        }
        let mut fading = facts.fading().clone();
        fading.retain(|silo, _| entries.iter().any(|(_, held)| held.silo == *silo));
        let fading = fading.into_iter().collect();
        out.tell(Inner::Open(from, Body::Handed { view, fading, entries }));
        true
    }

    /// A view was installed: takes a new owner that was faster, and the view that it named.
    pub(crate) fn next_taker(&mut self, facts: &Facts) -> Option<(u64, SiloAddress)> {
        let first = self.takers.first().copied().filter(|(view, _)| *view <= facts.version())?;
        self.takers.remove(&first);
        Some(first)
    }
}
