//! A living owner hands over: as it installs the view that takes ranges from it, it seals them and
//! keeps what it had for the one who gained them.

use std::collections::BTreeMap;

use emmer_core::{GrainId, Instant, SiloAddress};

use crate::api::Registration;
use crate::directory::Directory;
use crate::message::Message;
use crate::pending::Timer;
use crate::ranges::RangeSet;
use crate::streams::Body;

/// What a silo had as a view took ranges from it, for one new owner.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    entries: Vec<(GrainId, Registration)>,
    /// Until when it is kept.
    due: Instant,
}

impl Directory {
    /// The next view in sequence took `lost` away, of which this silo `served` some: what it had
    /// there is kept for those who gained it. Of what it was still recovering itself it knows
    /// nothing.
    pub(crate) fn keep_snapshots(&mut self, now: Instant, lost: &RangeSet, served: &RangeSet) {
        let view = self.version;
        let silos = &self.silos;
        let is_active = |(_, gainer): &(u64, SiloAddress)| silos.is_active(gainer);
        self.snapshots.retain(|key, _| is_active(key));
        if lost.is_empty() {
            return;
        }
        let due = now + self.config.op_timeout;
        let pieces = lost.split(&self.ring);
        let mut parts: BTreeMap<SiloAddress, Option<Vec<(GrainId, Registration)>>> =
            BTreeMap::new();
        for (piece, gainer) in &pieces {
            let known = RangeSet::piece(*piece).subtract(served).is_empty();
            let part = parts.entry(*gainer).or_insert_with(|| Some(Vec::new()));
            if !known {
                *part = None;
            }
        }
        for (grain, held) in self.entries.take(|hash| lost.contains(hash)) {
            let hash = grain.stable_hash();
            let piece = pieces.get(pieces.partition_point(|((_, hi), _)| *hi < hash));
            if let Some(Some(part)) = piece.and_then(|(_, gainer)| parts.get_mut(gainer)) {
                part.push((grain, held));
            }
        }
        for (gainer, part) in parts {
            if let Some(part) = part {
                self.snapshots.insert((view, gainer), Snapshot { entries: part, due });
                self.timers.insert((due, Timer::Snapshots(view)));
            }
        }
    }

    /// Nobody comes any more for what was kept at this view or before.
    pub(crate) fn snapshots_due(&mut self, view: u64) {
        self.snapshots.retain(|(at, _), _| *at > view);
    }

    /// A new owner wants what this silo had before `view`.
    pub(crate) fn handle_take(&mut self, now: Instant, from: SiloAddress, view: u64) {
        if view > self.version {
            if self.takers.len() < self.config.questions_max {
                self.takers.insert((view, from));
            }
            return;
        }
        if let Some(Snapshot { entries, due }) = self.snapshots.remove(&(view, from)) {
            if !self.snapshots.keys().any(|(at, _)| *at == view) {
                self.timers.remove(&(due, Timer::Snapshots(view)));
            }
            let mut fading = self.fading.clone();
            fading.retain(|silo, _| entries.iter().any(|(_, held)| held.silo == *silo));
            let body = Body::Handed { view, fading: fading.into_iter().collect(), entries };
            self.open_stream(now, from, body);
        } else if !self.repeat(now, from, view, true) {
            self.send(from, Message::Unheld { view });
        }
    }

    /// A view was installed: new owners that were faster are answered.
    pub(crate) fn answer_takers(&mut self, now: Instant) {
        while let Some((view, from)) =
            self.takers.first().copied().filter(|(view, _)| *view <= self.version)
        {
            self.takers.remove(&(view, from));
            self.handle_take(now, from, view);
        }
    }

    /// Whether another silo has yet to take what this one gave up: a silo that leaves may wait for
    /// that.
    pub fn is_handing_over(&self) -> bool {
        !self.snapshots.is_empty() || self.streams.values().any(crate::streams::Stream::hands_over)
    }
}
